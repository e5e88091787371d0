"""An index for lists of receipts by time, and for counts of their outcomes and rules."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create it."""
    columns = ["agent_id", "received_at", "position", "outcome", "rule", "platform", "author_id", "room_id"]
    op.create_index("ix_receipts_time", "receipts", columns)
