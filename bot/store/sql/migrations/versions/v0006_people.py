"""Activity of people, and indexes of facts and of tasks by their next run.

What people wrote before is counted from the receipts that are still stored.
"""

import sqlalchemy as sa
from alembic import op

from bot.store.sql.migrations.tables import ID, columns, create_index, create_keyed_table

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create and fill the table, and create the indexes."""
    figures = columns(sa.BigInteger, "first_at", "last_at", "messages", "answered")
    create_keyed_table("activity", ("entity_id",), *columns(ID, "entity_id"), *figures)
    create_index("ix_activity_last", "activity", "agent_id", "last_at", "entity_id")
    op.execute(
        "INSERT INTO activity (agent_id, entity_id, first_at, last_at, messages, answered) "
        "SELECT agent_id, author_id, min(received_at), max(received_at), count(*), "
        "sum(CASE WHEN outcome = 'answered' THEN 1 ELSE 0 END) "
        "FROM receipts WHERE rule <> 'forgotten' GROUP BY agent_id, author_id"
    )
    create_index("ix_memories_facts", "memories", "agent_id", "entity_id", "position", where="kind = 'FACT'")
    create_index("ix_tasks_next", "tasks", "agent_id", "next_run", "id")
