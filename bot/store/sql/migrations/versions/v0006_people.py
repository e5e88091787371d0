"""Activity of people, and indexes of facts and of tasks by their next run.

What people wrote before is counted from the receipts that are still stored.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create and fill the table, and create the indexes."""
    op.create_table(
        "activity",
        sa.Column("agent_id", sa.Integer, nullable=False),
        sa.Column("entity_id", sa.LargeBinary(16), nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("first_at", "last_at", "messages", "answered")),
        sa.PrimaryKeyConstraint("agent_id", "entity_id", name="pk_activity"),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_activity_agent_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_activity_last", "activity", ["agent_id", "last_at", "entity_id"])
    op.execute(
        "INSERT INTO activity (agent_id, entity_id, first_at, last_at, messages, answered) "
        "SELECT agent_id, author_id, min(received_at), max(received_at), count(*), "
        "sum(CASE WHEN outcome = 'answered' THEN 1 ELSE 0 END) "
        "FROM receipts WHERE rule <> 'forgotten' GROUP BY agent_id, author_id"
    )
    is_fact = sa.text("kind = 'FACT'")
    op.create_index(
        "ix_memories_facts",
        "memories",
        ["agent_id", "entity_id", "position"],
        sqlite_where=is_fact,
        postgresql_where=is_fact,
    )
    op.create_index("ix_tasks_next", "tasks", ["agent_id", "next_run", "id"])
