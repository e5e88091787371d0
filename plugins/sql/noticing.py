"""What a platform tells of places and people, in SQL: however much it is, a few statements."""

from datetime import datetime
from operator import attrgetter
from uuid import UUID

from sqlalchemy import Connection, delete, func, literal_column, or_
from sqlalchemy.sql.expression import Executable

from bot import REMEMBERED, Entity, Notice, Noticed, Room
from plugins.sql.known import known_to
from plugins.sql.people import find_entities, put_entities
from plugins.sql.schema import cache, participants, rooms
from plugins.sql.small import CACHE_NAMES, SWEEP
from plugins.sql.statements import Insert, Listing, Statement, insert_into, same
from plugins.sql.values import moment, words
from plugins.sql.worlds import (
    FIND_ROOMS,
    ROOM_NAMES,
    find_world,
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
LEAVE = Listing(
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
    return bool(FIRST.run(connection, agent, words(key), "true", moment(at + REMEMBERED)))


def _list_rooms(connection: Connection, agent: int, told: tuple[Room, ...]) -> frozenset[UUID]:
    ids = [one.id.bytes for one in told]
    known = {room.id: room for room in map(room_of, FIND_ROOMS.rows(connection, agent, ids=ids))}
    LIST_ROOM.run_many(connection, [room_values(agent, one) for one in told if known.get(one.id) != one])
    for one in told:
        known_to(connection).rooms.drop((agent, one.id))
    return frozenset(one.id for one in told) - known.keys()


def _leave(connection: Connection, agent: int, told: Notice, people: list[Entity]) -> None:
    for room_id in rooms_of_world(connection, agent, told.world.id):
        LEAVE.count(connection, agent, room_id.bytes, ids=[one.id.bytes for one in people])
        known_to(connection).latest_speakers.drop((agent, room_id))
