"""Costs by purpose, and an index of the deliveries that wait for a decision.

What was stored before has an empty purpose. The purpose is part of the key, so the rows are copied.
"""

import sqlalchemy as sa
from alembic import op

from bot.store.sql.migrations.tables import ID, columns, create_index, create_keyed_table

revision = "0004"
down_revision = "0003"

KEYS = ("day", "room_id", "person_id", "model", "purpose")
SUMS = ("calls", "tokens_in", "tokens_cached", "tokens_out", "cost", "unpriced", "estimated", "failed")


def upgrade() -> None:
    """Copy the sums to a table with the longer key, and create the index."""
    op.execute("CREATE TABLE spending_0003 AS SELECT * FROM spending")
    op.drop_table("spending")  # first, so that the names of its constraints are free
    create_keyed_table(
        "spending",
        KEYS,
        *columns(sa.Text, "day"),
        *columns(ID, "room_id", "person_id"),
        *columns(sa.Text, "model", "purpose"),
        *columns(sa.BigInteger, *SUMS),
    )
    copied = ", ".join(("agent_id", *KEYS[:-1], *SUMS))
    op.execute(f"INSERT INTO spending ({copied}, purpose) SELECT {copied}, '' FROM spending_0003")
    op.drop_table("spending_0003")
    undecided = "state = 'unknown' OR state = 'failed'"
    create_index("ix_deliveries_undecided", "deliveries", "agent_id", "state", "position", where=undecided)
