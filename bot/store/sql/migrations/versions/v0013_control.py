"""What a person controls: replies that wait for a decision, and rooms that a person has taken over."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the tables; what the schema is now plays no part."""
    _add_take_overs()
    _add_proposals()
    op.drop_index("ix_receipts_parked", "receipts")
    is_parked = sa.text("outcome = 'parked'")
    op.create_index(
        "ix_receipts_parked",
        "receipts",
        ["agent_id", "outcome", "received_at", "rule"],
        sqlite_where=is_parked,
        postgresql_where=is_parked,
    )


def _add_take_overs() -> None:
    op.create_table(
        "take_overs",
        sa.Column("agent_id", sa.Integer, nullable=False),
        *(sa.Column(name, sa.LargeBinary(16), nullable=False) for name in ("room_id", "person_id", "by_id")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("name", "origin", "reason")),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=True),
        sa.PrimaryKeyConstraint("agent_id", "room_id", "person_id", name="pk_take_overs"),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_take_overs_agent_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )


def _add_proposals() -> None:
    id_type = sa.LargeBinary(16)
    columns = [
        *_columns(sa.Text, "id"),
        *_columns(id_type, "room_id", "turn_id", "memory_id"),
        *_columns(sa.Text, "content", "proposed"),
        *_columns(sa.BigInteger, "created_at", "expires_at"),
        *_columns(sa.Text, "reason"),
        *_columns(id_type, "receipt_id", "message_id", "replaces_id", nullable=True),
        *_columns(sa.Text, "reply_to", "metadata", "subject_ids", "author_ids", "notice", "unnotified_ids"),
        *_columns(sa.BigInteger, "revision"),
        *_columns(sa.Text, "state", "decided_by"),
        *_columns(sa.BigInteger, "decided_at", nullable=True),
        *_columns(sa.Text, "editor"),
        *_columns(sa.BigInteger, "edited_until", nullable=True),
        *_columns(sa.Text, "replaced_by"),
    ]
    op.create_table(
        "proposals",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), nullable=False),
        sa.Column("agent_id", sa.Integer, nullable=False),
        *columns,
        sa.PrimaryKeyConstraint("position", name="pk_proposals"),
        sa.UniqueConstraint("agent_id", "id", name="uq_proposals_agent_id_id"),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_proposals_agent_id", ondelete="CASCADE"),
    )
    op.create_index("ix_proposals_all", "proposals", ["agent_id", "position"])
    op.create_index("ix_proposals_turn", "proposals", ["agent_id", "turn_id"])
    is_waiting = sa.text("state = 'waiting'")
    op.create_index(
        "ix_proposals_waiting",
        "proposals",
        ["agent_id", "state", "position"],
        sqlite_where=is_waiting,
        postgresql_where=is_waiting,
    )


def _columns(type_: Any, *names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, type_, nullable=nullable) for name in names]
