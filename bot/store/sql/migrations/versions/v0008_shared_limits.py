"""What workers hold of the limits of a day, and the buckets of messages that all processes share."""

import sqlalchemy as sa

from bot.store.sql.migrations.tables import FREQUENTLY_UPDATED, ID, columns, create_index, create_keyed_table

revision = "0008"
down_revision = "0007"

HOLD_KEYS = ("day", "grouping", "room_id", "person_id", "worker")


def upgrade() -> None:
    """Create the tables. Earlier versions do not use them."""
    create_keyed_table(
        "cost_holds",
        HOLD_KEYS,
        *columns(sa.Text, "day", "grouping"),
        *columns(ID, "room_id", "person_id"),
        *columns(sa.BigInteger, "worker", "cost", "tokens"),
        sa.ForeignKeyConstraint(["worker"], ["workers.position"], name="fk_cost_holds_worker", ondelete="CASCADE"),
        postgresql_with=FREQUENTLY_UPDATED,
    )
    create_index("ix_cost_holds_worker", "cost_holds", "worker")
    create_keyed_table(
        "message_buckets",
        ("setting", "key"),
        *columns(sa.Text, "setting"),
        *columns(ID, "key"),
        *columns(sa.BigInteger, "level", "capacity", "filled_at", "wanted", "taken"),
        postgresql_with=FREQUENTLY_UPDATED,
    )
