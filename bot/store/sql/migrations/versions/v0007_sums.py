"""Sums of costs in fewer rows, and an index of the parked messages."""

import sqlalchemy as sa
from alembic import op

from bot.store.sql.migrations.tables import ID, columns, create_index, create_keyed_table

revision = "0007"
down_revision = "0006"

KEYS = ("grouping", "day", "room_id", "person_id", "model", "purpose")
SUMS = ("calls", "tokens_in", "tokens_cached", "tokens_out", "cost", "unpriced", "estimated", "failed")
GROUPINGS = {"work": ("model", "purpose"), "room": ("room_id",), "person": ("person_id",)}
NO_ID = {"sqlite": f"x'{'00' * 16}'", "postgresql": f"'\\x{'00' * 16}'::bytea"}


def upgrade() -> None:
    """Create and fill the table, and create the index."""
    create_keyed_table(
        "spending_sums",
        KEYS,
        *columns(sa.Text, "grouping", "day"),
        *columns(ID, "room_id", "person_id"),
        *columns(sa.Text, "model", "purpose"),
        *columns(sa.BigInteger, *SUMS),
    )
    no_id = NO_ID[op.get_bind().dialect.name]
    for grouping, grouped in GROUPINGS.items():
        unused = {"room_id": no_id, "person_id": no_id, "model": "''", "purpose": "''"}
        keys = ", ".join(name if name in grouped else value for name, value in unused.items())
        sums = ", ".join(f"sum({name})" for name in SUMS)
        op.execute(
            f"INSERT INTO spending_sums (agent_id, {', '.join((*KEYS, *SUMS))}) "
            f"SELECT agent_id, '{grouping}', day, {keys}, {sums} "
            f"FROM spending GROUP BY agent_id, day, {', '.join(grouped)}"
        )
    create_index("ix_receipts_parked", "receipts", "agent_id", "outcome", "received_at", where="outcome = 'parked'")
