"""Membership updates and room migration.

A migration keeps receipts in the old room: the new one may number its messages from 1 again.
"""

from datetime import datetime
from operator import attrgetter
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Table, Update, bindparam, delete, func, select, update

from bot.domain.environment import ParticipantState, Room, World
from bot.domain.inbound import MEMBERSHIP_EVENT_TTL, MembershipChange, MembershipUpdate
from bot.domain.ledger import Delivery, DeliveryState
from bot.store.search import audience_mark
from bot.store.sql.core.mapping import matches, parameter, text_literal
from bot.store.sql.core.schema import (
    components,
    deliveries,
    embeddings,
    logs,
    memories,
    participants,
    proposals,
    take_overs,
    tasks,
)
from bot.store.sql.stores.cache_logs_costs import ADD_VALUE, DELETE_EXPIRED
from bot.store.sql.stores.ledger import find_deliveries, list_deliveries
from bot.store.sql.stores.search import AUDIENCE
from bot.store.sql.stores.summaries import DELETE_SUMMARY
from bot.store.sql.stores.worlds import (
    ROOM,
    ROOM_IDS_OF_WORLD,
    UPSERT_LISTED_ROOM,
    find_entities,
    find_room,
    find_rooms,
    find_world,
    put_entities,
    put_rooms,
    put_worlds,
    rooms_of_world,
)

REMOVE_MEMBER = delete(participants).where(
    matches(participants, "entity_id"),
    participants.c.state == text_literal(ParticipantState.DEFAULT),  # keep rows that contain a decision about the room
    participants.c.room_id.in_(ROOM_IDS_OF_WORLD),
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
    if membership.is_leaving and people:
        in_world = {"agent": agent, "world_id_": membership.world.id}
        connection.execute(REMOVE_MEMBER, [{**in_world, "entity_id_": person.id} for person in people])
    return MembershipChange(
        previous_world=previous_world,
        new_room_ids=new_rooms,
        new_entity_ids=frozenset(stored.keys() - existing.keys()),
        changed_entity_ids=frozenset(
            entity_id for entity_id, entity in stored.items() if existing.get(entity_id) != entity
        ),
    )


def _is_new_event(connection: Connection, agent: int, key: str, now: datetime) -> bool:
    connection.execute(DELETE_EXPIRED, {"agent": agent, "now": now})
    row = {"agent_id": agent, "key": key, "value": True, "expires_at": now + MEMBERSHIP_EVENT_TTL}
    return bool(ADD_VALUE.execute(connection, row).rowcount)


def _upsert_listed_rooms(connection: Connection, agent: int, listed: tuple[Room, ...]) -> frozenset[UUID]:
    existing = find_rooms(connection, agent, {room.id for room in listed})
    changed = [ROOM.values(room, agent) for room in listed if existing.get(room.id) != room]
    UPSERT_LISTED_ROOM.execute_all(connection, changed)
    return frozenset(room.id for room in listed) - existing.keys()


TARGET_PARTICIPANTS, TARGET_DELIVERIES = participants.alias("there"), deliveries.alias("placed")
TARGET_COMPONENTS = components.alias("kept")


def _replace_mark(terms: ColumnElement[str], place: str) -> ColumnElement[str]:
    """Return terms with the mark of another room or world: `old_` and `new_` are parameters."""
    return func.replace(terms, bindparam(f"old_{place}_mark"), bindparam(f"new_{place}_mark"))


MOVE_MEMORIES = (
    update(memories)
    .where(matches(memories, "room_id"))
    .values(
        room_id=parameter(memories.c.room_id, "new"),
        world_id=parameter(memories.c.world_id, "new_world"),
        terms=_replace_mark(_replace_mark(memories.c.terms, "room"), "world"),
    )
)
MOVE_PARTICIPANTS = (
    update(participants)
    .where(
        matches(participants, "room_id"),
        participants.c.entity_id.not_in(
            select(TARGET_PARTICIPANTS.c.entity_id).where(
                matches(TARGET_PARTICIPANTS), TARGET_PARTICIPANTS.c.room_id == parameter(participants.c.room_id, "new")
            )
        ),
    )
    .values(room_id=parameter(participants.c.room_id, "new"))
)
DELETE_OLD_PARTICIPANTS = delete(participants).where(matches(participants, "room_id"))
RETARGET_DELIVERY = (
    update(deliveries)
    .where(matches(deliveries, "id"))
    .values(
        room_id=parameter(deliveries.c.room_id, "new"),
        account=parameter(deliveries.c.account, "account"),
        target=parameter(deliveries.c.target, "target"),
        seq=select(func.coalesce(func.max(TARGET_DELIVERIES.c.seq), 0) + 1)
        .where(matches(TARGET_DELIVERIES), TARGET_DELIVERIES.c.room_id == parameter(deliveries.c.room_id, "new"))
        .scalar_subquery(),
    )
)
MOVE_WORLD_COMPONENTS = (
    update(components)
    .where(
        matches(components, "world_id"),
        ~select(TARGET_COMPONENTS.c.id)
        .where(
            *(
                TARGET_COMPONENTS.c[name] == components.c[name]
                for name in ("agent_id", "entity_id", "type", "source_entity_id")
            ),
            TARGET_COMPONENTS.c.world_id == parameter(components.c.world_id, "new"),
        )
        .exists(),
    )
    .values(world_id=parameter(components.c.world_id, "new"))
)


def _update_audience(place: str) -> Update:
    """Return a statement that sets the audience of the vectors of a room or world to that of their memories."""
    audience = select(AUDIENCE).where(memories.c.position == embeddings.c.memory).scalar_subquery()
    in_place = select(memories.c.position).where(matches(memories), memories.c[place] == bindparam("new"))
    return update(embeddings).where(embeddings.c.memory.in_(in_place)).values(audience=audience)


def _move_rows(table: Table, place: str) -> Update:
    return update(table).where(matches(table, place)).values({place: parameter(table.c[place], "new")})


MOVE_VECTORS, MOVE_WORLD_VECTORS = (_update_audience(place) for place in ("room_id", "world_id"))
MOVE_COMPONENTS, MOVE_TASKS, MOVE_LOGS, MOVE_PROPOSALS = (
    _move_rows(table, "room_id") for table in (components, tasks, logs, proposals)
)
NEW_TAKE_OVERS = take_overs.alias("new_take_overs")
MOVE_TAKE_OVERS = _move_rows(take_overs, "room_id").where(  # what was decided in the new room since counts more
    take_overs.c.person_id.not_in(
        select(NEW_TAKE_OVERS.c.person_id).where(
            matches(NEW_TAKE_OVERS), NEW_TAKE_OVERS.c.room_id == parameter(take_overs.c.room_id, "new")
        )
    )
)
MOVE_WORLD_MEMORIES = _move_rows(memories, "world_id").values(terms=_replace_mark(memories.c.terms, "world"))
MOVE_WORLD_TASKS = _move_rows(tasks, "world_id")


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
    old, new = {"agent": agent, "room_id_": room_id}, {"agent": agent, "new": room.id}
    marks = {"old_room_mark": audience_mark(room_id), "new_room_mark": audience_mark(room.id)}
    marks |= _world_marks(old_room.world_id if old_room else room.world_id, room.world_id)
    connection.execute(MOVE_MEMORIES, {**old, **new, "new_world": room.world_id, **marks})
    connection.execute(MOVE_VECTORS, new)
    connection.execute(MOVE_PARTICIPANTS, {**old, **new})
    connection.execute(DELETE_OLD_PARTICIPANTS, old)
    for statement in (MOVE_COMPONENTS, MOVE_TASKS, MOVE_LOGS, MOVE_PROPOSALS, MOVE_TAKE_OVERS, DELETE_SUMMARY):
        connection.execute(statement, {**old, **new})
    if old_world is not None and rooms_of_world(connection, agent, old_world.id) == [room_id]:
        _move_world(connection, agent, old_world.id, room.world_id)
    pending_ids = [
        delivery.id
        for delivery in list_deliveries(agent, True, None, None, connection)
        if delivery.room_id == room_id and delivery.state is DeliveryState.PENDING
    ]
    for delivery_id in pending_ids:
        address = {"id_": delivery_id, "account": room.account, "target": room.external_id}
        connection.execute(RETARGET_DELIVERY, {**new, **address})
    return find_deliveries(connection, agent, pending_ids)


def _move_world(connection: Connection, agent: int, old: UUID, new: UUID) -> None:
    """Move what belongs to a world and to none of its rooms: what is noted of its people, documents and tasks."""
    values = {"agent": agent, "new": new}
    for statement in (MOVE_WORLD_COMPONENTS, MOVE_WORLD_MEMORIES, MOVE_WORLD_TASKS):
        connection.execute(statement, {**values, "world_id_": old, **_world_marks(old, new)})
    connection.execute(MOVE_WORLD_VECTORS, values)


def _world_marks(old: UUID, new: UUID) -> dict[str, str]:
    return {"old_world_mark": audience_mark(old), "new_world_mark": audience_mark(new)}
