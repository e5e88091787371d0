"""An index for lists of receipts by time, and for counts of their outcomes and rules."""

from bot.store.sql.migrations.tables import create_index

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create it."""
    listed = ("outcome", "rule", "platform", "author_id", "room_id")
    create_index("ix_receipts_time", "receipts", "agent_id", "received_at", "position", *listed)
