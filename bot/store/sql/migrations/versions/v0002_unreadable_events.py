"""The table of events that could not be read."""

import sqlalchemy as sa

from bot.store.sql.migrations.tables import columns, create_ordered_table

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create it."""
    create_ordered_table(
        "unreadable_events",
        ("platform", "account", "event_id"),
        *columns(sa.Text, "platform", "account", "event_id"),
        *columns(sa.BigInteger, "received_at"),
        *columns(sa.Text, "cause", "raw"),
    )
