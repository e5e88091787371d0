"""Costs by purpose, and an index of the deliveries that wait for a decision.

What was stored before has an empty purpose. The purpose is part of the key, so the rows are copied.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

KEYS = ("agent_id", "day", "room_id", "person_id", "model", "purpose")
SUMS = ("calls", "tokens_in", "tokens_cached", "tokens_out", "cost", "unpriced", "estimated", "failed")


def upgrade() -> None:
    """Copy the sums to a table with the longer key, and create the index; what the schema is now plays no part."""
    op.execute("CREATE TABLE spending_0003 AS SELECT * FROM spending")
    op.drop_table("spending")  # first, so that the names of its constraints are free
    op.create_table(
        "spending",
        sa.Column("agent_id", sa.Integer, nullable=False),
        sa.Column("day", sa.Text, nullable=False),
        *(sa.Column(name, sa.LargeBinary(16), nullable=False) for name in ("room_id", "person_id")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("model", "purpose")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in SUMS),
        sa.PrimaryKeyConstraint(*KEYS, name="pk_spending"),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_spending_agent_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    columns = ", ".join((*KEYS[:-1], *SUMS))
    op.execute(f"INSERT INTO spending ({columns}, purpose) SELECT {columns}, '' FROM spending_0003")
    op.drop_table("spending_0003")
    undecided = sa.text("state = 'unknown' OR state = 'failed'")
    op.create_index(
        "ix_deliveries_undecided",
        "deliveries",
        ["agent_id", "state", "position"],
        sqlite_where=undecided,
        postgresql_where=undecided,
    )
