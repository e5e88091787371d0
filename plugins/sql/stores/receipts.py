"""Receipts of inbound messages: their rows, look-ups, states, and the lists for operators.

Lists of all rooms are read in the order of `ix_receipts_time`, which holds every column that is filtered, so that a
rare rule is found without reading the receipts that do not match. Those of one room, at any time, are read in the order
of arrival.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from operator import eq
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    and_,
    func,
    literal_column,
    or_,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.sql.expression import Executable

from bot import Outcome, Receipt
from bot.models import ModelCall
from bot.platform import EventKey
from bot.store import ListedReceipt, ReceiptCount, ReceiptQuery
from plugins.sql.core.base import SqlStorePart
from plugins.sql.core.inserts import insert_into, insert_rows
from plugins.sql.core.schema import receipts
from plugins.sql.core.statements import (
    Columns,
    ListStatement,
    Row,
    Statement,
    column_names,
    flag_equals,
    limit_parameter,
    matches,
    typed_parameter,
)
from plugins.sql.core.values import (
    datetime_of,
    datetime_or_none,
    dumps,
    id_bytes,
    id_of,
    id_or_none,
    loads,
    microseconds_of,
    microseconds_or_none,
    storable_text,
)
from plugins.sql.stores.entities import find_entities
from plugins.sql.stores.memories import FIND_MEMORIES, read_memories
from plugins.sql.stores.worlds import FIND_ROOMS, FIND_WORLDS, ROOM, WORLD

RECEIPT_NAMES = column_names(receipts)
RECEIPT_STATE_NAMES = RECEIPT_NAMES[RECEIPT_NAMES.index("outcome") :]  # the others never change
OF_AGENT = matches(receipts, "agent_id")
IN_ROOM = matches(receipts, "room_id")
NEWEST_FIRST = receipts.c.position.desc()
EVENT_KEY = (receipts.c.platform, receipts.c.account, receipts.c.event_id)
MESSAGE_KEY = (receipts.c.room_id, receipts.c.message_id, receipts.c.revision)
UNIQUE_KEYS = (*EVENT_KEY, *MESSAGE_KEY)
CALL_FIELDS = tuple(field.name for field in fields(ModelCall))


def _read_receipt(row: Row) -> Receipt:
    receipt_id, platform, account, event_id, room_id, message_id, revision, author_id, memory_id, *rest = row
    received_at, outcome, reason, rule, turn_id, superseded_by, attempts, *state = rest
    carried, claimed_at, closed_at, model_calls, notes, is_learnt = state
    room = id_of(room_id)
    return Receipt(
        id=id_of(receipt_id),
        key=EventKey(platform, account, event_id, room, message_id, revision),
        room_id=room,
        author_id=id_of(author_id),
        memory_id=id_of(memory_id),
        received_at=datetime_of(received_at),
        outcome=Outcome(outcome),
        reason=reason,
        rule=rule,
        turn_id=id_or_none(turn_id),
        superseded_by=id_or_none(superseded_by),
        attempts=attempts,
        supersede_count=carried,
        claimed_at=datetime_or_none(claimed_at),
        closed_at=datetime_or_none(closed_at),
        model_calls=tuple(ModelCall(**call) for call in loads(model_calls)),
        notes=tuple(loads(notes)),
        is_evaluated=bool(is_learnt),
    )


RECEIPT = Columns(receipts, RECEIPT_NAMES[1:-1], _read_receipt)
INSERT_IF_NEW = Statement(lambda insert: insert_into(receipts, RECEIPT_NAMES)(insert).on_conflict_do_nothing())
INSERT_RECEIPT = insert_rows(receipts, RECEIPT_NAMES)
SAVE_RECEIPT = Statement(
    lambda _: (
        update(receipts)
        .where(OF_AGENT, matches(receipts, "id"), flag_equals(receipts.c.is_open))
        .values({name: typed_parameter(receipts.c[name], name) for name in RECEIPT_STATE_NAMES})
    )
)

SET_CALLS = Statement(
    lambda _: (
        update(receipts)
        .where(OF_AGENT, matches(receipts, "id"))
        .values(model_calls=typed_parameter(receipts.c.model_calls, "model_calls"))
    )
)


def _select_by_keys(items: Sequence[BindParameter[Any]]) -> Executable:
    """Select by the transport's key or by the message's; each has its own index."""
    per_item = list(zip(*[iter(items)] * len(UNIQUE_KEYS), strict=True))
    event = [and_(OF_AGENT, *map(eq, EVENT_KEY, values[: len(EVENT_KEY)])) for values in per_item]
    message = [and_(OF_AGENT, *map(eq, MESSAGE_KEY, values[len(EVENT_KEY) :])) for values in per_item]
    return union_all(select(*RECEIPT).where(or_(*event)), select(*RECEIPT).where(or_(*message)))


FIND_BY_KEYS = ListStatement(_select_by_keys, width=len(UNIQUE_KEYS), max_items=64)
FIND_RECEIPT = Statement(lambda _: select(*RECEIPT).where(OF_AGENT, matches(receipts, "id")))
FIND_BY_MEMORY = Statement(
    lambda _: (
        select(*RECEIPT).where(OF_AGENT, matches(receipts, "memory_id")).order_by(NEWEST_FIRST).limit(limit_parameter())
    )
)
BY_POSITION = ListStatement(lambda ids: select(*RECEIPT, receipts.c.position).where(receipts.c.position.in_(ids)))
FIND_PLACE = Statement(
    lambda _: select(receipts.c.received_at, receipts.c.position).where(matches(receipts, "agent_id", "id"))
)
UNEVALUATED = Statement(
    lambda _: (
        select(*RECEIPT)
        .where(OF_AGENT, flag_equals(receipts.c.is_learnt, is_set=False))
        .order_by(receipts.c.position)
        .limit(limit_parameter())
    )
)
MARK_EVALUATED = ListStatement(
    lambda ids: update(receipts).where(OF_AGENT, receipts.c.id.in_(ids)).values(is_learnt=literal_column("1"))
)


def _receipts_query(*, is_open: bool | None, in_room: bool) -> Statement:
    conditions = [OF_AGENT]
    if in_room:
        conditions.append(IN_ROOM)
    if is_open is not None:
        conditions.append(flag_equals(receipts.c.is_open, is_set=is_open))
    return Statement(lambda _: select(*RECEIPT).where(*conditions).order_by(NEWEST_FIRST).limit(limit_parameter()))


RECEIPT_LISTS = {
    (is_open, in_room): _receipts_query(is_open=is_open, in_room=in_room)
    for is_open in (None, True, False)
    for in_room in (False, True)
}


def find_by_keys(connection: Connection, agent: int, keys: Sequence[EventKey]) -> dict[object, Receipt]:
    """Find the receipts of events, by either of their keys."""
    by_key: dict[object, Receipt] = {}
    if keys:
        rows = FIND_BY_KEYS.rows(connection, agent, ids=[part for key in keys for part in _key_values(key)])
        for receipt in map(RECEIPT.read, rows):
            by_key[event_key(receipt.key)] = by_key[message_key(receipt.key)] = receipt
    return by_key


def insert_receipts(connection: Connection, agent: int, receipts: Sequence[Receipt]) -> None:
    """Insert receipts of stored messages."""
    INSERT_RECEIPT.run_many(connection, [fixed_values(agent, receipt) + state_values(receipt) for receipt in receipts])


def save_receipts(connection: Connection, agent: int, changed: Sequence[Receipt]) -> int:
    """Store the new state of open receipts; return how many were open."""
    return sum(SAVE_RECEIPT.run(connection, *state_values(receipt), agent, receipt.id.bytes) for receipt in changed)


def add_model_calls(agent: int, receipt_id: UUID, calls: Sequence[ModelCall], connection: Connection) -> bool:
    """Add model calls to a closed receipt; return False if it is open or unknown."""
    row = FIND_RECEIPT.first(connection, agent, receipt_id.bytes)
    receipt = RECEIPT.read(row) if row else None
    if receipt is None or not receipt.outcome.is_final:
        return False
    texts = dumps([_call_data(call) for call in (*receipt.model_calls, *calls)])
    SET_CALLS.run(connection, texts, agent, receipt_id.bytes)
    return True


def find_receipt(agent: int, searched_id: UUID, connection: Connection) -> Receipt | None:
    """Return a receipt by its id, or the latest by the id of its memory."""
    key = (agent, searched_id.bytes)
    row = FIND_RECEIPT.first(connection, *key) or FIND_BY_MEMORY.first(connection, *key, 1)
    return RECEIPT.read(row) if row else None


def list_receipts(
    agent: int, room_id: UUID | None, is_open: bool | None, limit: int, connection: Connection
) -> list[Receipt]:
    """Return matching receipts, newest first."""
    rooms = () if room_id is None else (room_id.bytes,)
    rows = RECEIPT_LISTS[is_open, bool(rooms)].rows(connection, agent, *rooms, limit)
    return list(RECEIPT.read_all(rows))


def fixed_values(agent: int, receipt: Receipt) -> tuple[Any, ...]:
    """Return the column values of a receipt that never change."""
    return (
        agent,
        receipt.id.bytes,
        *_key_values(receipt.key),
        receipt.author_id.bytes,
        receipt.memory_id.bytes,
        microseconds_of(receipt.received_at),
    )


def state_values(receipt: Receipt) -> tuple[Any, ...]:
    """Return the column values of a receipt that may change."""
    return (
        receipt.outcome.value,
        storable_text(receipt.reason),
        storable_text(receipt.rule),
        id_bytes(receipt.turn_id),
        id_bytes(receipt.superseded_by),
        receipt.attempts,
        receipt.supersede_count,
        microseconds_or_none(receipt.claimed_at),
        microseconds_or_none(receipt.closed_at),
        dumps([_call_data(call) for call in receipt.model_calls]) if receipt.model_calls else "[]",
        dumps(receipt.notes) if receipt.notes else "[]",
        int(receipt.is_evaluated),
        int(not receipt.outcome.is_final),
    )


def event_key(key: EventKey) -> object:
    """Return what identifies an event on its transport."""
    return (storable_text(key.platform), storable_text(key.account), storable_text(key.event_id))


def message_key(key: EventKey) -> object:
    """Return what identifies a revision of a message in its room."""
    return (key.room_id, storable_text(key.message_id), key.revision)


def _call_data(call: ModelCall) -> dict[str, Any]:
    return {name: getattr(call, name) for name in CALL_FIELDS}  # `asdict` takes ten times as long


def _key_values(key: EventKey) -> tuple[Any, ...]:
    room, message = key.room_id.bytes, storable_text(key.message_id)
    return (
        storable_text(key.platform),
        storable_text(key.account),
        storable_text(key.event_id),
        room,
        message,
        key.revision,
    )


def select_page(
    agent: int, query: ReceiptQuery, last: tuple[int, int] | None, limit: int, *, is_oldest_first: bool = False
) -> Select[Any]:
    """Return the query for the positions of a page; `last` are time and position of the receipt before it."""
    columns = receipts.c
    statement = select(columns.position).where(*_conditions(agent, query)).limit(limit)
    is_by_position = query.room_id is not None and query.since is None and query.until is None
    keys: list[Any] = [columns.position] if is_by_position else [columns.received_at, columns.position]
    if last is not None:
        key, place = tuple_(*keys), tuple_(*last[-len(keys) :])
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
        yield columns.room_id == query.room_id.bytes
    if query.since is not None:
        yield columns.received_at >= microseconds_of(query.since)
    if query.until is not None:
        yield columns.received_at < microseconds_of(query.until)
    if query.author_id is not None:
        yield _unindexed(columns.author_id) == query.author_id.bytes
    if query.outcomes:
        yield columns.outcome.in_([outcome.value for outcome in query.outcomes])
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
        row = FIND_PLACE.first(connection, agent, place.bytes)
        if row is None:  # deleted meanwhile, and all that are older
            return []
        last = (row[0], row[1])
    is_oldest_first = before is None and after is not None
    positions = list(connection.scalars(select_page(agent, query, last, limit, is_oldest_first=is_oldest_first)))
    rows = BY_POSITION.rows(connection, ids=positions)
    by_position = {row[-1]: receipt for row in rows if (receipt := RECEIPT.read_or_report(row)) is not None}
    return _complete(connection, agent, [by_position[position] for position in positions if position in by_position])


def _complete(connection: Connection, agent: int, page: Sequence[Receipt]) -> list[ListedReceipt]:
    """Add messages, authors, rooms and worlds, one statement for each."""
    message_ids = [receipt.memory_id.bytes for receipt in page]
    messages = {
        message.id: message for message in read_memories(FIND_MEMORIES.rows(connection, agent, ids=message_ids))
    }
    authors = find_entities(connection, agent, {receipt.author_id for receipt in page})
    room_ids = [room_id.bytes for room_id in {receipt.room_id for receipt in page}]
    rooms = {room.id: room for room in ROOM.read_all(FIND_ROOMS.rows(connection, agent, ids=room_ids))}
    world_ids = [world_id.bytes for world_id in {room.world_id for room in rooms.values()}]
    worlds = {world.id: world for world in WORLD.read_all(FIND_WORLDS.rows(connection, agent, ids=world_ids))}
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
    rows = list(connection.execute(select_counts(agent, query)))
    examples = {
        row[-1]: receipt
        for row in BY_POSITION.rows(connection, ids=[row[3] for row in rows])
        if (receipt := RECEIPT.read_or_report(row)) is not None
    }
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
