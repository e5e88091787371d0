"""A room that goes on as another one, in SQL: what names the old one names the new one from then on.

Receipts do not: the new room may count its messages from one again.
"""

from uuid import UUID

from sqlalchemy import Connection, Table, delete, func, select, update

from bot import Delivery, DeliveryState, Room, World
from plugins.sql.deliveries import find_deliveries, list_deliveries
from plugins.sql.known import forget
from plugins.sql.schema import (
    components,
    deliveries,
    embeddings,
    logs,
    memories,
    participants,
    tasks,
    words,
)
from plugins.sql.statements import Statement, same, value
from plugins.sql.values import words as clean
from plugins.sql.vectors import AUDIENCE
from plugins.sql.worlds import find_room, find_world, put_rooms, put_worlds

THERE, PLACED = participants.alias("there"), deliveries.alias("placed")

MOVE_MEMORIES = Statement(
    lambda _: (
        update(memories)
        .where(same(memories.c.agent_id, "agent"), same(memories.c.room_id, "old"))
        .values(room_id=value(memories.c.room_id, "new"), world_id=value(memories.c.world_id, "world"))
    ),
    "new",
    "world",
    "agent",
    "old",
)
MOVE_PEOPLE = Statement(
    lambda _: (
        update(participants)
        .where(
            same(participants.c.agent_id, "agent"),
            same(participants.c.room_id, "old"),
            participants.c.entity_id.not_in(
                select(THERE.c.entity_id).where(same(THERE.c.agent_id, "agent"), same(THERE.c.room_id, "new"))
            ),
        )
        .values(room_id=value(participants.c.room_id, "new"))
    ),
    "new",
    "agent",
    "old",
)
LEAVE = Statement(
    lambda _: delete(participants).where(
        same(participants.c.agent_id, "agent"), same(participants.c.room_id, "old")
    ),
    "agent",
    "old",
)
RETARGET = Statement(
    lambda _: (
        update(deliveries)
        .where(same(deliveries.c.agent_id, "agent"), same(deliveries.c.id, "id"))
        .values(
            room_id=value(deliveries.c.room_id, "new"),
            account=value(deliveries.c.account, "account"),
            target=value(deliveries.c.target, "target"),
            seq=select(func.coalesce(func.max(PLACED.c.seq), 0) + 1)
            .where(same(PLACED.c.agent_id, "agent"), same(PLACED.c.room_id, "new"))
            .scalar_subquery(),
        )
    ),
    "new",
    "account",
    "target",
    "agent",
    "id",
)


def _readdressing(table: Table) -> Statement:
    """Have what is kept beside the memories of a room surface where they do."""
    audience = select(AUDIENCE).where(memories.c.position == table.c.memory).scalar_subquery()
    moved = select(memories.c.position).where(
        same(memories.c.agent_id, "agent"), same(memories.c.room_id, "new")
    )
    return Statement(
        lambda _: update(table).where(table.c.memory.in_(moved)).values(audience=audience), "agent", "new"
    )


def _moving(table: Table) -> Statement:
    return Statement(
        lambda _: (
            update(table)
            .where(same(table.c.agent_id, "agent"), same(table.c.room_id, "old"))
            .values(room_id=value(table.c.room_id, "new"))
        ),
        "new",
        "agent",
        "old",
    )


MOVE_VECTORS, MOVE_WORDS = _readdressing(embeddings), _readdressing(words)
MOVE_COMPONENTS, MOVE_TASKS, MOVE_LOGS = _moving(components), _moving(tasks), _moving(logs)


def move(agent: int, room_id: UUID, world: World, room: Room, connection: Connection) -> list[Delivery]:
    """Have a room go on as another one; gives the parts that are still to leave."""
    before = find_room(agent, room_id, connection)
    left = find_world(agent, before.world_id, connection) if before else None
    put_worlds(connection, agent, [world.added_to(left) if left else world])
    put_rooms(connection, agent, [room])
    old, new, new_world = room_id.bytes, room.id.bytes, room.world_id.bytes
    MOVE_MEMORIES.run(connection, new, new_world, agent, old)
    MOVE_VECTORS.run(connection, agent, new)
    MOVE_WORDS.run(connection, agent, new)
    MOVE_PEOPLE.run(connection, new, agent, old)
    LEAVE.run(connection, agent, old)
    for statement in (MOVE_COMPONENTS, MOVE_TASKS, MOVE_LOGS):
        statement.run(connection, new, agent, old)
    forget(connection)  # who takes part, and what was decided, was changed past what is known
    waiting = [
        part.id
        for part in list_deliveries(agent, True, None, None, connection)
        if part.room_id == room_id and part.state is DeliveryState.PENDING
    ]
    for part_id in waiting:
        place = (new, clean(room.account), clean(room.external_id))
        RETARGET.run(connection, *place, agent, part_id)
    return find_deliveries(connection, agent, waiting)
