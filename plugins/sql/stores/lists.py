"""Lists for operators, page by page; no page examines more than some thousand rows, whatever is filtered."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, func, literal_column, select

from bot import MemoryKind, Outcome, ParticipantState, Receipt, Room
from bot.platform import Delivery, DeliveryState
from bot.store import ListedMessage, MessageFilter, Page, PageKey, RoomFilter, RoomSummary
from plugins.sql.core.base import Access, AgentRow, SqlStorePart
from plugins.sql.core.memory_rows import MEMORY
from plugins.sql.core.schema import memories, participants, receipts, rooms
from plugins.sql.core.statements import (
    ListStatement,
    Row,
    Statement,
    limit_parameter,
    matches,
    position_key,
    take_page,
    typed_parameter,
)
from plugins.sql.core.values import datetime_of, id_of, microseconds_of
from plugins.sql.stores.deliveries import count_undelivered, list_undelivered
from plugins.sql.stores.memories import IN_ROOM_OF_KIND
from plugins.sql.stores.receipts import RECEIPT
from plugins.sql.stores.worlds import FIND_ROOMS, FIND_WORLDS, ROOM, WORLD

T = TypeVar("T")
MAX_POSITION = 2**62
MAX_EXAMINED_ROOMS = 5000
END: PageKey = (MAX_POSITION, MAX_POSITION)

ROOM_KEYS = (rooms.c.active, rooms.c.position)
# Rooms that were never active have the same `active`; the second condition leaves the range of the index as it is.
ROOM_IS_BEFORE = (
    rooms.c.active <= typed_parameter(rooms.c.active, "active"),
    (rooms.c.active < typed_parameter(rooms.c.active, "active"))
    | (rooms.c.position < typed_parameter(rooms.c.position, "before")),
)
NEWEST_ROOMS_FIRST = [key.desc() for key in ROOM_KEYS]
ROOM_FACTS = (*ROOM_KEYS, rooms.c.id, rooms.c.world_id, rooms.c.platform, rooms.c.name, rooms.c.external_id)


def _rooms_query(*columns: str) -> Statement:
    return Statement(
        lambda _: (
            select(*ROOM_FACTS)
            .where(matches(rooms, "agent_id", *columns), *ROOM_IS_BEFORE)
            .order_by(*NEWEST_ROOMS_FIRST)
            .limit(limit_parameter())
        )
    )


LIST_ROOMS, LIST_ROOMS_OF_WORLD = _rooms_query(), _rooms_query("world_id")
MUTED_ROOMS = ListStatement(
    lambda ids: select(participants.c.room_id).where(
        matches(participants, "agent_id", "entity_id"),
        participants.c.room_id.in_(ids),
        participants.c.attendance == literal_column(f"'{ParticipantState.MUTED}'"),
    )
)
RECEIPTS_OF_ROOM = (receipts.c.agent_id == rooms.c.agent_id, receipts.c.room_id == rooms.c.id)
SINGLE: ColumnElement[int] = literal_column("1")
LAST_RECEIVED = (
    select(receipts.c.received_at)
    .where(*RECEIPTS_OF_ROOM)
    .order_by(receipts.c.position.desc())
    .limit(SINGLE)
    .correlate(rooms)
    .scalar_subquery()
)
LAST_CREATED = (
    select(memories.c.created_at)
    .where(
        memories.c.agent_id == rooms.c.agent_id,
        memories.c.room_id == rooms.c.id,
        memories.c.kind == literal_column(f"'{MemoryKind.MESSAGE}'"),
    )
    .order_by(memories.c.position.desc())
    .limit(SINGLE)
    .correlate(rooms)
    .scalar_subquery()
)
COUNT_RECEIVED = (
    select(func.count())
    .select_from(receipts)
    .where(*RECEIPTS_OF_ROOM, receipts.c.position >= typed_parameter(receipts.c.position, "first"))
    .correlate(rooms)
    .scalar_subquery()
)
ROOM_ACTIVITY = ListStatement(
    lambda ids: select(rooms.c.id, COUNT_RECEIVED, LAST_RECEIVED, LAST_CREATED).where(
        matches(rooms, "agent_id"), rooms.c.id.in_(ids)
    )
)
RECEIVED_AT = Statement(
    lambda _: (
        select(receipts.c.position, receipts.c.received_at)
        .where(matches(receipts, "agent_id"), receipts.c.position <= typed_parameter(receipts.c.position, "position"))
        .order_by(receipts.c.position.desc())
        .limit(SINGLE)
    )
)
CREATED_AT = Statement(
    lambda _: (
        select(memories.c.position, memories.c.created_at)
        .where(IN_ROOM_OF_KIND, memories.c.position <= typed_parameter(memories.c.position, "position"))
        .order_by(memories.c.position.desc())
        .limit(SINGLE)
    )
)
MESSAGES_BEFORE = Statement(
    lambda _: (
        select(memories.c.position, *MEMORY)
        .where(IN_ROOM_OF_KIND, memories.c.position < typed_parameter(memories.c.position, "before"))
        .order_by(memories.c.position.desc())
        .limit(limit_parameter())
    )
)
MESSAGES_AFTER = Statement(
    lambda _: (
        select(memories.c.position, *MEMORY)
        .where(IN_ROOM_OF_KIND, memories.c.position > typed_parameter(memories.c.position, "after"))
        .order_by(memories.c.position)
        .limit(limit_parameter())
    )
)
OF_MESSAGES = matches(receipts, "agent_id")
RECEIPTS_OF = ListStatement(
    lambda ids: select(receipts.c.position, *RECEIPT).where(OF_MESSAGES, receipts.c.memory_id.in_(ids))
)
DECISIONS_OF = ListStatement(
    lambda ids: select(receipts.c.position, receipts.c.memory_id, receipts.c.outcome, receipts.c.rule).where(
        OF_MESSAGES, receipts.c.memory_id.in_(ids)
    )
)
ID, ENTITY_ID, CREATED = map(MEMORY.names.index, ("id", "entity_id", "created_at"))


def _first_position_since(find: Callable[[int], Row | None], since: int) -> int:
    """Return a position before which every row is older than a time, found by halving; rows arrive in order of time.

    `find` returns position and time of the last row up to a position.
    """
    last = find(MAX_POSITION)
    if last is None or last[1] < since:
        return MAX_POSITION if last is None else int(last[0]) + 1
    low, high = 0, int(last[0])  # the row at `high` is young enough, those up to `low` are not
    while high - low > 1:
        middle = (low + high) // 2
        row = find(middle)
        if row is None or row[1] < since:
            low = middle
        else:
            high = int(row[0])
    return high


def _list_rooms(
    agent_row: AgentRow, wanted: RoomFilter, first: int, before: PageKey, limit: int, connection: Connection
) -> Page[RoomSummary]:
    agent = agent_row.number
    is_filtered = wanted != RoomFilter()
    count = MAX_EXAMINED_ROOMS if is_filtered else limit + 1
    active, position = before
    if wanted.world_id is None:
        rows = LIST_ROOMS.rows(connection, agent, active, position, count)
    else:
        rows = LIST_ROOMS_OF_WORLD.rows(connection, agent, wanted.world_id.bytes, active, position, count)
    found = [row for row in rows if not is_filtered or _accepts_room(wanted, row)]
    page = found[:limit]
    if len(found) > limit:
        following: PageKey | None = _room_key(page[-1])
    else:
        following = _room_key(rows[-1]) if len(rows) == count else None
    summaries = _summarize_rooms(agent_row, [row[2] for row in page], first, connection)
    items = ((_room_key(row), summaries.get(id_of(row[2]))) for row in page)
    return Page(tuple((key, summary) for key, summary in items if summary is not None), following)


def _room_key(row: Row) -> PageKey:
    return (int(row[0]), int(row[1]))


def _accepts_room(wanted: RoomFilter, row: Row) -> bool:
    world_id, platform, name, external_id = row[3:]
    return wanted.accepts(platform=platform, world_id=id_of(world_id), name=name, external_id=external_id)


def _summarize_rooms(
    agent_row: AgentRow, ids: Sequence[bytes], first: int, connection: Connection
) -> dict[UUID, RoomSummary]:
    agent = agent_row.number
    found = list(ROOM.read_all(FIND_ROOMS.rows(connection, agent, ids=ids)))
    world_ids = list({room.world_id.bytes for room in found})
    worlds = {world.id: world for world in WORLD.read_all(FIND_WORLDS.rows(connection, agent, ids=world_ids))}
    muted = {row[0] for row in MUTED_ROOMS.rows(connection, agent, agent_row.id.bytes, ids=ids)}
    activity = {row[0]: row[1:] for row in ROOM_ACTIVITY.rows(connection, first, agent, ids=ids)}
    summaries = {}
    for room in found:
        count, received_at, created_at = activity[room.id.bytes]
        last = received_at if received_at is not None else created_at
        world = worlds.get(room.world_id)
        summaries[room.id] = RoomSummary(
            room,
            world.name if world else "",
            room.id.bytes in muted,
            None if last is None else datetime_of(last),
            count,
        )
    return summaries


def _find_rooms(agent: int, ids: Sequence[bytes], connection: Connection) -> dict[UUID, Room]:
    return {room.id: room for room in ROOM.read_all(FIND_ROOMS.rows(connection, agent, ids=ids))}


def _list_messages(
    agent: int, room_id: UUID, wanted: MessageFilter, before: int, limit: int, connection: Connection
) -> Page[ListedMessage]:
    key = (agent, room_id.bytes, MemoryKind.MESSAGE.value)
    if wanted.until is not None:
        end = _first_position_since(
            lambda position: CREATED_AT.first(connection, *key, position), microseconds_of(wanted.until)
        )
        before = min(before, end)
    if wanted == MessageFilter(until=wanted.until):
        rows = MESSAGES_BEFORE.rows(connection, *key, before, limit + 1)
        following = rows[limit - 1][0] if len(rows) > limit else None
        return Page(_with_receipts(agent, rows[:limit], connection), position_key(following))
    since = None if wanted.since is None else microseconds_of(wanted.since)

    def fetch(position: int, count: int) -> Sequence[Row]:
        rows = MESSAGES_BEFORE.rows(connection, *key, position, count)
        if since is not None and rows and all(row[1 + CREATED] < since for row in rows):
            return ()  # the rest is older still
        return rows

    found, following = take_page(fetch, partial(_accept_messages, agent, wanted, connection), before, limit)
    return Page(_with_receipts(agent, found, connection), position_key(following))


def _accept_messages(agent: int, wanted: MessageFilter, connection: Connection, rows: Sequence[Row]) -> list[bool]:
    decisions: dict[bytes, tuple[Outcome, str]] = {}
    if wanted.outcomes or wanted.rules:
        ids = [row[1 + ID] for row in rows]
        latest_last = sorted(DECISIONS_OF.rows(connection, agent, ids=ids), key=lambda row: int(row[0]))
        decisions = {row[1]: (Outcome(row[2]), row[3]) for row in latest_last}
    return [
        wanted.accepts(id_of(row[1 + ENTITY_ID]), datetime_of(row[1 + CREATED]), decisions.get(row[1 + ID]))
        for row in rows
    ]


def _with_receipts(
    agent: int, rows: Sequence[Row], connection: Connection
) -> tuple[tuple[PageKey, ListedMessage], ...]:
    found = _receipts_of(agent, [row[1 + ID] for row in rows], connection)
    listed = [((int(row[0]),), memory) for row in rows if (memory := MEMORY.read_or_report(row[1:])) is not None]
    return tuple((key, ListedMessage(memory, found.get(memory.id))) for key, memory in listed)


def _receipts_of(agent: int, ids: Sequence[bytes], connection: Connection) -> dict[UUID, Receipt]:
    rows = sorted(RECEIPTS_OF.rows(connection, agent, ids=ids), key=lambda row: int(row[0]))
    return {receipt.memory_id: receipt for receipt in RECEIPT.read_all(row[1:] for row in rows)}


class SqlLists(SqlStorePart):
    """Reads lists; see `ListStore`."""

    def __init__(self, database: Access, agent_row: AgentRow) -> None:
        super().__init__(database, agent_row)
        self._first_receipts: dict[datetime, int] = {}  # the position at which the receipts since a time begin

    async def rooms(
        self, wanted: RoomFilter, *, counted_since: datetime, before: PageKey | None = None, limit: int = 50
    ) -> Page[RoomSummary]:
        first = self._first_receipts.get(counted_since)
        if first is None:
            first = await self._database.search(partial(_find_first_receipt, self._agent, counted_since))
            if first != MAX_POSITION:
                self._first_receipts = {counted_since: first}
        return await self._database.search(partial(_list_rooms, self._agent_row, wanted, first, before or END, limit))

    async def rooms_by_id(self, ids: Collection[UUID]) -> dict[UUID, Room]:
        keys = [room_id.bytes for room_id in ids]
        return await self._database.search(partial(_find_rooms, self._agent, keys)) if keys else {}

    async def messages(
        self, room_id: UUID, wanted: MessageFilter, *, before: PageKey | None = None, limit: int = 50
    ) -> Page[ListedMessage]:
        position = (before or END)[0]
        return await self._database.search(partial(_list_messages, self._agent, room_id, wanted, position, limit))

    async def messages_after(self, room_id: UUID, after: PageKey, limit: int = 50) -> Page[ListedMessage]:
        return await self._database.search(partial(_list_messages_after, self._agent, room_id, after[0], limit))

    async def receipts_of(self, message_ids: Collection[UUID]) -> dict[UUID, Receipt]:
        keys = [message_id.bytes for message_id in message_ids]
        return await self._database.search(lambda db: _receipts_of(self._agent, keys, db)) if keys else {}

    async def deliveries(
        self, states: Collection[DeliveryState], *, before: PageKey | None = None, limit: int = 50
    ) -> Page[Delivery]:
        position = (before or END)[0]
        return await self._database.search(partial(list_undelivered, self._agent, frozenset(states), position, limit))

    async def count_deliveries(self, *, without_cause: str = "") -> Mapping[DeliveryState, int]:
        return await self._database.search(partial(count_undelivered, self._agent, without_cause))


def _find_first_receipt(agent: int, since: datetime, connection: Connection) -> int:
    return _first_position_since(
        lambda position: RECEIVED_AT.first(connection, agent, position), microseconds_of(since)
    )


def _list_messages_after(
    agent: int, room_id: UUID, after: int, limit: int, connection: Connection
) -> Page[ListedMessage]:
    key = (agent, room_id.bytes, MemoryKind.MESSAGE.value)
    rows = MESSAGES_AFTER.rows(connection, *key, after, limit + 1)
    following = rows[limit - 1][0] if len(rows) > limit else None
    return Page(_with_receipts(agent, rows[:limit], connection), position_key(following))
