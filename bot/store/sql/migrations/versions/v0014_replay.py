"""What is needed to replay a turn."""

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the tables and columns; what the schema is now plays no part."""
