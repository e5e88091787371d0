"""What a person controls: replies that wait for a decision, and rooms that a person has taken over."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the tables; what the schema is now plays no part."""
    op.create_table(
        "take_overs",
        sa.Column("agent_id", sa.Integer, nullable=False),
        *(sa.Column(name, sa.LargeBinary(16), nullable=False) for name in ("room_id", "person_id", "by_id")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("name", "origin", "reason")),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=True),
        sa.PrimaryKeyConstraint("agent_id", "room_id", "person_id", name="pk_take_overs"),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_take_overs_agent_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
