"""Receipts of inbound messages: their rows, look-ups, states, and the lists for operators.

Lists of all rooms are read in the order of `ix_receipts_time`, which holds every column that is filtered, so that a
rare rule is found without reading the receipts that do not match. Those of one room, at any time, are read in the order
of arrival.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    and_,
    func,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
    union_all,
    update,
)

from bot.domain.ledger import EventKey, ModelCall, Outcome, Receipt
from bot.store.ledger import ListedReceipt, ReceiptCount, ReceiptQuery
from bot.store.sql.core.base import SqlStorePart
from bot.store.sql.core.mapping import (
    InsertStatement,
    RowMapping,
    insert_if_new,
    is_flag,
    items_parameter,
    limit_parameter,
    matches,
    parameter,
    rows_of,
    storable_text,
)
from bot.store.sql.core.schema import receipts
from bot.store.sql.stores.memories import find_memories
from bot.store.sql.stores.worlds import find_entities, find_rooms, find_worlds

KEY_FIELDS = ("platform", "account", "event_id", "message_id", "revision")


def _build_receipt(
    *, platform: str, account: str, event_id: str, message_id: str, revision: int, room_id: UUID, **values: Any
) -> Receipt:
    return Receipt(key=EventKey(platform, account, event_id, room_id, message_id, revision), room_id=room_id, **values)


def _derive_columns(receipt: Receipt) -> dict[str, Any]:
    key = {name: getattr(receipt.key, name) for name in KEY_FIELDS}
    return {**key, "is_open": not receipt.outcome.is_final}


RECEIPT = RowMapping(receipts, Receipt, build=_build_receipt, derive=_derive_columns, unread=["is_open"])
STATE_NAMES = RECEIPT.stored_names[RECEIPT.stored_names.index("outcome") :]  # the others never change
IN_ROOM = matches(receipts, "room_id")
NEWEST_FIRST = receipts.c.position.desc()
EVENT_KEY = (receipts.c.platform, receipts.c.account, receipts.c.event_id)
MESSAGE_KEY = (receipts.c.room_id, receipts.c.message_id, receipts.c.revision)
MAX_KEYS = 64  # of a statement

INSERT_IF_NEW = insert_if_new(receipts, RECEIPT.stored_names)
INSERT_RECEIPT = InsertStatement(receipts, RECEIPT.stored_names)
SET_STATE = (
    update(receipts)
    .where(matches(receipts, "id"))
    .values({name: parameter(receipts.c[name], name) for name in STATE_NAMES})
)
SAVE_RECEIPT = SET_STATE.where(is_flag(receipts.c.is_open))
FIND_RECEIPT = select(*RECEIPT).where(matches(receipts, "id"))
FIND_RECEIPTS = select(*RECEIPT).where(matches(receipts), receipts.c.id.in_(items_parameter(receipts.c.id)))
FIND_BY_MEMORY = select(*RECEIPT).where(matches(receipts, "memory_id")).order_by(NEWEST_FIRST).limit(limit_parameter())
BY_POSITION = select(*RECEIPT, receipts.c.position).where(receipts.c.position.in_(items_parameter(receipts.c.position)))
FIND_PLACE = select(receipts.c.received_at, receipts.c.position).where(matches(receipts, "id"))
UNEVALUATED = (
    select(*RECEIPT)
    .where(matches(receipts), is_flag(receipts.c.is_evaluated, is_set=False))
    .order_by(receipts.c.position)
    .limit(limit_parameter())
)
MARK_EVALUATED = (
    update(receipts)
    .where(matches(receipts), receipts.c.id.in_(items_parameter(receipts.c.id)))
    .values(is_evaluated=literal_column("1"))
)


def _receipts_query(*, is_open: bool | None, in_room: bool) -> Select[Any]:
    query = select(*RECEIPT).where(IN_ROOM if in_room else matches(receipts))
    if is_open is not None:
        query = query.where(is_flag(receipts.c.is_open, is_set=is_open))
    return query.order_by(NEWEST_FIRST).limit(limit_parameter())


RECEIPT_LISTS = {
    (is_open, in_room): _receipts_query(is_open=is_open, in_room=in_room)
    for is_open in (None, True, False)
    for in_room in (False, True)
}


@cache
def select_by_keys(count: int) -> CompoundSelect[Any]:
    """Return the query for some events by either key; only with a condition for each event SQLite uses the indexes."""
    queries = []
    for key in (EVENT_KEY, MESSAGE_KEY):
        events = (
            and_(matches(receipts), *(column == parameter(column, f"{column.name}_{number}") for column in key))
            for number in range(count)
        )
        queries.append(select(*RECEIPT).where(or_(*events)))
    return union_all(*queries)


def find_by_keys(connection: Connection, agent: int, keys: Sequence[EventKey]) -> dict[object, Receipt]:
    """Find the receipts of events, by the transport's key or by the message's."""
    by_key: dict[object, Receipt] = {}
    for start in range(0, len(keys), MAX_KEYS):
        batch = keys[start : start + MAX_KEYS]
        size = 1 << (len(batch) - 1).bit_length()  # few sizes, filled by repetition
        values: dict[str, Any] = {"agent": agent}
        for number in range(size):
            key = batch[min(number, len(batch) - 1)]
            values |= {f"{column.name}_{number}": getattr(key, column.name) for column in (*EVENT_KEY, *MESSAGE_KEY)}
        for receipt in map(RECEIPT.read, connection.execute(select_by_keys(size), values)):
            by_key[event_key(receipt.key)] = by_key[message_key(receipt.key)] = receipt
    return by_key


def insert_receipts(connection: Connection, agent: int, receipts: Sequence[Receipt]) -> None:
    """Insert receipts of stored messages."""
    INSERT_RECEIPT.execute_all(connection, [RECEIPT.values(receipt, agent) for receipt in receipts])


def save_receipts(connection: Connection, agent: int, changed: Sequence[Receipt]) -> int:
    """Store the new state of open receipts; return how many were open."""
    return sum(connection.execute(SAVE_RECEIPT, state_values(agent, receipt)).rowcount for receipt in changed)


def state_values(agent: int, receipt: Receipt) -> dict[str, Any]:
    """Return the values of `SET_STATE` for a receipt."""
    values = RECEIPT.values(receipt, agent)
    return {"agent": agent, "id_": receipt.id, **{name: values[name] for name in STATE_NAMES}}


def add_model_calls(agent: int, receipt_id: UUID, calls: Sequence[ModelCall], connection: Connection) -> bool:
    """Add model calls to a closed receipt; return False if it is open or unknown."""
    row = connection.execute(FIND_RECEIPT, {"agent": agent, "id_": receipt_id}).first()
    receipt = RECEIPT.read(row) if row else None
    if receipt is None or not receipt.outcome.is_final:
        return False
    of_receipt = (receipts.c.agent_id == agent, receipts.c.id == receipt_id)
    connection.execute(update(receipts).where(*of_receipt).values(model_calls=(*receipt.model_calls, *calls)))
    return True


def find_receipt(agent: int, searched_id: UUID, connection: Connection) -> Receipt | None:
    """Return a receipt by its id, or the latest by the id of its memory."""
    row = connection.execute(FIND_RECEIPT, {"agent": agent, "id_": searched_id}).first()
    if row is None:
        row = connection.execute(FIND_BY_MEMORY, {"agent": agent, "memory_id_": searched_id, "limit": 1}).first()
    return RECEIPT.read(row) if row else None


def list_receipts(
    agent: int, room_id: UUID | None, is_open: bool | None, limit: int, connection: Connection
) -> list[Receipt]:
    """Return matching receipts, newest first."""
    values = {"agent": agent, "limit": limit} | ({} if room_id is None else {"room_id_": room_id})
    return list(RECEIPT.read_all(connection.execute(RECEIPT_LISTS[is_open, room_id is not None], values)))


def event_key(key: EventKey) -> tuple[Any, ...]:
    """Return what identifies an event on its transport."""
    return (storable_text(key.platform), storable_text(key.account), storable_text(key.event_id))


def message_key(key: EventKey) -> tuple[Any, ...]:
    """Return what identifies a revision of a message in its room."""
    return (key.room_id, storable_text(key.message_id), key.revision)


def select_page(
    agent: int, query: ReceiptQuery, last: tuple[Any, int] | None, limit: int, *, is_oldest_first: bool = False
) -> Select[Any]:
    """Return the query for the positions of a page; `last` are time and position of the receipt before it."""
    columns = receipts.c
    statement = select(columns.position).where(*_conditions(agent, query)).limit(limit)
    is_by_position = query.room_id is not None and query.since is None and query.until is None
    keys: list[Any] = [columns.position] if is_by_position else [columns.received_at, columns.position]
    if last is not None:
        place = tuple_(*(literal(value, key.type) for key, value in zip(keys, last[-len(keys) :], strict=True)))
        key = tuple_(*keys)
        statement = statement.where(key > place if is_oldest_first else key < place)
    return statement.order_by(*(key if is_oldest_first else key.desc() for key in keys))


def select_counts(agent: int, query: ReceiptQuery) -> Select[Any]:
    """Return the query for the number of receipts by outcome and rule, with the position of the latest."""
    columns = receipts.c
    group = (columns.outcome, columns.rule)
    return select(*group, func.count(), func.max(columns.position)).where(*_conditions(agent, query)).group_by(*group)


def _conditions(agent: int, query: ReceiptQuery) -> Iterator[ColumnElement[bool]]:
    columns = receipts.c
    yield columns.agent_id == agent
    if query.room_id is not None:
        yield columns.room_id == query.room_id
    if query.since is not None:
        yield columns.received_at >= query.since
    if query.until is not None:
        yield columns.received_at < query.until
    if query.author_id is not None:
        yield _unindexed(columns.author_id) == query.author_id
    if query.outcomes:
        yield columns.outcome.in_(list(query.outcomes))
    if query.rules:
        yield columns.rule.in_(list(query.rules))
    if query.platforms:
        yield _unindexed(columns.platform).in_(list(query.platforms))


def _unindexed(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the column in a form for which no index is chosen: in that of the event's key rows are not in order."""
    return func.coalesce(column, column)


def search_receipts(
    agent: int, query: ReceiptQuery, before: UUID | None, after: UUID | None, limit: int, connection: Connection
) -> list[ListedReceipt]:
    """Return a page of receipts with the rows that they name."""
    last, place = None, before or after
    if place is not None:
        row = connection.execute(FIND_PLACE, {"agent": agent, "id_": place}).first()
        if row is None:  # deleted meanwhile, and all that are older
            return []
        last = (row[0], row[1])
    is_oldest_first = before is None and after is not None
    positions = list(connection.scalars(select_page(agent, query, last, limit, is_oldest_first=is_oldest_first)))
    by_position = _receipts_at(connection, positions)
    return _complete(connection, agent, [by_position[position] for position in positions if position in by_position])


def _receipts_at(connection: Connection, positions: Sequence[int]) -> dict[int, Receipt]:
    rows = rows_of(connection, BY_POSITION, positions)
    return {row[-1]: receipt for row in rows if (receipt := RECEIPT.read_or_report(row)) is not None}


def _complete(connection: Connection, agent: int, page: Sequence[Receipt]) -> list[ListedReceipt]:
    """Add messages, authors, rooms and worlds, one statement for each."""
    messages = find_memories(connection, agent, [receipt.memory_id for receipt in page])
    authors = find_entities(connection, agent, {receipt.author_id for receipt in page})
    rooms = find_rooms(connection, agent, {receipt.room_id for receipt in page})
    worlds = find_worlds(connection, agent, {room.world_id for room in rooms.values()})
    listed = []
    for receipt in page:
        room = rooms.get(receipt.room_id)
        world = worlds.get(room.world_id) if room else None
        listed.append(
            ListedReceipt(receipt, messages.get(receipt.memory_id), authors.get(receipt.author_id), room, world)
        )
    return listed


def count_receipts(agent: int, query: ReceiptQuery, connection: Connection) -> list[ReceiptCount]:
    """Return the counts by outcome and rule, with the latest receipt of each."""
    rows = connection.execute(select_counts(agent, query)).all()
    examples = _receipts_at(connection, [row[3] for row in rows])
    counts = [ReceiptCount(Outcome(row[0]), row[1], row[2], examples[row[3]]) for row in rows if row[3] in examples]
    return sorted(counts, key=lambda item: -item.count)


class SqlReceiptLists(SqlStorePart):
    """Lists and counts receipts; see `LookupStore`."""

    async def search_receipts(
        self, query: ReceiptQuery, *, before: UUID | None = None, after: UUID | None = None, limit: int = 50
    ) -> list[ListedReceipt]:
        return await self._database.search(partial(search_receipts, self._agent, query, before, after, limit))

    async def count_receipts(self, query: ReceiptQuery) -> list[ReceiptCount]:
        return await self._database.search(partial(count_receipts, self._agent, query))
