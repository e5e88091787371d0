"""Worlds, rooms and the agent's state in rooms."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    ScalarSelect,
    and_,
    bindparam,
    func,
    literal,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.sql.expression import Executable

from bot import ChannelType, ParticipantState, Role, Room, World
from bot.store import anonymize_private_chat
from plugins.sql.core.base import SqlStorePart
from plugins.sql.core.columns import merge_json
from plugins.sql.core.inserts import insert_into, upsert
from plugins.sql.core.row_cache import cache_row, row_cache_of
from plugins.sql.core.schema import participants, rooms, worlds
from plugins.sql.core.statements import (
    Columns,
    Insert,
    ListStatement,
    Row,
    Statement,
    column_names,
    matches,
    typed_parameter,
)
from plugins.sql.core.values import dumps, id_bytes, id_of, id_or_none, loads, storable_text
from plugins.sql.stores.entities import ensure_entity

GRANT_PREFIX, SETTING_PREFIX = "granted", "set"
WORLD_NAMES = column_names(worlds)
ROOM_NAMES = column_names(rooms)[:-1]  # all but `active`, which the database computes


def _read_world(row: Row) -> World:
    world_id, platform, external_id, name, roles, metadata = row
    reported: dict[UUID, Role] = {}
    grants: dict[UUID, Role] = {}
    settings: dict[str, str] = {}
    for key, value in loads(roles).items():
        kind, _, subject = key.partition(":") if ":" in key else ("", "", key)  # a setting of a room has a colon too
        if kind == SETTING_PREFIX:
            settings[subject] = value
        else:
            (grants if kind == GRANT_PREFIX else reported)[UUID(subject)] = Role(value)
    return World(id_of(world_id), platform, external_id, name, reported, loads(metadata), grants, settings)


def _read_room(row: Row) -> Room:
    room_id, world_id, kind, platform, external_id, account, name, parent_id, metadata = row
    return Room(
        id_of(room_id),
        id_of(world_id),
        ChannelType(kind),
        platform,
        external_id,
        account,
        name,
        id_or_none(parent_id),
        loads(metadata),
    )


WORLD = Columns(worlds, WORLD_NAMES[1:], _read_world)
ROOM = Columns(rooms, ROOM_NAMES[1:], _read_room)


def _upsert_world(insert: Insert) -> Executable:
    """An empty name changes nothing; roles are merged, and those of members are not stored.

    The same column has grants and settings; a message contains none and so changes none.
    """
    patch = bindparam("roles", type_=worlds.c.roles.type)
    statement = insert_into(worlds, WORLD_NAMES, roles=merge_json(literal("{}"), patch))(insert)
    new = statement.excluded
    values = {
        "platform": new.platform,
        "external_id": new.external_id,
        "name": func.coalesce(func.nullif(new.name, ""), worlds.c.name),
        "roles": merge_json(worlds.c.roles, patch),
        "metadata": new.metadata,
    }
    is_changed = or_(*(worlds.c[name] != value for name, value in values.items()))
    return statement.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=["agent_id", "id"], set_=values, where=is_changed
    )


def upsert_room(active: ColumnElement[int], *, is_active: bool) -> Statement:
    """Return a statement that inserts a room or updates it; it writes nothing if nothing changes.

    A new room has the given activity, an existing one only if it `is_active` now.
    """

    def build(insert: Insert) -> Executable:
        statement = insert_into(rooms, ROOM_NAMES, active=active)(insert)
        new = statement.excluded
        values = {name: new[name] for name in ROOM_NAMES if name not in ("agent_id", "id")}
        values["name"] = func.coalesce(func.nullif(new.name, ""), rooms.c.name)
        changes = [rooms.c[name].is_distinct_from(value) for name, value in values.items()]
        if is_active:
            changes.insert(0, rooms.c.active < new.active - 1)
            values["active"] = new.active
        return statement.on_conflict_do_update(  # type: ignore[no-any-return]
            index_elements=["agent_id", "id"], set_=values, where=or_(*changes)
        )

    return Statement(build)


def _parameter(name: str) -> BindParameter[Any]:
    return typed_parameter(rooms.c[name], name)


def _next_active() -> ScalarSelect[int]:
    last = func.coalesce(func.max(rooms.c.active), 0)
    return select(last + 1).where(matches(rooms, "agent_id")).scalar_subquery()


TOUCH_ROOM = Statement(lambda _: update(rooms).where(matches(rooms, "agent_id", "id")).values(active=_next_active()))
UPSERT_WORLD = Statement(_upsert_world)
UPSERT_ROOM = upsert_room(_next_active(), is_active=True)
UPSERT_LISTED_ROOM = upsert_room(literal_column("0"), is_active=False)
RENAME_ROOM = Statement(lambda _: update(rooms).where(matches(rooms, "agent_id", "id")).values(name=_parameter("name")))
RENAME_WORLD = Statement(
    lambda _: (
        update(worlds)
        .where(matches(worlds, "agent_id", "id"))
        .values(name=_parameter("name"), metadata=_parameter("metadata"))
    )
)
PARTICIPANT_KEY = ("agent_id", "room_id", "entity_id")
UPSERT_PARTICIPANT_STATE = upsert(
    participants, PARTICIPANT_KEY, (*PARTICIPANT_KEY, "active", "attendance"), unchanged=["active"]
)
FIND_WORLDS = ListStatement(lambda ids: select(*WORLD).where(matches(worlds, "agent_id"), worlds.c.id.in_(ids)))
FIND_ROOMS = ListStatement(lambda ids: select(*ROOM).where(matches(rooms, "agent_id"), rooms.c.id.in_(ids)))
ALL_ROOMS = Statement(lambda _: select(*ROOM).where(matches(rooms, "agent_id")).order_by(rooms.c.active.desc()))
ROOMS_OF_WORLD = Statement(
    lambda _: select(*ROOM).where(matches(rooms, "agent_id", "world_id")).order_by(rooms.c.active.desc())
)
ROOMS_OF_ENTITY = Statement(
    lambda _: (
        select(rooms.c.active, *ROOM)
        .join(participants, and_(participants.c.agent_id == rooms.c.agent_id, participants.c.room_id == rooms.c.id))
        .where(matches(participants, "agent_id", "entity_id"), participants.c.active > 0)
    )
)
# Few people own worlds, and few worlds have long roles: reading them all is faster than keeping an index of them.
WORLDS_THAT_NAME = Statement(
    lambda _: select(*WORLD).where(matches(worlds, "agent_id"), worlds.c.roles.contains(bindparam("entity_id")))
)
FIND_PARTICIPANT_STATE = Statement(
    lambda _: select(participants.c.attendance).where(matches(participants, "agent_id", "room_id", "entity_id"))
)


def put_worlds(connection: Connection, agent: int, submitted: Sequence[World]) -> dict[UUID, World]:
    """Insert or update worlds, writing only changes; return them as they are stored.

    An unchanged world is not even locked: on PostgreSQL all rooms of a server would wait for each other.
    """
    cache = row_cache_of(connection).worlds
    ids = dict.fromkeys(world.id for world in submitted)
    stored = {world_id: world for world_id in ids if (world := cache.get((agent, world_id))) is not None}
    stored |= _find_worlds(connection, agent, [world_id for world_id in ids if world_id not in stored])
    changed: dict[UUID, World] = {}
    for world in submitted:
        previous = changed.get(world.id) or stored.get(world.id)
        if previous != world and (world.id in changed or previous is None or not _adds_nothing(world, previous)):
            UPSERT_WORLD.run(connection, *world_values(agent, world))
            changed[world.id] = world
    stored |= _find_worlds(connection, agent, list(changed))
    for world_id, world in stored.items():
        cache_row(cache, (agent, world_id), world)
    return stored


def _find_worlds(connection: Connection, agent: int, ids: Sequence[UUID]) -> dict[UUID, World]:
    rows = FIND_WORLDS.rows(connection, agent, ids=[world_id.bytes for world_id in ids])
    return {world.id: world for world in WORLD.read_all(rows)}


def _adds_nothing(world: World, stored: World) -> bool:
    return (
        world.name in ("", stored.name)
        and all(stored.roles.get(entity_id, Role.MEMBER) is role for entity_id, role in world.roles.items())
        and world.grants.items() <= stored.grants.items()
        and world.settings.items() <= stored.settings.items()
        and (world.platform, world.external_id, world.metadata)
        == (stored.platform, stored.external_id, stored.metadata)
    )


def put_rooms(connection: Connection, agent: int, submitted: Sequence[Room]) -> dict[UUID, Room]:
    """Insert or update rooms, writing only changes; the last room becomes the most active."""
    cache = row_cache_of(connection)
    stored: dict[UUID, Room] = {}
    changed: dict[UUID, Room] = {}
    for room in submitted:
        cached = cache.rooms.get((agent, room.id))
        if cached is not None and _is_as_stored(room, cached):
            stored[room.id] = cached
            if cache.latest_rooms.get(agent) != room.id:
                TOUCH_ROOM.run(connection, agent, room.id.bytes)
        else:
            UPSERT_ROOM.run(connection, *room_values(agent, room))
            changed[room.id] = room
        cache_row(cache.latest_rooms, agent, room.id)
    rows = FIND_ROOMS.rows(connection, agent, ids=[room_id.bytes for room_id in changed])
    for room in ROOM.read_all(rows):
        stored[room.id] = room
        cache_row(cache.rooms, (agent, room.id), room)
    return stored


def _is_as_stored(room: Room, stored: Room) -> bool:
    return room == stored or (not room.name and replace(room, name=stored.name) == stored)


def erase_names(connection: Connection, agent: int, room_ids: Sequence[bytes]) -> None:
    """Remove the names of the private chats among rooms, which a message without a name would not do."""
    rows = FIND_ROOMS.rows(connection, agent, ids=room_ids)
    direct = [room for room in ROOM.read_all(rows) if room.type.is_direct]
    stored = _find_worlds(connection, agent, list({room.world_id for room in direct}))
    for room in direct:
        world, unnamed = anonymize_private_chat(stored[room.world_id], room)
        RENAME_ROOM.run(connection, unnamed.name, agent, room.id.bytes)
        if world != stored[world.id]:
            RENAME_WORLD.run(connection, world.name, dumps(world.metadata), agent, world.id.bytes)


def is_place_unchanged(connection: Connection, agent: int, world: World, room: Room) -> bool:
    """Return whether the cache has this world and room unchanged; False if they are not cached."""
    cache = row_cache_of(connection)
    stored_world, stored_room = cache.worlds.get((agent, world.id)), cache.rooms.get((agent, room.id))
    is_known = stored_world is not None and _adds_nothing(world, stored_world)
    return is_known and stored_room is not None and _is_as_stored(room, stored_room)


def participant_state(connection: Connection, agent: int, agent_id: UUID, room_id: UUID) -> ParticipantState:
    """Return the agent's state in a room."""
    cache = row_cache_of(connection).participant_states
    state = cache.get((agent, room_id))
    if state is None:
        row = FIND_PARTICIPANT_STATE.first(connection, agent, room_id.bytes, agent_id.bytes)
        state = ParticipantState(row[0]) if row else ParticipantState.DEFAULT
        cache_row(cache, (agent, room_id), state)
    return state


def world_values(agent: int, world: World) -> Row:
    """Return the column values of a world; roles of members and blank settings become null."""
    patch = {str(entity_id): None if role is Role.MEMBER else role.value for entity_id, role in world.roles.items()}
    patch |= {f"{GRANT_PREFIX}:{entity_id}": role.value for entity_id, role in world.grants.items()}
    patch |= {
        f"{SETTING_PREFIX}:{storable_text(name)}": storable_text(value) or None
        for name, value in world.settings.items()
    }
    return (
        agent,
        world.id.bytes,
        storable_text(world.platform),
        storable_text(world.external_id),
        storable_text(world.name),
        dumps(patch),
        dumps(world.metadata),
    )


def room_values(agent: int, room: Room) -> Row:
    """Return the column values of a room."""
    return (
        agent,
        room.id.bytes,
        room.world_id.bytes,
        room.type.value,
        storable_text(room.platform),
        storable_text(room.external_id),
        storable_text(room.account),
        storable_text(room.name),
        id_bytes(room.parent_id),
        dumps(room.metadata),
    )


def _set_participant_state(agent: int, agent_id: UUID, room_id: UUID, state: ParticipantState, db: Connection) -> None:
    """Store the state in the agent's own participant row."""
    ensure_entity(db, agent, agent_id)
    UPSERT_PARTICIPANT_STATE.run(db, agent, room_id.bytes, agent_id.bytes, 0, state.value)
    cache_row(row_cache_of(db).participant_states, (agent, room_id), state)


def _add_decisions(
    agent: int, world_id: UUID, grants: Mapping[UUID, Role], settings: Mapping[str, str], db: Connection
) -> None:
    """Add grants and settings to a world."""
    world = find_world(agent, world_id, db)
    if world is None:
        raise LookupError(f"there is no world {world_id}")
    addition = replace(world, roles={}, grants=grants, settings=settings)
    UPSERT_WORLD.run(db, *world_values(agent, addition))
    cache_row(row_cache_of(db).worlds, (agent, world_id), find_world(agent, world_id, db) or world)


def find_room(agent: int, room_id: UUID, connection: Connection) -> Room | None:
    """Return a room by id."""
    rows = FIND_ROOMS.rows(connection, agent, ids=[room_id.bytes])
    return ROOM.read(rows[0]) if rows else None


def rooms_of_world(connection: Connection, agent: int, world_id: UUID) -> list[UUID]:
    """Return the ids of a world's rooms."""
    return [id_of(row[0]) for row in ROOMS_OF_WORLD.rows(connection, agent, world_id.bytes)]


def find_world(agent: int, world_id: UUID, connection: Connection) -> World | None:
    """Return a world by id."""
    rows = FIND_WORLDS.rows(connection, agent, ids=[world_id.bytes])
    return WORLD.read(rows[0]) if rows else None


def _save_world(agent: int, world: World, listed: Sequence[Room], connection: Connection) -> None:
    put_worlds(connection, agent, [world])
    put_rooms(connection, agent, listed)


class SqlWorlds(SqlStorePart):
    """Stores worlds and rooms; see `WorldStore`."""

    async def save_world(self, world: World, rooms: Sequence[Room] = ()) -> None:
        await self._database.write(partial(_save_world, self._agent, world, rooms))

    async def world(self, world_id: UUID) -> World | None:
        return await self._database.read(partial(find_world, self._agent, world_id))

    async def room(self, room_id: UUID) -> Room | None:
        return await self._database.read(partial(find_room, self._agent, room_id))

    async def rooms(self, world_id: UUID | None = None) -> list[Room]:
        if world_id is None:
            rows = await self._database.read(lambda db: ALL_ROOMS.rows(db, self._agent))
        else:
            rows = await self._database.read(lambda db: ROOMS_OF_WORLD.rows(db, self._agent, world_id.bytes))
        return list(ROOM.read_all(rows))

    async def participant_state(self, room_id: UUID) -> ParticipantState:
        key = (self._agent, room_id.bytes, self._agent_row.id.bytes)
        row = await self._database.read(lambda db: FIND_PARTICIPANT_STATE.first(db, *key))
        return ParticipantState(row[0]) if row else ParticipantState.DEFAULT

    async def set_participant_state(self, room_id: UUID, state: ParticipantState) -> None:
        await self._database.write(partial(_set_participant_state, self._agent, self._agent_row.id, room_id, state))

    async def set_role(self, world_id: UUID, entity_id: UUID, role: Role) -> None:
        await self._database.write(partial(_add_decisions, self._agent, world_id, {entity_id: role}, {}))

    async def set_setting(self, world_id: UUID, name: str, value: str) -> None:
        await self._database.write(partial(_add_decisions, self._agent, world_id, {}, {name: value}))

    async def worlds_by_id(self, ids: Collection[UUID]) -> dict[UUID, World]:
        keys = [world_id.bytes for world_id in ids]
        rows = await self._database.read(lambda db: FIND_WORLDS.rows(db, self._agent, ids=keys))
        return {world.id: world for world in WORLD.read_all(rows)}

    async def rooms_by_id(self, ids: Collection[UUID]) -> dict[UUID, Room]:
        keys = [room_id.bytes for room_id in ids]
        rows = await self._database.read(lambda db: FIND_ROOMS.rows(db, self._agent, ids=keys))
        return {room.id: room for room in ROOM.read_all(rows)}

    async def rooms_of(self, entity_id: UUID) -> list[Room]:
        key = (self._agent, entity_id.bytes)
        rows = await self._database.read(lambda db: ROOMS_OF_ENTITY.rows(db, *key))
        return list(ROOM.read_all(row[1:] for row in sorted(rows, key=itemgetter(0), reverse=True)))

    async def worlds_owned_by(self, entity_id: UUID) -> list[World]:
        rows = await self._database.read(lambda db: WORLDS_THAT_NAME.rows(db, self._agent, str(entity_id)))
        owned = [world for world in WORLD.read_all(rows) if world.role_of(entity_id) is Role.OWNER]
        return sorted(owned, key=lambda world: (world.name, world.id))
