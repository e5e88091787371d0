"""The table of events that could not be read."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create it; what the schema is now plays no part."""
    position = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "unreadable_events",
        sa.Column("position", position, sa.Identity(), nullable=False),
        sa.Column("agent_id", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("platform", "account", "event_id")),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("cause", "raw")),
        sa.PrimaryKeyConstraint("position", name="pk_unreadable_events"),
        sa.UniqueConstraint(
            "agent_id",
            "platform",
            "account",
            "event_id",
            name="uq_unreadable_events_agent_id_platform_account_event_id",
        ),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_unreadable_events_agent_id", ondelete="CASCADE"),
    )
    op.create_index("ix_unreadable_events_all", "unreadable_events", ["agent_id", "position"])
