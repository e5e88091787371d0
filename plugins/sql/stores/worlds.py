"""Worlds and rooms in SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from uuid import UUID

from sqlalchemy import Connection, ScalarSelect, and_, bindparam, func, literal, or_, select, update
from sqlalchemy.sql.expression import Executable

from bot import Attendance, ChannelType, Role, Room, World
from plugins.sql.core.base import Book
from plugins.sql.core.columns import merged
from plugins.sql.core.row_cache import known_to
from plugins.sql.core.schema import participants, rooms, worlds
from plugins.sql.core.statements import Insert, Listing, Row, Statement, insert_into, same
from plugins.sql.core.values import dumps, id_bytes, id_of, id_or_none, loads, storable_text
from plugins.sql.stores.entities import bare_entity

WORLD = (
    worlds.c.id,
    worlds.c.platform,
    worlds.c.external_id,
    worlds.c.name,
    worlds.c.roles,
    worlds.c.metadata,
)
ROOM = (
    rooms.c.id,
    rooms.c.world_id,
    rooms.c.type,
    rooms.c.platform,
    rooms.c.external_id,
    rooms.c.account,
    rooms.c.name,
    rooms.c.parent_id,
    rooms.c.metadata,
)
GRANTED, SET = "granted", "set"
WORLD_NAMES = ("agent_id", *(column.name for column in WORLD))
ROOM_NAMES = ("agent_id", *(column.name for column in ROOM))


def _upsert_world(insert: Insert) -> Executable:
    """What is empty does not replace a name; roles are merged, and a plain member's is not kept.

    Beside them, in the same column, stand grants and settings: an arrival names none and so changes none.
    """
    patch = bindparam("roles", type_=worlds.c.roles.type)
    statement = insert_into(worlds, WORLD_NAMES, roles=merged(literal("{}"), patch))(insert)
    new = statement.excluded
    values = {
        "platform": new.platform,
        "external_id": new.external_id,
        "name": func.coalesce(func.nullif(new.name, ""), worlds.c.name),
        "roles": merged(worlds.c.roles, patch),
        "metadata": new.metadata,
    }
    is_other = or_(*(worlds.c[name] != value for name, value in values.items()))
    return statement.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=["agent_id", "id"], set_=values, where=is_other
    )


def _upsert_room(insert: Insert) -> Executable:
    """The room that was named last is the most active; nothing is written where it is already."""
    statement = insert_into(rooms, ROOM_NAMES, active=_latest("agent_id"))(insert)
    new = statement.excluded
    values = {name: new[name] for name in ROOM_NAMES if name not in ("agent_id", "id")}
    values["name"] = func.coalesce(func.nullif(new.name, ""), rooms.c.name)
    is_other = or_(
        rooms.c.active < new.active - 1,
        *(rooms.c[name].is_distinct_from(value) for name, value in values.items()),
    )
    return statement.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=["agent_id", "id"], set_=values | {"active": new.active}, where=is_other
    )


def _latest(agent: str = "agent") -> ScalarSelect[int]:
    last = func.coalesce(func.max(rooms.c.active), 0)
    return select(last + 1).where(same(rooms.c.agent_id, agent)).scalar_subquery()


def _upsert_attendance(insert: Insert) -> Executable:
    names = ("agent_id", "room_id", "entity_id", "active", "attendance")
    statement = insert_into(participants, names)(insert)
    return statement.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=["agent_id", "room_id", "entity_id"],
        set_={"attendance": statement.excluded.attendance},
    )


TOUCH_ROOM = Statement(
    lambda _: (
        update(rooms)
        .where(same(rooms.c.agent_id, "agent"), same(rooms.c.id, "room"))
        .values(active=_latest())
    ),
    "agent",
    "room",
)
UPSERT_WORLD = Statement(_upsert_world, *WORLD_NAMES)
UPSERT_ROOM = Statement(_upsert_room, *ROOM_NAMES)
UPSERT_ATTENDANCE = Statement(_upsert_attendance, "agent_id", "room_id", "entity_id", "active", "attendance")
FIND_WORLDS = Listing(
    lambda ids: select(*WORLD).where(same(worlds.c.agent_id, "agent"), worlds.c.id.in_(ids)), "agent"
)
FIND_ROOMS = Listing(
    lambda ids: select(*ROOM).where(same(rooms.c.agent_id, "agent"), rooms.c.id.in_(ids)), "agent"
)
ALL_ROOMS = Statement(
    lambda _: select(*ROOM).where(same(rooms.c.agent_id, "agent")).order_by(rooms.c.active.desc()), "agent"
)
ROOMS_OF_WORLD = Statement(
    lambda _: (
        select(*ROOM)
        .where(same(rooms.c.agent_id, "agent"), same(rooms.c.world_id, "world"))
        .order_by(rooms.c.active.desc())
    ),
    "agent",
    "world",
)
ROOMS_OF_PERSON = Statement(
    lambda _: (
        select(rooms.c.active, *ROOM)
        .join(
            participants,
            and_(participants.c.agent_id == rooms.c.agent_id, participants.c.room_id == rooms.c.id),
        )
        .where(
            same(participants.c.agent_id, "agent"),
            same(participants.c.entity_id, "entity"),
            participants.c.active > 0,
        )
    ),
    "agent",
    "entity",
)
FIND_ATTENDANCE = Statement(
    lambda _: select(participants.c.attendance).where(
        same(participants.c.agent_id, "agent"),
        same(participants.c.room_id, "room"),
        same(participants.c.entity_id, "entity"),
    ),
    "agent",
    "room",
    "entity",
)


def put_worlds(connection: Connection, agent: int, given: Sequence[World]) -> dict[UUID, World]:
    """Insert or update, writing only what is new; they come back as they are kept."""
    known = known_to(connection).worlds
    kept: dict[UUID, World] = {}
    changed: dict[UUID, World] = {}
    for world in given:
        before = known.get((agent, world.id))
        if before is not None and _adds_nothing(world, before):
            kept[world.id] = before
        elif changed.get(world.id) != world:
            UPSERT_WORLD.run(connection, *world_values(agent, world))
            changed[world.id] = world
    rows = FIND_WORLDS.rows(connection, agent, ids=[one.bytes for one in changed])
    for world in map(world_of, rows):
        kept[world.id] = world
        known.put((agent, world.id), world)
    return kept


def _adds_nothing(given: World, kept: World) -> bool:
    return (
        given.name in ("", kept.name)
        and all(kept.roles.get(one, Role.MEMBER) is role for one, role in given.roles.items())
        and given.grants.items() <= kept.grants.items()
        and given.settings.items() <= kept.settings.items()
        and (given.platform, given.external_id, given.metadata)
        == (kept.platform, kept.external_id, kept.metadata)
    )


def put_rooms(connection: Connection, agent: int, given: Sequence[Room]) -> dict[UUID, Room]:
    """Insert or update likewise; the one that was given last becomes the most active."""
    known = known_to(connection)
    kept: dict[UUID, Room] = {}
    changed: dict[UUID, Room] = {}
    for room in given:
        before = known.rooms.get((agent, room.id))
        if before is not None and _is_as_kept(room, before):
            kept[room.id] = before
            if known.latest_rooms.get(agent) != room.id:
                TOUCH_ROOM.run(connection, agent, room.id.bytes)
        else:
            UPSERT_ROOM.run(connection, *room_values(agent, room))
            changed[room.id] = room
        known.latest_rooms.put(agent, room.id)
    rows = FIND_ROOMS.rows(connection, agent, ids=[one.bytes for one in changed])
    for room in map(room_of, rows):
        kept[room.id] = room
        known.rooms.put((agent, room.id), room)
    return kept


def _is_as_kept(given: Room, kept: Room) -> bool:
    return given == kept or (not given.name and replace(given, name=kept.name) == kept)


def place_stands(connection: Connection, agent: int, world: World, room: Room) -> bool:
    """Tell whether a world and a room are surely kept as they are given."""
    known = known_to(connection)
    kept_world, kept_room = known.worlds.get((agent, world.id)), known.rooms.get((agent, room.id))
    return kept_world is not None and _adds_nothing(world, kept_world) and kept_room == room


def attendance_in(connection: Connection, agent: int, own_id: UUID, room_id: UUID) -> Attendance:
    """Tell what the agent has decided about a room."""
    known = known_to(connection).attendance
    found = known.get((agent, room_id))
    if found is None:
        row = FIND_ATTENDANCE.first(connection, agent, room_id.bytes, own_id.bytes)
        found = Attendance(row[0]) if row else Attendance.DEFAULT
        known.put((agent, room_id), found)
    return found


def world_of(row: Row) -> World:
    """Read a world from its columns."""
    world_id, platform, external_id, name, roles, metadata = row
    said: dict[UUID, Role] = {}
    granted: dict[UUID, Role] = {}
    settings: dict[str, str] = {}
    for key, value in loads(roles).items():
        kind, _, what = key.rpartition(":")
        if kind == SET:
            settings[what] = value
        else:
            (granted if kind == GRANTED else said)[UUID(what)] = Role(value)
    return World(id_of(world_id), platform, external_id, name, said, loads(metadata), granted, settings)


def room_of(row: Row) -> Room:
    """Read a room from its columns."""
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


def world_values(agent: int, world: World) -> Row:
    """Write a world; a plain member's role is not kept, nor a setting that is blank."""
    patch = {str(one): None if role is Role.MEMBER else role.value for one, role in world.roles.items()}
    patch |= {f"{GRANTED}:{one}": role.value for one, role in world.grants.items()}
    patch |= {
        f"{SET}:{storable_text(name)}": storable_text(value) or None for name, value in world.settings.items()
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
    """Write a room."""
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


def _set_attendance(agent: int, own_id: UUID, room_id: UUID, attendance: Attendance, db: Connection) -> None:
    """Note it where the agent itself takes part, or would."""
    bare_entity(db, agent, own_id)
    UPSERT_ATTENDANCE.run(db, agent, room_id.bytes, own_id.bytes, 0, attendance.value)
    known_to(db).attendance.put((agent, room_id), attendance)


def _decide(
    agent: int, world_id: UUID, grants: Mapping[UUID, Role], settings: Mapping[str, str], db: Connection
) -> None:
    """Add to what was decided of a world."""
    world = find_world(agent, world_id, db)
    if world is None:
        raise LookupError(f"there is no world {world_id}")
    added = replace(world, roles={}, grants=grants, settings=settings)
    UPSERT_WORLD.run(db, *world_values(agent, added))
    known_to(db).worlds.put((agent, world_id), find_world(agent, world_id, db) or world)


def find_room(agent: int, room_id: UUID, connection: Connection) -> Room | None:
    """Find a room."""
    rows = FIND_ROOMS.rows(connection, agent, ids=[room_id.bytes])
    return room_of(rows[0]) if rows else None


def rooms_of_world(connection: Connection, agent: int, world_id: UUID) -> list[UUID]:
    """List the rooms of a world by id."""
    return [id_of(row[0]) for row in ROOMS_OF_WORLD.rows(connection, agent, world_id.bytes)]


def find_world(agent: int, world_id: UUID, connection: Connection) -> World | None:
    """Find a world."""
    rows = FIND_WORLDS.rows(connection, agent, ids=[world_id.bytes])
    return world_of(rows[0]) if rows else None


def _save(agent: int, world: World, listed: Sequence[Room], connection: Connection) -> None:
    put_worlds(connection, agent, [world])
    put_rooms(connection, agent, listed)


class SqlWorlds(Book):
    """Keeps worlds and rooms; see `WorldStore`."""

    async def save_world(self, world: World, rooms: Sequence[Room] = ()) -> None:
        await self._database.write(partial(_save, self._agent, world, rooms))

    async def world(self, world_id: UUID) -> World | None:
        return await self._database.read(partial(find_world, self._agent, world_id))

    async def room(self, room_id: UUID) -> Room | None:
        return await self._database.read(partial(find_room, self._agent, room_id))

    async def rooms(self, world_id: UUID | None = None) -> list[Room]:
        if world_id is None:
            rows = await self._database.read(lambda db: ALL_ROOMS.rows(db, self._agent))
        else:
            rows = await self._database.read(lambda db: ROOMS_OF_WORLD.rows(db, self._agent, world_id.bytes))
        return [room_of(row) for row in rows]

    async def attendance(self, room_id: UUID) -> Attendance:
        key = (self._agent, room_id.bytes, self._owner.id.bytes)
        row = await self._database.read(lambda db: FIND_ATTENDANCE.first(db, *key))
        return Attendance(row[0]) if row else Attendance.DEFAULT

    async def set_attendance(self, room_id: UUID, attendance: Attendance) -> None:
        await self._database.write(partial(_set_attendance, self._agent, self._owner.id, room_id, attendance))

    async def set_role(self, world_id: UUID, entity_id: UUID, role: Role) -> None:
        await self._database.write(partial(_decide, self._agent, world_id, {entity_id: role}, {}))

    async def set_setting(self, world_id: UUID, name: str, value: str) -> None:
        await self._database.write(partial(_decide, self._agent, world_id, {}, {name: value}))

    async def rooms_of(self, entity_id: UUID) -> list[Room]:
        key = (self._agent, entity_id.bytes)
        rows = await self._database.read(lambda db: ROOMS_OF_PERSON.rows(db, *key))
        return [room_of(row[1:]) for row in sorted(rows, key=itemgetter(0), reverse=True)]
