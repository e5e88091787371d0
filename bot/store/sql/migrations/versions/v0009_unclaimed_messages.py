"""An index of the messages that wait until the owner of their room claims them."""

from bot.store.sql.migrations.tables import create_index

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the index. Earlier versions do not use it."""
    is_unclaimed = "outcome = 'received' AND is_open = 1"
    create_index("ix_receipts_unclaimed", "receipts", "agent_id", "room_id", where=is_unclaimed)
