"""Membership updates; room migration.

Receipts do not: the new room may count its messages from one again.
"""

from datetime import datetime
from operator import attrgetter
from uuid import UUID

from sqlalchemy import Connection, Table, delete, func, literal_column, or_, select, update
from sqlalchemy.sql.expression import Executable

from bot import Entity, Room, World
from bot.platform import Delivery, DeliveryState
from bot.store import REMEMBERED, Notice, Noticed
from plugins.sql.core.row_cache import forget, known_to
from plugins.sql.core.schema import (
    cache,
    components,
    deliveries,
    embeddings,
    logs,
    memories,
    participants,
    rooms,
    tasks,
    words,
)
from plugins.sql.core.statements import Insert, Listing, Statement, insert_into, same, value
from plugins.sql.core.values import moment, storable_text
from plugins.sql.stores.cache_logs_costs import CACHE_NAMES, SWEEP
from plugins.sql.stores.deliveries import find_deliveries, list_deliveries
from plugins.sql.stores.entities import find_entities, put_entities
from plugins.sql.stores.search import AUDIENCE
from plugins.sql.stores.worlds import (
    FIND_ROOMS,
    ROOM_NAMES,
    find_room,
    find_world,
    put_rooms,
    put_worlds,
    room_of,
    room_values,
    rooms_of_world,
)


def _list_room(insert: Insert) -> Executable:
    """A new room counts as the least active one; a known one stays where it stands."""
    statement = insert_into(rooms, ROOM_NAMES, active=literal_column("0"))(insert)
    new = statement.excluded
    values = {name: new[name] for name in ROOM_NAMES if name not in ("agent_id", "id")}
    values["name"] = func.coalesce(func.nullif(new.name, ""), rooms.c.name)
    is_other = or_(*(rooms.c[name].is_distinct_from(value) for name, value in values.items()))
    return statement.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=["agent_id", "id"], set_=values, where=is_other
    )


LIST_ROOM = Statement(_list_room, *ROOM_NAMES)
FIRST = Statement(
    lambda insert: insert_into(cache, CACHE_NAMES)(insert).on_conflict_do_nothing(), *CACHE_NAMES
)
LEAVE_ROOMS = Listing(
    lambda ids: delete(participants).where(
        same(participants.c.agent_id, "agent"),
        same(participants.c.room_id, "room"),
        participants.c.attendance == literal_column("'DEFAULT'"),  # what was decided about a room stays
        participants.c.entity_id.in_(ids),
    ),
    "agent",
    "room",
)


def notice(agent: int, told: Notice, at: datetime, connection: Connection) -> Noticed:
    """Keep what is told, unless its event is known."""
    if told.key and not _is_first(connection, agent, told.key, at):
        return Noticed(is_new=False)
    before = find_world(agent, told.world.id, connection)
    put_worlds(connection, agent, [told.world])
    new_rooms = _list_rooms(connection, agent, told.rooms)
    people = sorted(told.people, key=attrgetter("id"))  # in one order, so that two never wait for each other
    known = find_entities(connection, agent, {one.id for one in people})
    kept = put_entities(connection, agent, people)
    if told.is_leaving:
        _leave(connection, agent, told, people)
    return Noticed(
        before=before,
        rooms=new_rooms,
        new_people=frozenset(kept.keys() - known.keys()),
        people=frozenset(one for one, person in kept.items() if known.get(one) != person),
    )


def _is_first(connection: Connection, agent: int, key: str, at: datetime) -> bool:
    SWEEP.run(connection, agent, moment(at))
    return bool(FIRST.run(connection, agent, storable_text(key), "true", moment(at + REMEMBERED)))


def _list_rooms(connection: Connection, agent: int, told: tuple[Room, ...]) -> frozenset[UUID]:
    ids = [one.id.bytes for one in told]
    known = {room.id: room for room in map(room_of, FIND_ROOMS.rows(connection, agent, ids=ids))}
    LIST_ROOM.run_many(connection, [room_values(agent, one) for one in told if known.get(one.id) != one])
    for one in told:
        known_to(connection).rooms.drop((agent, one.id))
    return frozenset(one.id for one in told) - known.keys()


def _leave(connection: Connection, agent: int, told: Notice, people: list[Entity]) -> None:
    for room_id in rooms_of_world(connection, agent, told.world.id):
        LEAVE_ROOMS.count(connection, agent, room_id.bytes, ids=[one.id.bytes for one in people])
        known_to(connection).latest_speakers.drop((agent, room_id))


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
LEAVE_ROOM = Statement(
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
    LEAVE_ROOM.run(connection, agent, old)
    for statement in (MOVE_COMPONENTS, MOVE_TASKS, MOVE_LOGS):
        statement.run(connection, new, agent, old)
    forget(connection)  # who takes part, and what was decided, was changed past what is known
    waiting = [
        part.id
        for part in list_deliveries(agent, True, None, None, connection)
        if part.room_id == room_id and part.state is DeliveryState.PENDING
    ]
    for part_id in waiting:
        place = (new, storable_text(room.account), storable_text(room.external_id))
        RETARGET.run(connection, *place, agent, part_id)
    return find_deliveries(connection, agent, waiting)
