"""An index of the messages that wait until the owner of their room claims them."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

IS_UNCLAIMED = sa.text("outcome = 'received' AND is_open = 1")


def upgrade() -> None:
    """Create the index; what the schema is now plays no part. Earlier versions do not use it."""
    op.create_index(
        "ix_receipts_unclaimed",
        "receipts",
        ["agent_id", "room_id"],
        sqlite_where=IS_UNCLAIMED,
        postgresql_where=IS_UNCLAIMED,
    )
