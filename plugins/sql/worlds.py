"""Worlds and rooms in SQL."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from sqlalchemy import Connection, bindparam, func, literal, or_, select
from sqlalchemy.sql.expression import Executable

from bot import Attendance, ChannelType, Role, Room, World
from plugins.sql.book import Book
from plugins.sql.dialect import merged
from plugins.sql.people import bare_entity
from plugins.sql.schema import participants, rooms, worlds
from plugins.sql.statements import Insert, Row, Statement, insert_into, same
from plugins.sql.values import dumps, id_bytes, id_of, id_or_none, loads, words

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
WORLD_NAMES = ("agent_id", *(column.name for column in WORLD))
ROOM_NAMES = ("agent_id", *(column.name for column in ROOM))


def _upsert_world(insert: Insert) -> Executable:
    """What is empty does not replace a name; roles are merged, and a plain member's is not kept."""
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
    latest = select(func.coalesce(func.max(rooms.c.active), 0) + 1).where(same(rooms.c.agent_id, "agent_id"))
    statement = insert_into(rooms, ROOM_NAMES, active=latest.scalar_subquery())(insert)
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


def _upsert_attendance(insert: Insert) -> Executable:
    names = ("agent_id", "room_id", "entity_id", "active", "attendance")
    statement = insert_into(participants, names)(insert)
    return statement.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=["agent_id", "room_id", "entity_id"],
        set_={"attendance": statement.excluded.attendance},
    )


UPSERT_WORLD = Statement(_upsert_world, *WORLD_NAMES)
UPSERT_ROOM = Statement(_upsert_room, *ROOM_NAMES)
UPSERT_ATTENDANCE = Statement(_upsert_attendance, "agent_id", "room_id", "entity_id", "active", "attendance")
FIND_WORLD = Statement(
    lambda _: select(*WORLD).where(same(worlds.c.agent_id, "agent"), same(worlds.c.id, "world")),
    "agent",
    "world",
)
FIND_ROOM = Statement(
    lambda _: select(*ROOM).where(same(rooms.c.agent_id, "agent"), same(rooms.c.id, "room")), "agent", "room"
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


def put_worlds(connection: Connection, agent: int, named: Sequence[World], listed: Sequence[Room]) -> None:
    """Insert or update; the room that was named last becomes the most active."""
    UPSERT_WORLD.run_many(connection, [_world_values(agent, world) for world in named])
    UPSERT_ROOM.run_many(connection, [_room_values(agent, room) for room in listed])


def world_of(row: Row) -> World:
    """Read a world from its columns."""
    world_id, platform, external_id, name, roles, metadata = row
    known = {UUID(one): Role(role) for one, role in loads(roles).items()}
    return World(id_of(world_id), platform, external_id, name, known, loads(metadata))


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


def _world_values(agent: int, world: World) -> Row:
    patch = {str(one): None if role is Role.MEMBER else role.value for one, role in world.roles.items()}
    return (
        agent,
        world.id.bytes,
        words(world.platform),
        words(world.external_id),
        words(world.name),
        dumps(patch),
        dumps(world.metadata),
    )


def _room_values(agent: int, room: Room) -> Row:
    return (
        agent,
        room.id.bytes,
        room.world_id.bytes,
        room.type.value,
        words(room.platform),
        words(room.external_id),
        words(room.account),
        words(room.name),
        id_bytes(room.parent_id),
        dumps(room.metadata),
    )


def _set_attendance(agent: int, own_id: UUID, room_id: UUID, attendance: Attendance, db: Connection) -> None:
    """Note it where the agent itself takes part, or would."""
    bare_entity(db, agent, own_id)
    UPSERT_ATTENDANCE.run(db, agent, room_id.bytes, own_id.bytes, 0, attendance.value)


def _set_role(agent: int, world_id: UUID, entity_id: UUID, role: Role, db: Connection) -> None:
    row = FIND_WORLD.first(db, agent, world_id.bytes)
    if row is None:
        raise LookupError(f"there is no world {world_id}")
    put_worlds(db, agent, [replace(world_of(row), roles={entity_id: role})], [])


class SqlWorlds(Book):
    """Keeps worlds and rooms; see `WorldStore`."""

    async def save_world(self, world: World, rooms: Sequence[Room] = ()) -> None:
        await self._database.write(lambda db: put_worlds(db, self._agent, [world], rooms))

    async def world(self, world_id: UUID) -> World | None:
        row = await self._database.read(lambda db: FIND_WORLD.first(db, self._agent, world_id.bytes))
        return world_of(row) if row else None

    async def room(self, room_id: UUID) -> Room | None:
        row = await self._database.read(lambda db: FIND_ROOM.first(db, self._agent, room_id.bytes))
        return room_of(row) if row else None

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
        await self._database.write(partial(_set_role, self._agent, world_id, entity_id, role))
