"""Order the messages of a room, and those of a turn, by arrival instead of by time.

The order of arrival is the order of insertion, which every row has had as its `position` from the beginning.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Replace the two indexes."""
    of_turns = sa.text("turn_id IS NOT NULL")
    op.drop_index("ix_memories_room", "memories")
    op.create_index("ix_memories_room", "memories", ["agent_id", "room_id", "kind", "position"])
    op.drop_index("ix_memories_turn", "memories")
    op.create_index(
        "ix_memories_turn",
        "memories",
        ["agent_id", "turn_id", "position"],
        sqlite_where=of_turns,
        postgresql_where=of_turns,
    )
