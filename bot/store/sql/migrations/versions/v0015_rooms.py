"""What a room is to a character: its settings, the characters who speak in it, a summary of its talk."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the tables and columns; what the schema is now plays no part."""
    _add_votes()


def _add_votes() -> None:
    op.add_column("memories", sa.Column("vote", sa.BigInteger, nullable=False, server_default="0"))
    is_vote = sa.text("vote <> 0")
    op.create_index(
        "ix_memories_votes", "memories", ["agent_id", "created_at"], sqlite_where=is_vote, postgresql_where=is_vote
    )
