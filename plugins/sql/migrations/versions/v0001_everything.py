"""All tables as they were in the first version."""

from alembic import op

from plugins.sql.schema import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them as the schema has them; the first version that changes a table writes this one out."""
    metadata.create_all(op.get_bind(), checkfirst=False)
