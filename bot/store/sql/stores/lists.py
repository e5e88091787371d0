"""Lists for operators, page by page; no page examines more than some thousand rows, whatever is filtered."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, ScalarSelect, Select

from bot.domain.environment import ParticipantState, Room
from bot.domain.ledger import Delivery, DeliveryState, Outcome, Receipt
from bot.domain.memory import MemoryKind
from bot.store.lists import ListedMessage, MessageFilter, Page, PageKey, RoomFilter, RoomSummary
from bot.store.sql.core.base import Access, AgentRow, SqlStorePart, searches
from bot.store.sql.core.mapping import (
    LIMIT,
    Row,
    is_flag,
    matches,
    parameter,
    position_key,
    rows_of,
    take_page,
    text_literal,
)
from bot.store.sql.core.schema import UNDECIDED, UNFINISHED, deliveries, memories, participants, receipts, rooms
from bot.store.sql.stores.ledger import DELIVERY, OPEN_STATES, RECEIPT
from bot.store.sql.stores.memories import IN_ROOM_OF_KIND, MEMORY, hide_memories
from bot.store.sql.stores.worlds import find_rooms, find_worlds

T = TypeVar("T")
MAX_POSITION = 2**62
MAX_EXAMINED_ROOMS = 5000
END: PageKey = (MAX_POSITION, MAX_POSITION)

ROOM_KEYS = (rooms.c.active, rooms.c.position)
ACTIVE = parameter(rooms.c.active, "last_active")
# Rooms that were never active have the same `active`; the second condition leaves the range of the index as it is.
ROOM_IS_BEFORE = (rooms.c.active <= ACTIVE, (rooms.c.active < ACTIVE) | (rooms.c.position < sa.bindparam("before")))
ROOM_FACTS = (*ROOM_KEYS, rooms.c.id, rooms.c.world_id, rooms.c.platform, rooms.c.name, rooms.c.external_id)


def _rooms_query(*columns: str) -> Select[Any]:
    newest_first = (key.desc() for key in ROOM_KEYS)
    query = sa.select(*ROOM_FACTS).where(matches(rooms, *columns), *ROOM_IS_BEFORE)
    return query.order_by(*newest_first).limit(LIMIT)


LIST_ROOMS, LIST_ROOMS_OF_WORLD = _rooms_query(), _rooms_query("world_id")
MUTED_ROOMS = sa.select(participants.c.room_id).where(
    matches(participants, "entity_id"),
    participants.c.room_id.in_(sa.bindparam("items")),
    participants.c.state == text_literal(ParticipantState.MUTED),
)
SINGLE: ColumnElement[int] = sa.literal_column("1")
RECEIPTS_OF_ROOM = sa.and_(receipts.c.agent_id == rooms.c.agent_id, receipts.c.room_id == rooms.c.id)
MESSAGES_OF_ROOM = sa.and_(
    memories.c.agent_id == rooms.c.agent_id,
    memories.c.room_id == rooms.c.id,
    memories.c.kind == text_literal(MemoryKind.MESSAGE),
)


def _last_in_room(column: ColumnElement[Any], position: ColumnElement[int], condition: Any) -> ScalarSelect[Any]:
    last = sa.select(column).where(condition).order_by(position.desc()).limit(SINGLE)
    return last.correlate(rooms).scalar_subquery()


COUNT_RECEIVED = (
    sa.select(sa.func.count())
    .select_from(receipts)
    .where(RECEIPTS_OF_ROOM, receipts.c.position >= sa.bindparam("first"))
    .correlate(rooms)
    .scalar_subquery()
)
ROOM_ACTIVITY = sa.select(
    rooms.c.id,
    COUNT_RECEIVED,
    _last_in_room(receipts.c.received_at, receipts.c.position, RECEIPTS_OF_ROOM),
    _last_in_room(memories.c.created_at, memories.c.position, MESSAGES_OF_ROOM),
).where(matches(rooms), rooms.c.id.in_(sa.bindparam("items")))
RECEIVED_AT = (
    sa.select(receipts.c.position, receipts.c.received_at)
    .where(matches(receipts), receipts.c.position <= sa.bindparam("last"))
    .order_by(receipts.c.position.desc())
    .limit(SINGLE)
)
CREATED_AT = (
    sa.select(memories.c.position, memories.c.created_at)
    .where(IN_ROOM_OF_KIND, memories.c.position <= sa.bindparam("last"))
    .order_by(memories.c.position.desc())
    .limit(SINGLE)
)
MESSAGES_BEFORE = (
    sa.select(*MEMORY, memories.c.position)
    .where(IN_ROOM_OF_KIND, memories.c.position < sa.bindparam("before"))
    .order_by(memories.c.position.desc())
    .limit(LIMIT)
)
MESSAGES_AFTER = (
    sa.select(*MEMORY, memories.c.position)
    .where(IN_ROOM_OF_KIND, memories.c.position > sa.bindparam("after"))
    .order_by(memories.c.position)
    .limit(LIMIT)
)
ARE_OF_MESSAGES = sa.and_(matches(receipts), receipts.c.memory_id.in_(sa.bindparam("items")))
RECEIPTS_OF = sa.select(*RECEIPT, receipts.c.position).where(ARE_OF_MESSAGES)
DECISIONS_OF = sa.select(receipts.c.memory_id, receipts.c.outcome, receipts.c.rule, receipts.c.position).where(
    ARE_OF_MESSAGES
)


def _undelivered_query(*conditions: Any) -> Select[Any]:
    return (
        sa.select(*DELIVERY, deliveries.c.position)
        .where(matches(deliveries), *conditions, deliveries.c.position < sa.bindparam("before"))
        .order_by(deliveries.c.position.desc())
        .limit(LIMIT)
    )


LIST_UNDELIVERED = _undelivered_query(sa.text(UNFINISHED))
LIST_OPEN = _undelivered_query(is_flag(deliveries.c.is_open))
LIST_UNDECIDED: dict[tuple[DeliveryState, ...], Select[Any]] = {
    (state,): _undelivered_query(sa.text(f"state = '{state}'"))
    for state in (DeliveryState.UNKNOWN, DeliveryState.FAILED)
}
COUNT_UNDECIDED = (
    sa.select(deliveries.c.state, sa.func.count())
    .where(matches(deliveries), sa.text(f"({UNDECIDED})"), deliveries.c.cause != sa.bindparam("cause"))
    .group_by(deliveries.c.state)
)
COUNT_OPEN = sa.select(deliveries.c.state).where(matches(deliveries), is_flag(deliveries.c.is_open))
ID, ENTITY_ID, CREATED = map(MEMORY.names.index, ("id", "entity_id", "created_at"))


def _first_position_since(find: Callable[[int], Row | None], since: datetime) -> int:
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


def _room_key(row: Row) -> PageKey:
    return (int(row[0]), int(row[1]))


def _accepts_room(wanted: RoomFilter, row: Row) -> bool:
    world_id, platform, name, external_id = row[3:]
    return wanted.accepts(platform=platform, world_id=world_id, name=name, external_id=external_id)


def _summarize_rooms(
    connection: Connection, agent_row: AgentRow, ids: Sequence[UUID], first: int
) -> dict[UUID, RoomSummary]:
    agent = agent_row.number
    found = find_rooms(connection, agent, ids)
    worlds = find_worlds(connection, agent, {room.world_id for room in found.values()})
    muted = {row[0] for row in rows_of(connection, MUTED_ROOMS, ids, agent=agent, entity_id_=agent_row.id)}
    activity = {row[0]: row[1:] for row in rows_of(connection, ROOM_ACTIVITY, ids, agent=agent, first=first)}
    summaries = {}
    for room_id, room in found.items():
        count, received_at, created_at = activity[room_id]
        world = worlds.get(room.world_id)
        last = created_at if received_at is None else received_at
        room = agent_row.hide_name(room)
        summaries[room_id] = RoomSummary(room, world.name if world else "", room_id in muted, last, count)
    return summaries


def _accept_messages(connection: Connection, agent: int, wanted: MessageFilter, rows: Sequence[Row]) -> list[bool]:
    decisions: dict[UUID, tuple[Outcome, str]] = {}
    if wanted.outcomes or wanted.rules:
        found = rows_of(connection, DECISIONS_OF, [row[ID] for row in rows], agent=agent)
        latest_last = sorted(found, key=lambda row: int(row[-1]))
        decisions = {row[0]: (row[1], row[2]) for row in latest_last}
    return [wanted.accepts(row[ENTITY_ID], row[CREATED], decisions.get(row[ID])) for row in rows]


def _page_of(connection: Connection, agent_row: AgentRow, rows: Sequence[Row], limit: int) -> Page[ListedMessage]:
    """Return the page of rows of which one more than its limit was read."""
    following = rows[limit - 1][-1] if len(rows) > limit else None
    return Page(_with_receipts(connection, agent_row, rows[:limit]), position_key(following))


def _find_receipts(connection: Connection, agent: int, message_ids: Collection[UUID]) -> dict[UUID, Receipt]:
    rows = sorted(rows_of(connection, RECEIPTS_OF, message_ids, agent=agent), key=lambda row: int(row[-1]))
    return {receipt.memory_id: receipt for receipt in RECEIPT.read_all(rows)}


def _with_receipts(
    connection: Connection, agent_row: AgentRow, rows: Sequence[Row]
) -> tuple[tuple[PageKey, ListedMessage], ...]:
    found = _find_receipts(connection, agent_row.number, [row[ID] for row in rows])
    positions = {row[ID]: (int(row[-1]),) for row in rows}
    listed = hide_memories(connection, agent_row, list(MEMORY.read_all(rows)))
    return tuple((positions[memory.id], ListedMessage(memory, found.get(memory.id))) for memory in listed)


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
            first = await self._find_first_receipt(counted_since)
            if first != MAX_POSITION:
                self._first_receipts = {counted_since: first}
        return await self._list_rooms(wanted, first, before or END, limit)

    @searches
    def _find_first_receipt(self, connection: Connection, since: datetime) -> int:
        return _first_position_since(
            lambda position: connection.execute(RECEIVED_AT, {"agent": self._agent, "last": position}).first(), since
        )

    @searches
    def _list_rooms(
        self, connection: Connection, wanted: RoomFilter, first: int, before: PageKey, limit: int
    ) -> Page[RoomSummary]:
        is_filtered = wanted != RoomFilter()
        count = MAX_EXAMINED_ROOMS if is_filtered else limit + 1
        values = {"agent": self._agent, "last_active": before[0], "before": before[1], "limit": count}
        if wanted.world_id is None:
            rows = connection.execute(LIST_ROOMS, values).all()
        else:
            rows = connection.execute(LIST_ROOMS_OF_WORLD, {**values, "world_id_": wanted.world_id}).all()
        found = [row for row in rows if not is_filtered or _accepts_room(wanted, row)]
        page = found[:limit]
        if len(found) > limit:
            following: PageKey | None = _room_key(page[-1])
        else:
            following = _room_key(rows[-1]) if len(rows) == count else None
        summaries = _summarize_rooms(connection, self._agent_row, [row[2] for row in page], first)
        items = ((_room_key(row), summaries.get(row[2])) for row in page)
        return Page(tuple((key, summary) for key, summary in items if summary is not None), following)

    async def rooms_by_id(self, ids: Collection[UUID]) -> dict[UUID, Room]:
        found = await self._database.search(lambda db: find_rooms(db, self._agent, ids)) if ids else {}
        return {room_id: self._agent_row.hide_name(room) for room_id, room in found.items()}

    @searches
    def messages(
        self,
        connection: Connection,
        room_id: UUID,
        wanted: MessageFilter,
        *,
        before: PageKey | None = None,
        limit: int = 50,
    ) -> Page[ListedMessage]:
        key = self._messages_key(room_id)
        end = (before or END)[0]
        if wanted.until is not None:
            end_of_time = _first_position_since(
                lambda position: connection.execute(CREATED_AT, {**key, "last": position}).first(), wanted.until
            )
            end = min(end, end_of_time)
        if wanted == MessageFilter(until=wanted.until):
            rows = connection.execute(MESSAGES_BEFORE, {**key, "before": end, "limit": limit + 1}).all()
            return _page_of(connection, self._agent_row, rows, limit)

        def fetch(position: int, count: int) -> Sequence[Row]:
            rows = connection.execute(MESSAGES_BEFORE, {**key, "before": position, "limit": count}).all()
            if wanted.since is not None and rows and all(row[CREATED] < wanted.since for row in rows):
                return ()  # the rest is older still
            return rows

        found, following = take_page(fetch, partial(_accept_messages, connection, self._agent, wanted), end, limit)
        return Page(_with_receipts(connection, self._agent_row, found), position_key(following))

    @searches
    def messages_after(
        self, connection: Connection, room_id: UUID, after: PageKey, limit: int = 50
    ) -> Page[ListedMessage]:
        values = {**self._messages_key(room_id), "after": after[0], "limit": limit + 1}
        rows = connection.execute(MESSAGES_AFTER, values).all()
        return _page_of(connection, self._agent_row, rows, limit)

    def _messages_key(self, room_id: UUID) -> dict[str, Any]:
        return {"agent": self._agent, "room_id_": room_id, "kind_": MemoryKind.MESSAGE}

    @searches
    def receipts_of(self, connection: Connection, message_ids: Collection[UUID]) -> dict[UUID, Receipt]:
        return _find_receipts(connection, self._agent, message_ids)

    @searches
    def deliveries(
        self,
        connection: Connection,
        states: Collection[DeliveryState],
        *,
        before: PageKey | None = None,
        limit: int = 50,
    ) -> Page[Delivery]:
        wanted = frozenset(states)
        is_open = wanted <= frozenset(OPEN_STATES)
        statement = LIST_OPEN if is_open else LIST_UNDECIDED.get(tuple(wanted), LIST_UNDELIVERED)
        state = DELIVERY.names.index("state")

        def fetch(position: int, count: int) -> Sequence[Row]:
            values = {"agent": self._agent, "before": position, "limit": count}
            return connection.execute(statement, values).all()

        end = (before or END)[0]
        rows, following = take_page(fetch, lambda rows: [row[state] in wanted for row in rows], end, limit)
        items = (((int(row[-1]),), delivery) for row in rows if (delivery := DELIVERY.read_or_report(row)) is not None)
        return Page(tuple(items), position_key(following))

    @searches
    def count_deliveries(self, connection: Connection, *, without_cause: str = "") -> Mapping[DeliveryState, int]:
        counts = dict.fromkeys((*OPEN_STATES, DeliveryState.UNKNOWN, DeliveryState.FAILED), 0)
        values = {"agent": self._agent, "cause": without_cause or "\uffff"}
        for state, count in connection.execute(COUNT_UNDECIDED, values):
            counts[state] = int(count)
        for state in connection.execute(COUNT_OPEN, {"agent": self._agent}).scalars():
            counts[state] += 1
        return counts
