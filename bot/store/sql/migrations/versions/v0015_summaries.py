"""Summaries of rooms, and votes about replies."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the tables and columns; what the schema is now plays no part."""
    _add_summaries()
    _add_votes()


def _add_summaries() -> None:
    op.create_table(
        "summaries",
        sa.Column("agent_id", sa.Integer, nullable=False),
        sa.Column("room_id", sa.LargeBinary(16), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("text", "model", "author_ids")),
        *(sa.Column(name, sa.LargeBinary(16), nullable=True) for name in ("first_id", "last_id")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("first_position", "last_position", "revision")),
        *(sa.Column(name, sa.BigInteger, nullable=True) for name in ("first_at", "at")),
        sa.PrimaryKeyConstraint("agent_id", "room_id", name="pk_summaries"),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_summaries_agent_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )


def _add_votes() -> None:
    op.add_column("memories", sa.Column("vote", sa.BigInteger, nullable=False, server_default="0"))
    is_vote = sa.text("vote <> 0")
    op.create_index(
        "ix_memories_votes", "memories", ["agent_id", "created_at"], sqlite_where=is_vote, postgresql_where=is_vote
    )
