"""Order the messages of a room, and those of a turn, by arrival instead of by time.

The order of arrival is the order of insertion, which every row has had as its `position` from the beginning.
"""

from alembic import op

from bot.store.sql.migrations.tables import create_index

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Replace the two indexes."""
    op.drop_index("ix_memories_room", "memories")
    create_index("ix_memories_room", "memories", "agent_id", "room_id", "kind", "position")
    op.drop_index("ix_memories_turn", "memories")
    create_index("ix_memories_turn", "memories", "agent_id", "turn_id", "position", where="turn_id IS NOT NULL")
