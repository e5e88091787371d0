"""How the schema came to be what it is: one file a version, run by Alembic."""
