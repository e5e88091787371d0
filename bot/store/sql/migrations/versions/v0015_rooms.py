"""What a room is to a character: its settings, the characters who speak in it, a summary of its talk."""

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the tables and columns; what the schema is now plays no part."""
