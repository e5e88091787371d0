"""Sums of costs in fewer rows, and an index of the parked messages."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

KEYS = ("agent_id", "grouping", "day", "room_id", "person_id", "model", "purpose")
SUMS = ("calls", "tokens_in", "tokens_cached", "tokens_out", "cost", "unpriced", "estimated", "failed")
GROUPINGS = {"work": ("model", "purpose"), "room": ("room_id",), "person": ("person_id",)}
NO_ID = {"sqlite": f"x'{'00' * 16}'", "postgresql": f"'\\x{'00' * 16}'::bytea"}


def upgrade() -> None:
    """Create and fill the table, and create the index; what the schema is now plays no part."""
    op.create_table(
        "spending_sums",
        sa.Column("agent_id", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("grouping", "day")),
        *(sa.Column(name, sa.LargeBinary(16), nullable=False) for name in ("room_id", "person_id")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("model", "purpose")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in SUMS),
        sa.PrimaryKeyConstraint(*KEYS, name="pk_spending_sums"),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_spending_sums_agent_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    no_id = NO_ID[op.get_bind().dialect.name]
    for grouping, grouped in GROUPINGS.items():
        unused = {"room_id": no_id, "person_id": no_id, "model": "''", "purpose": "''"}
        keys = ", ".join(name if name in grouped else value for name, value in unused.items())
        sums = ", ".join(f"sum({name})" for name in SUMS)
        op.execute(
            f"INSERT INTO spending_sums ({', '.join((*KEYS, *SUMS))}) "
            f"SELECT agent_id, '{grouping}', day, {keys}, {sums} "
            f"FROM spending GROUP BY agent_id, day, {', '.join(grouped)}"
        )
    is_parked = sa.text("outcome = 'parked'")
    op.create_index(
        "ix_receipts_parked",
        "receipts",
        ["agent_id", "outcome", "received_at"],
        sqlite_where=is_parked,
        postgresql_where=is_parked,
    )
