"""Worlds, rooms and the agent's state in rooms.

Entities, participants, components and relationships.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection
from sqlalchemy.sql.expression import Executable

from bot.domain.environment import Component, Entity, ParticipantState, PersonActivity, Relationship, Role, Room, World
from bot.domain.hiding import hide_entity
from bot.domain.inbound import ERASURE_COMPONENT, anonymize_private_chat
from bot.store.protocols import MAX_NAME_MATCHES
from bot.store.sql.core.base import AgentRow, SqlStorePart, reads, writes
from bot.store.sql.core.mapping import (
    EPOCH,
    LIMIT,
    InsertStatement,
    RowMapping,
    contains_text,
    dumps,
    insert_if_new,
    matches,
    merge_json,
    parameter,
    rows_of,
    storable_text,
    upsert,
)
from bot.store.sql.core.schema import activity, components, entities, participants, relationships, rooms, worlds

ENTITY = RowMapping(entities, Entity)
COMPONENT = RowMapping(components, Component)
RELATIONSHIP = RowMapping(relationships, Relationship)
ACTIVITY = RowMapping(activity, PersonActivity)
END = (EPOCH.replace(year=9999), UUID(int=2**128 - 1))  # after every time and id


def _add_activity(insert: Any) -> Executable:
    new, stored = insert.excluded, activity.c
    return insert.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=["agent_id", "entity_id"],
        set_={
            "first_at": sa.case((new.first_at < stored.first_at, new.first_at), else_=stored.first_at),
            "last_at": sa.case((new.last_at > stored.last_at, new.last_at), else_=stored.last_at),
            "messages": stored.messages + new.messages,
            "answered": stored.answered + new.answered,
        },
    )


def _touch_participant(insert: Any) -> Executable:
    """Make a participant the most active of a room; write nothing if it is already."""
    return insert.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=["agent_id", "room_id", "entity_id"],
        set_={"active": insert.excluded.active},
        where=participants.c.active < insert.excluded.active - 1,
    )


UPSERT_ENTITY = upsert(entities, ("agent_id", "id"), ENTITY.stored_names)
INSERT_ENTITY_IF_MISSING = insert_if_new(entities, ENTITY.stored_names)
NEXT_ACTIVE_PEOPLE = sa.select(sa.func.coalesce(sa.func.max(participants.c.active), 0) + 1).where(
    participants.c.agent_id == sa.bindparam("agent_id"), participants.c.room_id == sa.bindparam("room_id")
)
TOUCH_PARTICIPANT = InsertStatement(
    participants,
    ("agent_id", "room_id", "entity_id", "state"),
    _touch_participant,
    active=NEXT_ACTIVE_PEOPLE.scalar_subquery(),
)
find_entities = ENTITY.find_by_id
FIND_PARTICIPANTS = (
    sa.select(*ENTITY)
    .join(
        participants, sa.and_(participants.c.agent_id == entities.c.agent_id, participants.c.entity_id == entities.c.id)
    )
    .where(matches(participants, "room_id"), participants.c.active > 0)
    .order_by(participants.c.active.desc())
    .limit(LIMIT)
)
FIND_BY_NAME = (
    sa.select(*ENTITY)
    .where(
        matches(entities),
        sa.or_(
            entities.c.external_id == sa.bindparam("name", type_=sa.Text()), contains_text(entities.c.names, "written")
        ),
    )
    .order_by(entities.c.id)
)
UPSERT_COMPONENT = upsert(
    components, ("agent_id", "entity_id", "type", "world_id", "source_entity_id"), COMPONENT.stored_names
)
FIND_COMPONENTS = sa.select(*COMPONENT).where(matches(components, "entity_id")).order_by(components.c.position)
UPSERT_RELATIONSHIP = upsert(relationships, ("agent_id", "source_id", "target_id"), RELATIONSHIP.stored_names)
FIND_RELATIONSHIPS = (
    sa.select(*RELATIONSHIP)
    .where(matches(relationships, "source_id"))
    .order_by(relationships.c.interactions.desc(), relationships.c.position.desc())
)

ADD_ACTIVITY = InsertStatement(activity, ACTIVITY.stored_names, _add_activity)
FIND_ACTIVITY = sa.select(*ACTIVITY).where(matches(activity, "entity_id"))
ACTIVE_ENTITIES = (
    sa.select(*ENTITY, *ACTIVITY)
    .join_from(
        activity, entities, sa.and_(entities.c.agent_id == activity.c.agent_id, entities.c.id == activity.c.entity_id)
    )
    .where(
        matches(activity),
        sa.tuple_(activity.c.last_at, activity.c.entity_id)
        < sa.tuple_(parameter(activity.c.last_at, "before"), parameter(activity.c.entity_id, "before_id")),
    )
    .order_by(activity.c.last_at.desc(), activity.c.entity_id.desc())
    .limit(LIMIT)
)


def put_entities(connection: Connection, agent: int, people: Sequence[Entity]) -> dict[UUID, Entity]:
    """Insert or update entities, writing only changes; return them as they are stored."""
    stored = find_entities(connection, agent, {entity.id for entity in people})
    changed: dict[UUID, Entity] = {}
    for entity in people:
        stored_entity = stored.get(entity.id)
        names = dict.fromkeys((*entity.names, *(stored_entity.names if stored_entity else ())))
        merged = replace(entity, names=tuple(names)[: MAX_NAME_MATCHES if stored_entity else None])
        if stored_entity not in (entity, merged):
            stored[entity.id] = changed[entity.id] = merged
    if changed:
        UPSERT_ENTITY.execute(connection, [ENTITY.values(entity, agent) for entity in changed.values()])
    return stored


def touch_participants(connection: Connection, agent: int, active: Sequence[tuple[UUID, UUID]]) -> None:
    """Record pairs of room and active entity, the last pair as the latest."""
    rows = [
        {"agent_id": agent, "room_id": room_id, "entity_id": entity_id, "state": ParticipantState.DEFAULT}
        for room_id, entity_id in active
    ]
    TOUCH_PARTICIPANT.execute_all(connection, rows)


def ensure_entity(connection: Connection, agent: int, entity_id: UUID) -> None:
    """Insert an entity without names if it does not exist."""
    INSERT_ENTITY_IF_MISSING.execute(connection, ENTITY.values(Entity(entity_id, "greenroom", str(entity_id)), agent))


def save_component(connection: Connection, agent: int, component: Component) -> None:
    """Store a component; it replaces the one of the same entity, type, world and source."""
    UPSERT_COMPONENT.execute(connection, COMPONENT.values(component, agent))


class SqlEntities(SqlStorePart):
    """Stores entities, components and relationships; see `EntityStore`."""

    _check_component: Callable[[Component], None] | None = None

    async def save_entities(self, entities: Sequence[Entity], room_id: UUID | None = None) -> None:
        if entities:
            await self._save_entities(entities, room_id)

    @writes
    def _save_entities(self, connection: Connection, people: Sequence[Entity], room_id: UUID | None) -> None:
        put_entities(connection, self._agent, people)
        if room_id is not None:
            touch_participants(connection, self._agent, [(room_id, entity.id) for entity in people])

    async def entities(self, ids: Collection[UUID]) -> dict[UUID, Entity]:
        if not ids:
            return {}
        found = await self._database.read(lambda db: find_entities(db, self._agent, ids))
        hidden = self._agent_row.not_read & found.keys()
        return found | {entity_id: hide_entity(found[entity_id]) for entity_id in hidden}

    async def participants(self, room_id: UUID, limit: int = 50) -> list[Entity]:
        people = ENTITY.read_all(await self._read(FIND_PARTICIPANTS, room_id_=room_id, limit=limit))
        return [person for person in people if person.id not in self._agent_row.not_read]

    async def entities_by_name(self, name: str, *, platform: str | None = None, limit: int = 100) -> list[Entity]:
        stored_name = storable_text(name)
        rows = await self._read(FIND_BY_NAME, name=stored_name, written=dumps(stored_name))
        people = (entity for entity in ENTITY.read_all(rows) if platform in (None, entity.platform))
        return [entity for entity in people if stored_name in (*entity.names, entity.external_id)][:limit]

    def check_components(self, check: Callable[[Component], None]) -> None:
        self._check_component = check

    async def save_component(self, component: Component) -> None:
        if self._check_component is not None:
            self._check_component(component)
        await self._database.write(partial(save_component, agent=self._agent, component=component))

    async def components(
        self, entity_id: UUID, kind: str | None = None, *, with_hidden: bool = False
    ) -> list[Component]:
        rows = await self._read(FIND_COMPONENTS, entity_id_=entity_id)
        found = [component for component in COMPONENT.read_all(rows) if kind in (None, component.type)]
        not_read = frozenset[UUID | None]() if with_hidden else self._agent_row.not_read
        return [
            component
            for component in found
            if component.type == ERASURE_COMPONENT
            or not_read.isdisjoint((component.entity_id, component.source_entity_id))
        ]

    @writes
    def save_relationship(self, connection: Connection, relationship: Relationship) -> None:
        UPSERT_RELATIONSHIP.execute(connection, RELATIONSHIP.values(relationship, self._agent))

    async def relationships(self, entity_id: UUID) -> list[Relationship]:
        return list(RELATIONSHIP.read_all(await self._read(FIND_RELATIONSHIPS, source_id_=entity_id)))

    async def add_activity(self, activities: Sequence[PersonActivity]) -> None:
        rows = [ACTIVITY.values(item, self._agent) for item in activities]
        if rows:
            await self._database.write(lambda db: ADD_ACTIVITY.execute_all(db, rows), durable=False)

    async def activity(self, entity_id: UUID) -> PersonActivity | None:
        rows = await self._read(FIND_ACTIVITY, entity_id_=entity_id)
        return ACTIVITY.read(rows[0]) if rows else None

    async def active_entities(
        self, limit: int = 50, before: tuple[datetime, UUID] | None = None
    ) -> list[tuple[Entity, PersonActivity]]:
        end, end_id = before or END
        rows = await self._read(ACTIVE_ENTITIES, before=end, before_id=end_id, limit=limit)
        values = map(iter, rows)
        return [(ENTITY.take(items), ACTIVITY.take(items)) for items in values]


WORLD = RowMapping(worlds, World)
MERGED_NAMES = ("roles", "grants", "settings")  # of the columns that are JSON objects
ROOM = RowMapping(rooms, Room, computed=["active"])


def _upsert_world() -> InsertStatement:
    """An empty name changes nothing. Roles, grants and settings are merged; what is null is not stored."""
    patches = {name: parameter(worlds.c[name], name) for name in MERGED_NAMES}

    def extend(insert: Any) -> Executable:
        new = insert.excluded
        values = {
            "platform": new.platform,
            "external_id": new.external_id,
            "name": sa.func.coalesce(sa.func.nullif(new.name, ""), worlds.c.name),
            "metadata": new.metadata,
            **{name: merge_json(worlds.c[name], patch) for name, patch in patches.items()},
        }
        is_changed = sa.or_(*(worlds.c[name] != value for name, value in values.items()))
        return insert.on_conflict_do_update(  # type: ignore[no-any-return]
            index_elements=["agent_id", "id"], set_=values, where=is_changed
        )

    merged = {name: merge_json(sa.literal("{}", sa.Text()), patch) for name, patch in patches.items()}
    return InsertStatement(worlds, WORLD.stored_names, extend, **merged)


def upsert_room(active: ColumnElement[int], *, is_active: bool) -> InsertStatement:
    """Return a statement that inserts a room or updates it; it writes nothing if nothing changes.

    A new room has the given activity, an existing one only if it `is_active` now.
    """

    def extend(insert: Any) -> Executable:
        new = insert.excluded
        values = {name: new[name] for name in ROOM.names if name != "id"}
        values["name"] = sa.func.coalesce(sa.func.nullif(new.name, ""), rooms.c.name)
        changes = [rooms.c[name].is_distinct_from(value) for name, value in values.items()]
        if is_active:
            changes.insert(0, rooms.c.active < new.active - 1)
            values["active"] = new.active
        return insert.on_conflict_do_update(  # type: ignore[no-any-return]
            index_elements=["agent_id", "id"], set_=values, where=sa.or_(*changes)
        )

    return InsertStatement(rooms, ROOM.stored_names, extend, active=active)


UPSERT_WORLD = _upsert_world()
NEXT_ACTIVE = sa.select(sa.func.coalesce(sa.func.max(rooms.c.active), 0) + 1).where(
    rooms.c.agent_id == sa.bindparam("agent_id")
)
UPSERT_ROOM = upsert_room(NEXT_ACTIVE.scalar_subquery(), is_active=True)
UPSERT_LISTED_ROOM = upsert_room(sa.literal_column("0"), is_active=False)
PARTICIPANT_KEY = ("agent_id", "room_id", "entity_id")
UPSERT_PARTICIPANT_STATE = upsert(
    participants, PARTICIPANT_KEY, (*PARTICIPANT_KEY, "active", "state"), unchanged=["active"]
)
find_worlds, find_rooms = WORLD.find_by_id, ROOM.find_by_id
find_world, find_room = WORLD.get, ROOM.get
ALL_ROOMS = sa.select(*ROOM).where(matches(rooms)).order_by(rooms.c.active.desc())
ROOMS_OF_WORLD = sa.select(*ROOM).where(matches(rooms, "world_id")).order_by(rooms.c.active.desc())
ROOM_IDS_OF_WORLD = sa.select(rooms.c.id).where(matches(rooms, "world_id"))
ROOMS_OF_ENTITY = (
    sa.select(*ROOM, rooms.c.active)
    .join(participants, sa.and_(participants.c.agent_id == rooms.c.agent_id, participants.c.room_id == rooms.c.id))
    .where(matches(participants, "entity_id"), participants.c.active > 0)
)
# Few people own worlds, and few worlds have long roles: reading them all is faster than keeping an index of them.
WORLDS_THAT_NAME = sa.select(*WORLD).where(
    matches(worlds), sa.or_(contains_text(worlds.c.roles, "entity"), contains_text(worlds.c.grants, "entity"))
)
# Together, since it is executed for each message; `participant` is the agent.
FIND_PLACES = (
    sa.select(*WORLD, *ROOM, participants.c.state)
    .select_from(rooms)
    .join(worlds, sa.and_(worlds.c.agent_id == rooms.c.agent_id, worlds.c.id == rooms.c.world_id))
    .outerjoin(
        participants,
        sa.and_(
            participants.c.agent_id == rooms.c.agent_id,
            participants.c.room_id == rooms.c.id,
            participants.c.entity_id == sa.bindparam("participant"),
        ),
    )
    .where(matches(rooms), rooms.c.id.in_(sa.bindparam("items")))
)
FIND_PARTICIPANT_STATES = sa.select(participants.c.room_id, participants.c.state).where(
    matches(participants, "entity_id"), participants.c.room_id.in_(sa.bindparam("items"))
)


class Environment(NamedTuple):
    """Worlds, rooms and people as they are stored, and the agent's state in the rooms, by id."""

    worlds: dict[UUID, World]
    rooms: dict[UUID, Room]
    people: dict[UUID, Entity]
    states: dict[UUID, ParticipantState]


def put_worlds(
    connection: Connection, agent: int, submitted: Sequence[World], known: Mapping[UUID, World] = MappingProxyType({})
) -> dict[UUID, World]:
    """Insert or update worlds, writing only changes; return them as they are stored. Those in `known` are not read.

    An unchanged world is not even locked: on PostgreSQL all rooms of a server would wait for each other.
    """
    stored, changed = {**known}, dict[UUID, World]()
    if missing := {world.id for world in submitted} - known.keys():
        stored |= find_worlds(connection, agent, missing)
    for world in submitted:
        previous = changed.get(world.id) or stored.get(world.id)
        if previous != world and (world.id in changed or previous is None or not _adds_nothing(world, previous)):
            UPSERT_WORLD.execute(connection, WORLD.values(world, agent))
            changed[world.id] = world
    return stored | find_worlds(connection, agent, changed) if changed else stored


def _adds_nothing(world: World, stored: World) -> bool:
    return (
        world.name in ("", stored.name)
        and all(stored.roles.get(entity_id, Role.MEMBER) is role for entity_id, role in world.roles.items())
        and world.grants.items() <= stored.grants.items()
        and world.settings.items() <= stored.settings.items()
        and (world.platform, world.external_id, world.metadata)
        == (stored.platform, stored.external_id, stored.metadata)
    )


def put_rooms(
    connection: Connection, agent: int, submitted: Sequence[Room], known: Mapping[UUID, Room] = MappingProxyType({})
) -> dict[UUID, Room]:
    """Insert or update rooms, writing only changes, the last as the most active; return them as they are stored.

    Those in `known` are read again only if they change.
    """
    changed: set[UUID] = set()
    UPSERT_ROOM.execute_all(connection, [ROOM.values(room, agent) for room in submitted])
    for room in submitted:
        stored = known.get(room.id)
        if stored is None or stored != replace(room, name=room.name or stored.name):
            changed.add(room.id)
    return {**known, **find_rooms(connection, agent, changed)}


def put_environment(
    connection: Connection, agent_row: AgentRow, active: Sequence[tuple[World, Room, Entity]]
) -> Environment:
    """Insert or update worlds, rooms and the people active there; return all as they are stored."""
    agent = agent_row.number
    room_ids = {room.id for _, room, _ in active}
    known_worlds, known_rooms, states = _find_places(connection, agent_row, room_ids)
    stored_worlds = put_worlds(connection, agent, [world for world, _, _ in active], known_worlds)
    stored_rooms = put_rooms(connection, agent, [room for _, room, _ in active], known_rooms)
    stored_people = put_entities(connection, agent, [person for _, _, person in active])
    touch_participants(connection, agent, [(room.id, person.id) for _, room, person in active])
    if missing := room_ids - states.keys():
        states |= participant_states(connection, agent_row, missing)
    return Environment(stored_worlds, stored_rooms, stored_people, states)


def _find_places(
    connection: Connection, agent_row: AgentRow, room_ids: Collection[UUID]
) -> tuple[dict[UUID, World], dict[UUID, Room], dict[UUID, ParticipantState]]:
    """Return the worlds of rooms, the rooms, and the agent's state in them, without what is not stored."""
    found_worlds: dict[UUID, World] = {}
    found_rooms: dict[UUID, Room] = {}
    states: dict[UUID, ParticipantState] = {}
    for row in rows_of(connection, FIND_PLACES, room_ids, agent=agent_row.number, participant=agent_row.id):
        world, room = WORLD.read_or_report(row), ROOM.read_or_report(row[WORLD.width :])
        if world is not None and room is not None:
            found_worlds[world.id], found_rooms[room.id] = world, room
            states[room.id] = row[-1] or ParticipantState.DEFAULT
    return found_worlds, found_rooms, states


def erase_names(connection: Connection, agent: int, room_ids: Collection[UUID]) -> None:
    """Remove the names of the private chats among rooms, which a message without a name would not do."""
    direct = [room for room in find_rooms(connection, agent, room_ids).values() if room.type.is_direct]
    stored = find_worlds(connection, agent, {room.world_id for room in direct})
    for room in direct:
        world, unnamed = anonymize_private_chat(stored[room.world_id], room)
        of_room = sa.and_(rooms.c.agent_id == agent, rooms.c.id == room.id)
        connection.execute(sa.update(rooms).where(of_room).values(name=unnamed.name))
        if world != stored[world.id]:
            of_world = sa.and_(worlds.c.agent_id == agent, worlds.c.id == world.id)
            connection.execute(sa.update(worlds).where(of_world).values(name=world.name, metadata=world.metadata))


def participant_states(
    connection: Connection, agent_row: AgentRow, room_ids: Collection[UUID]
) -> dict[UUID, ParticipantState]:
    """Return the agent's state in rooms."""
    rows = rows_of(connection, FIND_PARTICIPANT_STATES, room_ids, agent=agent_row.number, entity_id_=agent_row.id)
    stored = {room_id: ParticipantState(state) for room_id, state in rows}
    return {room_id: stored.get(room_id, ParticipantState.DEFAULT) for room_id in room_ids}


def rooms_of_world(connection: Connection, agent: int, world_id: UUID) -> list[UUID]:
    """Return the ids of a world's rooms."""
    return list(connection.execute(ROOM_IDS_OF_WORLD, {"agent": agent, "world_id_": world_id}).scalars())


class SqlWorlds(SqlStorePart):
    """Stores worlds and rooms; see `WorldStore`."""

    @writes
    def save_world(self, connection: Connection, world: World, rooms: Sequence[Room] = ()) -> None:
        put_worlds(connection, self._agent, [world])
        put_rooms(connection, self._agent, rooms)

    @reads
    def world(self, connection: Connection, world_id: UUID) -> World | None:
        return find_world(connection, self._agent, world_id)

    @reads
    def room(self, connection: Connection, room_id: UUID) -> Room | None:
        room = find_rooms(connection, self._agent, [room_id]).get(room_id)  # without one that cannot be read
        return None if room is None else self._agent_row.hide_name(room)

    async def rooms(self, world_id: UUID | None = None) -> list[Room]:
        if world_id is None:
            rows = await self._read(ALL_ROOMS)
        else:
            rows = await self._read(ROOMS_OF_WORLD, world_id_=world_id)
        return list(map(self._agent_row.hide_name, ROOM.read_all(rows)))

    @reads
    def participant_state(self, connection: Connection, room_id: UUID) -> ParticipantState:
        return participant_states(connection, self._agent_row, [room_id])[room_id]

    @writes
    def set_participant_state(self, connection: Connection, room_id: UUID, state: ParticipantState) -> None:
        """Store the state in the agent's own participant row."""
        agent_id = self._agent_row.id
        ensure_entity(connection, self._agent, agent_id)
        row = {"agent_id": self._agent, "room_id": room_id, "entity_id": agent_id, "active": 0, "state": state}
        UPSERT_PARTICIPANT_STATE.execute(connection, row)

    async def set_role(self, world_id: UUID, entity_id: UUID, role: Role) -> None:
        await self._add_decisions(world_id, {entity_id: role}, {})

    async def set_setting(self, world_id: UUID, name: str, value: str) -> None:
        await self._add_decisions(world_id, {}, {name: value})

    @writes
    def _add_decisions(
        self, connection: Connection, world_id: UUID, grants: Mapping[UUID, Role], settings: Mapping[str, str]
    ) -> None:
        """Add grants and settings to a world."""
        world = find_world(connection, self._agent, world_id)
        if world is None:
            raise LookupError(f"there is no world {world_id}")
        changed = replace(world, roles={}, grants=grants, settings=settings)
        UPSERT_WORLD.execute(connection, WORLD.values(changed, self._agent))

    @reads
    def worlds_by_id(self, connection: Connection, ids: Collection[UUID]) -> dict[UUID, World]:
        return find_worlds(connection, self._agent, ids)

    @reads
    def rooms_by_id(self, connection: Connection, ids: Collection[UUID]) -> dict[UUID, Room]:
        found = find_rooms(connection, self._agent, ids)
        return {room_id: self._agent_row.hide_name(room) for room_id, room in found.items()}

    async def rooms_of(self, entity_id: UUID) -> list[Room]:
        rows = await self._read(ROOMS_OF_ENTITY, entity_id_=entity_id)
        found = ROOM.read_all(sorted(rows, key=lambda row: int(row[-1]), reverse=True))
        return list(map(self._agent_row.hide_name, found))

    async def worlds_owned_by(self, entity_id: UUID) -> list[World]:
        rows = await self._read(WORLDS_THAT_NAME, entity=str(entity_id))
        owned = [world for world in WORLD.read_all(rows) if world.role_of(entity_id) is Role.OWNER]
        return sorted(owned, key=lambda world: (world.name, world.id))
