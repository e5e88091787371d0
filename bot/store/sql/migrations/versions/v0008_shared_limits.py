"""What workers hold of the limits of a day, and the buckets of messages that all processes share."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

NUMBERS = ("level", "capacity", "filled_at", "wanted", "taken")
FREQUENTLY_UPDATED = {
    "fillfactor": 50,
    "autovacuum_vacuum_threshold": 500,
    "autovacuum_vacuum_scale_factor": 0.01,
    "autovacuum_vacuum_cost_delay": 0,
}


def upgrade() -> None:
    """Create the tables; what the schema is now plays no part. Earlier versions do not use them."""
    _create(
        "cost_holds",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("day", "grouping")),
        *(sa.Column(name, sa.LargeBinary(16), nullable=False) for name in ("room_id", "person_id")),
        sa.Column("worker", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("cost", "tokens")),
        sa.PrimaryKeyConstraint("agent_id", "day", "grouping", "room_id", "person_id", "worker", name="pk_cost_holds"),
        sa.ForeignKeyConstraint(["worker"], ["workers.position"], name="fk_cost_holds_worker", ondelete="CASCADE"),
    )
    op.create_index("ix_cost_holds_worker", "cost_holds", ["worker"])
    _create(
        "message_buckets",
        sa.Column("setting", sa.Text, nullable=False),
        sa.Column("key", sa.LargeBinary(16), nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in NUMBERS),
        sa.PrimaryKeyConstraint("agent_id", "setting", "key", name="pk_message_buckets"),
    )


def _create(table: str, *items: sa.schema.SchemaItem) -> None:
    agent_key = sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=f"fk_{table}_agent_id", ondelete="CASCADE")
    agent = sa.Column("agent_id", sa.Integer, nullable=False)
    op.create_table(table, agent, *items, agent_key, sqlite_with_rowid=False, postgresql_with=FREQUENTLY_UPDATED)
