"""When an outgoing part is tried again."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add the column."""
    op.add_column("deliveries", sa.Column("next_attempt_at", sa.BigInteger, nullable=True))
