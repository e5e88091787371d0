"""The store in SQLite and PostgreSQL, on SQLAlchemy Core."""
