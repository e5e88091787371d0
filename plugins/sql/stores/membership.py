"""Membership updates and room migration.

A migration keeps receipts in the old room: the new one may number its messages from 1 again.
"""

from datetime import datetime
from operator import attrgetter
from uuid import UUID

from sqlalchemy import Connection, Table, delete, func, literal_column, select, update

from bot import Entity, Room, World
from bot.platform import Delivery, DeliveryState
from bot.store import MEMBERSHIP_EVENT_TTL, MembershipChange, MembershipUpdate
from plugins.sql.core.inserts import insert_into
from plugins.sql.core.row_cache import invalidate, row_cache_of
from plugins.sql.core.schema import (
    cache,
    components,
    deliveries,
    embeddings,
    logs,
    memories,
    participants,
    tasks,
    words,
)
from plugins.sql.core.statements import ListStatement, Statement, equals, matches, typed_parameter
from plugins.sql.core.values import microseconds_of, storable_text
from plugins.sql.stores.cache_logs_costs import CACHE_NAMES, DELETE_EXPIRED
from plugins.sql.stores.deliveries import find_deliveries, list_deliveries
from plugins.sql.stores.entities import find_entities, put_entities
from plugins.sql.stores.search import AUDIENCE
from plugins.sql.stores.worlds import (
    FIND_ROOMS,
    ROOM,
    UPSERT_LISTED_ROOM,
    find_room,
    find_world,
    put_rooms,
    put_worlds,
    room_values,
    rooms_of_world,
)

INSERT_EVENT_KEY = Statement(lambda insert: insert_into(cache, CACHE_NAMES)(insert).on_conflict_do_nothing())
REMOVE_MEMBERS = ListStatement(
    lambda ids: delete(participants).where(
        matches(participants, "agent_id", "room_id"),
        participants.c.attendance == literal_column("'DEFAULT'"),  # keep rows that hold a decision about the room
        participants.c.entity_id.in_(ids),
    )
)


def apply_membership(
    agent: int, membership: MembershipUpdate, now: datetime, connection: Connection
) -> MembershipChange:
    """Store a membership update, unless its event was stored before."""
    if membership.event_key and not _is_new_event(connection, agent, membership.event_key, now):
        return MembershipChange(is_new=False)
    previous_world = find_world(agent, membership.world.id, connection)
    put_worlds(connection, agent, [membership.world])
    new_rooms = _upsert_listed_rooms(connection, agent, membership.rooms)
    people = sorted(membership.entities, key=attrgetter("id"))  # one order, so that transactions cannot deadlock
    existing = find_entities(connection, agent, {entity_id.id for entity_id in people})
    stored = put_entities(connection, agent, people)
    if membership.is_leaving:
        _remove_members(connection, agent, membership, people)
    return MembershipChange(
        previous_world=previous_world,
        new_room_ids=new_rooms,
        new_entity_ids=frozenset(stored.keys() - existing.keys()),
        changed_entity_ids=frozenset(
            entity_id for entity_id, entity in stored.items() if existing.get(entity_id) != entity
        ),
    )


def _is_new_event(connection: Connection, agent: int, key: str, now: datetime) -> bool:
    DELETE_EXPIRED.run(connection, agent, microseconds_of(now))
    return bool(
        INSERT_EVENT_KEY.run(connection, agent, storable_text(key), "true", microseconds_of(now + MEMBERSHIP_EVENT_TTL))
    )


def _upsert_listed_rooms(connection: Connection, agent: int, listed: tuple[Room, ...]) -> frozenset[UUID]:
    ids = [room.id.bytes for room in listed]
    existing = {room.id: room for room in ROOM.read_all(FIND_ROOMS.rows(connection, agent, ids=ids))}
    UPSERT_LISTED_ROOM.run_many(
        connection, [room_values(agent, room) for room in listed if existing.get(room.id) != room]
    )
    for room in listed:
        row_cache_of(connection).rooms.pop((agent, room.id), None)
    return frozenset(room.id for room in listed) - existing.keys()


def _remove_members(connection: Connection, agent: int, membership: MembershipUpdate, people: list[Entity]) -> None:
    for room_id in rooms_of_world(connection, agent, membership.world.id):
        REMOVE_MEMBERS.count(connection, agent, room_id.bytes, ids=[entity.id.bytes for entity in people])
        row_cache_of(connection).latest_speakers.pop((agent, room_id), None)


TARGET_PARTICIPANTS, TARGET_DELIVERIES = participants.alias("there"), deliveries.alias("placed")
TARGET_COMPONENTS = components.alias("kept")

MOVE_MEMORIES = Statement(
    lambda _: (
        update(memories)
        .where(matches(memories, "agent_id", "room_id"))
        .values(
            room_id=typed_parameter(memories.c.room_id, "new"), world_id=typed_parameter(memories.c.world_id, "world")
        )
    )
)
MOVE_PARTICIPANTS = Statement(
    lambda _: (
        update(participants)
        .where(
            matches(participants, "agent_id"),
            equals(participants.c.room_id, "old"),
            participants.c.entity_id.not_in(
                select(TARGET_PARTICIPANTS.c.entity_id).where(
                    matches(TARGET_PARTICIPANTS, "agent_id"), equals(TARGET_PARTICIPANTS.c.room_id, "new")
                )
            ),
        )
        .values(room_id=typed_parameter(participants.c.room_id, "new"))
    )
)
DELETE_OLD_PARTICIPANTS = Statement(lambda _: delete(participants).where(matches(participants, "agent_id", "room_id")))
RETARGET_DELIVERY = Statement(
    lambda _: (
        update(deliveries)
        .where(matches(deliveries, "agent_id", "id"))
        .values(
            room_id=typed_parameter(deliveries.c.room_id, "new"),
            account=typed_parameter(deliveries.c.account, "account"),
            target=typed_parameter(deliveries.c.target, "target"),
            seq=select(func.coalesce(func.max(TARGET_DELIVERIES.c.seq), 0) + 1)
            .where(matches(TARGET_DELIVERIES, "agent_id"), equals(TARGET_DELIVERIES.c.room_id, "new"))
            .scalar_subquery(),
        )
    )
)


MOVE_WORLD_COMPONENTS = Statement(
    lambda _: (
        update(components)
        .where(
            matches(components, "agent_id", "world_id"),
            ~select(TARGET_COMPONENTS.c.id)
            .where(
                TARGET_COMPONENTS.c.agent_id == components.c.agent_id,
                TARGET_COMPONENTS.c.entity_id == components.c.entity_id,
                TARGET_COMPONENTS.c.type == components.c.type,
                TARGET_COMPONENTS.c.source_entity_id == components.c.source_entity_id,
                equals(TARGET_COMPONENTS.c.world_id, "new"),
            )
            .exists(),
        )
        .values(world_id=typed_parameter(components.c.world_id, "new"))
    )
)


def _update_audience(table: Table, place: str) -> Statement:
    """Return a statement that sets the audience of rows about the memories of a room or world to the memories' own."""
    audience = select(AUDIENCE).where(memories.c.position == table.c.memory).scalar_subquery()
    in_place = select(memories.c.position).where(matches(memories, "agent_id", place))
    return Statement(lambda _: update(table).where(table.c.memory.in_(in_place)).values(audience=audience))


def _move_rows(table: Table) -> Statement:
    return Statement(
        lambda _: (
            update(table)
            .where(matches(table, "agent_id", "room_id"))
            .values(room_id=typed_parameter(table.c.room_id, "new"))
        )
    )


def _move_world_rows(table: Table) -> Statement:
    return Statement(
        lambda _: (
            update(table)
            .where(matches(table, "agent_id", "world_id"))
            .values(world_id=typed_parameter(table.c.world_id, "new"))
        )
    )


MOVE_VECTORS, MOVE_WORDS = _update_audience(embeddings, "room_id"), _update_audience(words, "room_id")
MOVE_WORLD_VECTORS, MOVE_WORLD_WORDS = _update_audience(embeddings, "world_id"), _update_audience(words, "world_id")
MOVE_COMPONENTS, MOVE_TASKS, MOVE_LOGS = _move_rows(components), _move_rows(tasks), _move_rows(logs)
MOVE_WORLD_MEMORIES, MOVE_WORLD_TASKS = _move_world_rows(memories), _move_world_rows(tasks)


def migrate_room(agent: int, room_id: UUID, world: World, room: Room, connection: Connection) -> list[Delivery]:
    """Move a room's data to another room, and that of its world if the world has no other room.

    Returns the deliveries that are still to be sent.
    """
    old_room = find_room(agent, room_id, connection)
    old_world = find_world(agent, old_room.world_id, connection) if old_room else None
    if old_world is not None:
        stored = find_world(agent, world.id, connection)  # what was decided there since counts more
        world = (world.merge(stored) if stored else world).merge(old_world.migrate_room(room_id, room.id))
    put_worlds(connection, agent, [world])
    put_rooms(connection, agent, [room])
    old, new, new_world = room_id.bytes, room.id.bytes, room.world_id.bytes
    MOVE_MEMORIES.run(connection, new, new_world, agent, old)
    MOVE_VECTORS.run(connection, agent, new)
    MOVE_WORDS.run(connection, agent, new)
    MOVE_PARTICIPANTS.run(connection, new, agent, old)
    DELETE_OLD_PARTICIPANTS.run(connection, agent, old)
    for statement in (MOVE_COMPONENTS, MOVE_TASKS, MOVE_LOGS):
        statement.run(connection, new, agent, old)
    if old_world is not None and rooms_of_world(connection, agent, old_world.id) == [room_id]:
        _move_world(connection, agent, old_world.id.bytes, new_world)
    invalidate(connection)  # participants and components were changed without the cache
    pending_ids = [
        delivery.id
        for delivery in list_deliveries(agent, True, None, None, connection)
        if delivery.room_id == room_id and delivery.state is DeliveryState.PENDING
    ]
    for delivery_id in pending_ids:
        address = (new, storable_text(room.account), storable_text(room.external_id))
        RETARGET_DELIVERY.run(connection, *address, agent, delivery_id)
    return find_deliveries(connection, agent, pending_ids)


def _move_world(connection: Connection, agent: int, old: bytes, new: bytes) -> None:
    """Move what belongs to a world and to none of its rooms: what is noted of its people, documents and tasks."""
    for statement in (MOVE_WORLD_COMPONENTS, MOVE_WORLD_MEMORIES, MOVE_WORLD_TASKS):
        statement.run(connection, new, agent, old)
    MOVE_WORLD_VECTORS.run(connection, agent, new)
    MOVE_WORLD_WORDS.run(connection, agent, new)
