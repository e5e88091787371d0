"""What is needed to replay a turn, and actions that wait for approval."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the tables and columns."""
    op.add_column("proposals", sa.Column("action", sa.Text, nullable=False, server_default=""))
    op.add_column("proposals", sa.Column("decided_by_id", sa.LargeBinary(16), nullable=True))
