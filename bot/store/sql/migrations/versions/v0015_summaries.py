"""Summaries of rooms, and votes about replies."""

import sqlalchemy as sa
from alembic import op

from bot.store.sql.migrations.tables import ID, columns, create_index, create_keyed_table

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the table, and the column with its index."""
    create_keyed_table(
        "summaries",
        ("room_id",),
        *columns(ID, "room_id"),
        *columns(sa.Text, "text", "model", "author_ids"),
        *columns(ID, "first_id", "last_id", nullable=True),
        *columns(sa.BigInteger, "first_position", "last_position", "revision"),
        *columns(sa.BigInteger, "first_at", "at", nullable=True),
    )
    op.add_column("memories", sa.Column("vote", sa.BigInteger, nullable=False, server_default="0"))
    create_index("ix_memories_votes", "memories", "agent_id", "created_at", where="vote <> 0")
