"""What a person controls: replies that wait for a decision, and rooms that a person has taken over."""

import sqlalchemy as sa
from alembic import op

from bot.store.sql.migrations.tables import ID, columns, create_index, create_keyed_table, create_ordered_table

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the tables."""
    create_keyed_table(
        "take_overs",
        ("room_id", "person_id"),
        *columns(ID, "room_id", "person_id", "by_id"),
        *columns(sa.Text, "name", "origin", "reason"),
        *columns(sa.BigInteger, "since"),
        *columns(sa.BigInteger, "ended_at", nullable=True),
    )
    create_ordered_table(
        "proposals",
        ("id",),
        *columns(sa.Text, "id"),
        *columns(ID, "room_id", "turn_id", "memory_id"),
        *columns(sa.Text, "content", "proposed"),
        *columns(sa.BigInteger, "created_at", "expires_at"),
        *columns(sa.Text, "reason"),
        *columns(ID, "receipt_id", "message_id", "replaces_id", nullable=True),
        *columns(sa.Text, "reply_to", "metadata", "subject_ids", "author_ids", "notice", "unnotified_ids"),
        *columns(sa.BigInteger, "revision"),
        *columns(sa.Text, "state", "decided_by"),
        *columns(sa.BigInteger, "decided_at", nullable=True),
        *columns(sa.Text, "editor"),
        *columns(sa.BigInteger, "edited_until", nullable=True),
        *columns(sa.Text, "replaced_by"),
    )
    create_index("ix_proposals_turn", "proposals", "agent_id", "turn_id")
    create_index("ix_proposals_waiting", "proposals", "agent_id", "state", "position", where="state = 'waiting'")
    op.drop_index("ix_receipts_parked", "receipts")
    parked = ("agent_id", "outcome", "received_at", "rule")
    create_index("ix_receipts_parked", "receipts", *parked, where="outcome = 'parked'")
