"""What a person controls: replies that wait for a decision, and rooms that a person has taken over."""

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the tables; what the schema is now plays no part."""
