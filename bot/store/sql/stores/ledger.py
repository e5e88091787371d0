"""The ledger of an agent: receipts, steps of the journal, deliveries, unreadable events, and look-ups for operators.

Lists of receipts of all rooms are read in the order of `ix_receipts_time`, which holds every column that is filtered,
so that a rare rule is found without reading the receipts that do not match. Those of one room, at any time, are read
in the order of arrival.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import ColumnElement, CompoundSelect, Connection, Select
from sqlalchemy.sql.expression import Executable

from bot.concurrency.tasks import crash_point
from bot.domain.content import Content
from bot.domain.environment import Entity, Role, Room, World
from bot.domain.hiding import hide_entity, hide_inbound
from bot.domain.inbound import (
    ERASURE_COMPONENT,
    MAX_UNREADABLE_EVENTS,
    InboundMessage,
    StoredEvent,
    StreamCursor,
    UnreadableEvent,
    new_receipt,
)
from bot.domain.ledger import (
    CareCount,
    Delivery,
    DeliveryKind,
    DeliveryState,
    Disclosure,
    EventKey,
    EventOrigin,
    ModelCall,
    Outcome,
    Receipt,
    Rule,
    Step,
)
from bot.domain.proposal import Proposal, ProposalState, decide_receipt
from bot.errors import AlreadyReferred
from bot.store.ledger import ListedReceipt, ReceiptCount, ReceiptQuery, TurnCommit
from bot.store.sql.core.base import (
    Access,
    AgentRow,
    SharedWork,
    SqlStorePart,
    reads,
    searches,
    writes,
    writes_not_durably,
)
from bot.store.sql.core.mapping import (
    LIMIT,
    InsertStatement,
    RowMapping,
    count_changed,
    first_id,
    insert_if_new,
    is_flag,
    matches,
    rows_of,
    text_literal,
    upsert,
)
from bot.store.sql.core.schema import (
    IS_WAITING,
    UNFINISHED,
    care_counts,
    components,
    cursors,
    deliveries,
    disclosures,
    entities,
    memories,
    proposals,
    receipts,
    rooms,
    steps,
    unreadable_events,
    worlds,
)
from bot.store.sql.stores.memories import MEMORY, find_memories, hide_memories, put_memories
from bot.store.sql.stores.worlds import (
    ENTITY,
    ROOM,
    WORLD,
    find_entities,
    find_rooms,
    find_worlds,
    put_entities,
    put_environment,
    put_rooms,
    put_worlds,
    touch_participants,
)

KEY_FIELDS = ("platform", "account", "event_id", "message_id", "revision")


def _build_receipt(
    *, platform: str, account: str, event_id: str, message_id: str, revision: int, room_id: UUID, **values: Any
) -> Receipt:
    return Receipt(key=EventKey(platform, account, event_id, room_id, message_id, revision), room_id=room_id, **values)


def receipt_columns(receipt: Receipt) -> dict[str, Any]:
    """Return the values of the columns of a receipt that are no fields of it."""
    key = {name: getattr(receipt.key, name) for name in KEY_FIELDS}
    return {**key, "is_open": not receipt.outcome.is_final}


RECEIPT = RowMapping(receipts, Receipt, build=_build_receipt, unread=["is_open"])
RECEIPT_STATE_NAMES = RECEIPT.stored_names[RECEIPT.stored_names.index("outcome") :]  # the others never change
IN_ROOM = matches(receipts, "room_id")
NEWEST_FIRST = receipts.c.position.desc()
EVENT_KEY = (receipts.c.platform, receipts.c.account, receipts.c.event_id)
MESSAGE_KEY = (receipts.c.room_id, receipts.c.message_id, receipts.c.revision)
MAX_KEYS = 64  # of a statement

INSERT_IF_NEW = insert_if_new(receipts, RECEIPT.stored_names)
INSERT_RECEIPT = InsertStatement(receipts, RECEIPT.stored_names)
SET_STATE = (
    sa.update(receipts)
    .where(matches(receipts, "id"))
    .values({name: sa.bindparam(name) for name in RECEIPT_STATE_NAMES})
)
SAVE_RECEIPT = SET_STATE.where(is_flag(receipts.c.is_open))
FIND_BY_MEMORY = sa.select(*RECEIPT).where(matches(receipts, "memory_id")).order_by(NEWEST_FIRST).limit(LIMIT)
RECEIPTS_BY_POSITION = sa.select(*RECEIPT, receipts.c.position).where(receipts.c.position.in_(sa.bindparam("items")))
FIND_PLACE = sa.select(receipts.c.received_at, receipts.c.position).where(matches(receipts, "id"))
UNEVALUATED = (
    sa.select(*RECEIPT)
    .where(matches(receipts), is_flag(receipts.c.is_evaluated, is_set=False))
    .order_by(receipts.c.position)
    .limit(LIMIT)
)
MARK_EVALUATED = (
    sa.update(receipts)
    .where(matches(receipts), receipts.c.id.in_(sa.bindparam("items")))
    .values(is_evaluated=sa.literal_column("1"))
)


def _receipts_query(*, is_open: bool | None, in_room: bool) -> Select[Any]:
    query = sa.select(*RECEIPT).where(IN_ROOM if in_room else matches(receipts))
    if is_open is not None:
        query = query.where(is_flag(receipts.c.is_open, is_set=is_open))
    return query.order_by(NEWEST_FIRST).limit(LIMIT)


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
            sa.and_(matches(receipts), *(column == sa.bindparam(f"{column.name}_{number}") for column in key))
            for number in range(count)
        )
        queries.append(sa.select(*RECEIPT).where(sa.or_(*events)))
    return sa.union_all(*queries)


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
    INSERT_RECEIPT.execute_all(
        connection, [RECEIPT.values(receipt, agent, receipt_columns(receipt)) for receipt in receipts]
    )


def save_receipts(connection: Connection, agent: int, changed: Sequence[Receipt]) -> int:
    """Store the new state of open receipts; return how many were open."""
    return sum(connection.execute(SAVE_RECEIPT, state_values(agent, receipt)).rowcount for receipt in changed)


def state_values(agent: int, receipt: Receipt) -> dict[str, Any]:
    """Return the values of `SET_STATE` for a receipt."""
    return RECEIPT.changes(receipt, agent, RECEIPT_STATE_NAMES, receipt_columns(receipt))


def find_receipt(connection: Connection, agent: int, searched_id: UUID) -> Receipt | None:
    """Return a receipt by its id, or the latest by the id of its memory."""
    if (receipt := RECEIPT.get(connection, agent, searched_id)) is not None:
        return receipt
    row = connection.execute(FIND_BY_MEMORY, {"agent": agent, "memory_id_": searched_id, "limit": 1}).first()
    return RECEIPT.read(row) if row else None


def list_receipts(
    connection: Connection, agent: int, *, room_id: UUID | None = None, is_open: bool | None = None, limit: int
) -> list[Receipt]:
    """Return matching receipts, newest first."""
    values = {"agent": agent, "limit": limit} | ({} if room_id is None else {"room_id_": room_id})
    return list(RECEIPT.read_all(connection.execute(RECEIPT_LISTS[is_open, room_id is not None], values)))


def event_key(key: EventKey) -> tuple[Any, ...]:
    """Return what identifies an event on its transport."""
    return key.platform, key.account, key.event_id


def message_key(key: EventKey) -> tuple[Any, ...]:
    """Return what identifies a revision of a message in its room."""
    return key.room_id, key.message_id, key.revision


def select_page(
    agent: int, query: ReceiptQuery, last: tuple[Any, int] | None, limit: int, *, is_oldest_first: bool = False
) -> Select[Any]:
    """Return the query for the positions of a page; `last` are time and position of the receipt before it."""
    columns = receipts.c
    statement = sa.select(columns.position).where(*_conditions(agent, query)).limit(limit)
    is_by_position = query.room_id is not None and query.since is None and query.until is None
    keys: list[Any] = [columns.position] if is_by_position else [columns.received_at, columns.position]
    if last is not None:
        place = sa.tuple_(*(sa.literal(value, key.type) for key, value in zip(keys, last[-len(keys) :], strict=True)))
        key = sa.tuple_(*keys)
        statement = statement.where(key > place if is_oldest_first else key < place)
    return statement.order_by(*(key if is_oldest_first else key.desc() for key in keys))


def select_counts(agent: int, query: ReceiptQuery) -> Select[Any]:
    """Return the query for the number of receipts by outcome and rule, with the position of the latest."""
    columns = receipts.c
    group = (columns.outcome, columns.rule)
    return (
        sa.select(*group, sa.func.count(), sa.func.max(columns.position))
        .where(*_conditions(agent, query))
        .group_by(*group)
    )


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
    notes = sa.type_coerce(columns.notes, sa.Text)
    if query.is_filtered:
        yield sa.or_(_unindexed(columns.rule) == Rule.FILTERED, notes.like('%"filter %'))
    if query.is_degraded:
        yield notes.like(r"%\% of BUDGET\_%", escape="\\")


def _unindexed(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the column in a form for which no index is chosen: in that of the event's key rows are not in order."""
    return sa.func.coalesce(column, column)


def _receipts_at(connection: Connection, positions: Sequence[int]) -> dict[int, Receipt]:
    rows = rows_of(connection, RECEIPTS_BY_POSITION, positions)
    return {row[-1]: receipt for row in rows if (receipt := RECEIPT.read_or_report(row)) is not None}


def _complete(connection: Connection, agent_row: AgentRow, page: Sequence[Receipt]) -> list[ListedReceipt]:
    """Add messages, authors, rooms and worlds, one statement for each."""
    agent = agent_row.number
    found = find_memories(connection, agent, [receipt.memory_id for receipt in page])
    messages = {memory.id: memory for memory in hide_memories(connection, agent_row, [*found.values()])}
    authors = {
        author.id: hide_entity(author) if author.id in agent_row.not_read else author
        for author in find_entities(connection, agent, {receipt.author_id for receipt in page}).values()
    }
    rooms = {
        room_id: agent_row.hide_name(room)
        for room_id, room in find_rooms(connection, agent, {receipt.room_id for receipt in page}).items()
    }
    worlds = find_worlds(connection, agent, {room.world_id for room in rooms.values()})
    listed = []
    for receipt in page:
        room = rooms.get(receipt.room_id)
        world = worlds.get(room.world_id) if room else None
        listed.append(
            ListedReceipt(receipt, messages.get(receipt.memory_id), authors.get(receipt.author_id), room, world)
        )
    return listed


REFERENCE_KEYS = ("edits", "draft")
OPEN_STATES = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)


def _build_delivery(*, content: Content, **values: Any) -> Delivery:
    """Return a delivery of whose stored content the metadata may name the message that it edits, and its draft."""
    if not content.metadata:
        return Delivery(content=content, **values)
    metadata = dict(content.metadata)
    replaces_external_id, draft_id = (str(metadata.pop(key, "")) for key in REFERENCE_KEYS)
    content = replace(content, metadata=metadata)
    return Delivery(content=content, replaces_external_id=replaces_external_id, draft_id=draft_id, **values)


def delivery_columns(delivery: Delivery) -> dict[str, Any]:
    """Return the values of the columns of a delivery that differ from its fields."""
    derived: dict[str, Any] = {"is_open": delivery.state in OPEN_STATES}
    values = (delivery.replaces_external_id, delivery.draft_id)
    if references := {key: value for key, value in zip(REFERENCE_KEYS, values, strict=True) if value}:
        derived["content"] = replace(delivery.content, metadata={**delivery.content.metadata, **references})
    return derived


DELIVERY = RowMapping(deliveries, Delivery, build=_build_delivery, unread=["is_open"])
INSERTED_NAMES = tuple(name for name in DELIVERY.stored_names if name != "seq")
DELIVERY_STATE_NAMES = INSERTED_NAMES[INSERTED_NAMES.index("state") :]
DELIVERY_POSITION = deliveries.c.position


def _insert_if_new(insert: Any) -> Executable:
    statement = insert.on_conflict_do_nothing(index_elements=["agent_id", "id"])
    return statement.returning(deliveries.c.seq)  # type: ignore[no-any-return]


NEXT_NUMBER = sa.select(sa.func.coalesce(sa.func.max(deliveries.c.seq), 0) + 1).where(
    deliveries.c.agent_id == sa.bindparam("agent_id"), deliveries.c.room_id == sa.bindparam("room_id")
)
INSERT_DELIVERY = InsertStatement(deliveries, INSERTED_NAMES, _insert_if_new, seq=NEXT_NUMBER.scalar_subquery())
UPDATE_DELIVERY = (
    sa.update(deliveries)
    .where(matches(deliveries, "id"))
    .values({name: sa.bindparam(name) for name in DELIVERY_STATE_NAMES})
)
ALL_DELIVERIES = sa.select(*DELIVERY).where(matches(deliveries)).order_by(DELIVERY_POSITION)
HELD_DELIVERIES = ALL_DELIVERIES.where(sa.text(UNFINISHED), deliveries.c.state == text_literal(DeliveryState.UNKNOWN))
OPEN_DELIVERIES = ALL_DELIVERIES.where(is_flag(deliveries.c.is_open))
DELIVERIES_OF_ROOM = sa.select(*DELIVERY).where(matches(deliveries, "room_id")).order_by(deliveries.c.seq)
DELIVERIES_OF_TURN = sa.select(*DELIVERY).where(matches(deliveries, "turn_id")).order_by(DELIVERY_POSITION)


def insert_delivery(connection: Connection, agent: int, delivery: Delivery) -> int | None:
    """Insert a delivery with the next sequence number of its room; return that, None if the delivery exists."""
    values = DELIVERY.values(delivery, agent, delivery_columns(delivery))
    del values["seq"]
    return INSERT_DELIVERY.execute(connection, values).scalar()


def insert_deliveries(connection: Connection, agent: int, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Insert deliveries unless they exist; return them as they are stored."""
    numbers = {delivery.id: insert_delivery(connection, agent, delivery) for delivery in deliveries}
    known_ids = [delivery_id for delivery_id, number in numbers.items() if number is None]
    existing = find_deliveries(connection, agent, known_ids) if known_ids else []
    existing_by_id = {delivery.id: delivery for delivery in existing}
    return [
        existing_by_id[delivery.id] if (number := numbers[delivery.id]) is None else replace(delivery, seq=number)
        for delivery in deliveries
    ]


def find_deliveries(connection: Connection, agent: int, ids: Iterable[str]) -> list[Delivery]:
    """Return deliveries by id, in that order."""
    ids = list(ids)
    by_id = DELIVERY.find_by_id(connection, agent, ids)
    return [by_id[delivery_id] for delivery_id in ids if delivery_id in by_id]


def save_deliveries(connection: Connection, agent: int, saved: Sequence[Delivery]) -> None:
    """Store the new states of deliveries; insert those that are missing."""
    if not saved:
        return
    states = [DELIVERY.changes(delivery, agent, DELIVERY_STATE_NAMES, delivery_columns(delivery)) for delivery in saved]
    if connection.execute(UPDATE_DELIVERY, states).rowcount == len(saved):
        return
    for delivery, state in zip(saved, states, strict=True):
        if not connection.execute(UPDATE_DELIVERY, state).rowcount:
            insert_delivery(connection, agent, delivery)


def list_deliveries(
    connection: Connection,
    agent: int,
    *,
    is_open: bool | None = None,
    room_id: UUID | None = None,
    turn_id: UUID | None = None,
) -> list[Delivery]:
    """Return matching deliveries in the order in which they are sent."""
    if turn_id is not None:
        rows = connection.execute(DELIVERIES_OF_TURN, {"agent": agent, "turn_id_": turn_id})
    elif is_open:
        rows = connection.execute(OPEN_DELIVERIES, {"agent": agent})
    elif room_id is not None:
        rows = connection.execute(DELIVERIES_OF_ROOM, {"agent": agent, "room_id_": room_id})
    else:
        rows = connection.execute(ALL_DELIVERIES, {"agent": agent})
    return [
        delivery
        for delivery in DELIVERY.read_all(rows)
        if is_open in (None, delivery.state in OPEN_STATES) and room_id in (None, delivery.room_id)
    ]


def list_unsent(connection: Connection, agent: int) -> list[Delivery]:
    """Return what is open or held in all rooms together, which is little."""
    held = list(DELIVERY.read_all(connection.execute(HELD_DELIVERIES, {"agent": agent})))
    return [*list_deliveries(connection, agent, is_open=True), *held]


FIND_INBOUND_ROWS = (
    sa.select(*WORLD, *ROOM, *ENTITY, *MEMORY)
    .select_from(memories)
    .join(rooms, sa.and_(rooms.c.agent_id == memories.c.agent_id, rooms.c.id == memories.c.room_id))
    .join(worlds, sa.and_(worlds.c.agent_id == memories.c.agent_id, worlds.c.id == rooms.c.world_id))
    .join(entities, sa.and_(entities.c.agent_id == memories.c.agent_id, entities.c.id == sa.bindparam("author")))
    .where(matches(memories, "id"))
)
CURSOR = RowMapping(cursors, StreamCursor)
CURSOR_KEY = ("agent_id", "platform", "account", "name")
SAVE_CURSOR = upsert(cursors, CURSOR_KEY, CURSOR.stored_names)
FIND_CURSOR = sa.select(cursors.c.value).where(matches(cursors, "platform", "account", "name"))
# By room, so that an index is used.
RECEIPTS_OF_MESSAGE = sa.select(*RECEIPT, receipts.c.position).where(
    matches(receipts, "message_id"), receipts.c.room_id.in_(sa.select(rooms.c.id).where(matches(rooms)))
)
# By room as well: each reads one entry at the end of an index.
LAST_MESSAGE_IDS = sa.select(
    rooms.c.id,
    sa.select(receipts.c.message_id)
    .where(
        receipts.c.agent_id == rooms.c.agent_id,
        receipts.c.room_id == rooms.c.id,
        receipts.c.revision == sa.literal_column("0"),
        receipts.c.origin == text_literal(EventOrigin.PLATFORM),
    )
    .order_by(receipts.c.position.desc())
    .limit(sa.literal_column("1"))
    .correlate(rooms)
    .scalar_subquery(),
).where(matches(rooms), rooms.c.id.in_(sa.bindparam("items")))
UNDELIVERED = (
    sa.select(*DELIVERY)
    .where(matches(deliveries), sa.text(UNFINISHED))
    .order_by(deliveries.c.position.desc())
    .limit(LIMIT)
)
DISCLOSURE = RowMapping(disclosures, Disclosure)
SAVE_DISCLOSURE = upsert(disclosures, ("agent_id", "entity_id", "kind"), DISCLOSURE.stored_names)
FIND_DISCLOSURES = sa.select(*DISCLOSURE).where(
    matches(disclosures), disclosures.c.entity_id.in_(sa.bindparam("items"))
)
COUNT_DISCLOSED = sa.select(sa.func.count()).select_from(disclosures).where(matches(disclosures, "kind"))
CARE_COUNT = RowMapping(care_counts, CareCount)
FIND_CARE_COUNTS = (
    sa.select(*CARE_COUNT)
    .where(matches(care_counts), care_counts.c.day >= sa.bindparam("since"))
    .order_by(care_counts.c.day, care_counts.c.category)
)
ADD_CARE_COUNT = upsert(care_counts, ("agent_id", "day", "category"), CARE_COUNT.stored_names, added=["count"])
STEP = RowMapping(steps, Step)
SAVE_STEP = upsert(steps, ("agent_id", "turn_id", "key"), STEP.stored_names)
# When the data of people was erased; a turn that began before has read what they wrote.
FIND_ERASURES = sa.select(components.c.entity_id, components.c.created_at).where(
    matches(components, "type"), components.c.entity_id.in_(sa.bindparam("items"))
)
STEPS_OF_TURN = sa.select(*STEP).where(matches(steps, "turn_id"))
UNREADABLE = RowMapping(unreadable_events, UnreadableEvent)
NEWEST_UNREADABLE = unreadable_events.c.position.desc()
INSERT_UNREADABLE = insert_if_new(unreadable_events, UNREADABLE.stored_names)
LIST_UNREADABLE = sa.select(*UNREADABLE).where(matches(unreadable_events)).order_by(NEWEST_UNREADABLE).limit(LIMIT)
DELETE_SURPLUS_UNREADABLE = sa.delete(unreadable_events).where(
    matches(unreadable_events),
    unreadable_events.c.position
    <= sa.select(unreadable_events.c.position)
    .where(matches(unreadable_events))
    .order_by(NEWEST_UNREADABLE)
    .limit(1)
    .offset(MAX_UNREADABLE_EVENTS)
    .scalar_subquery(),
)


class Arrival(NamedTuple):
    """Messages of one call, the time at which they were received, and the new read position of their stream."""

    messages: Sequence[InboundMessage]
    now: datetime
    cursor: StreamCursor | None = None


def receive(connection: Connection, agent_row: AgentRow, arrivals: Sequence[Arrival]) -> list[list[StoredEvent]]:
    """Store new events with the rows they need, and the cursors of their streams; return the events by arrival."""
    agent = agent_row.number
    for arrival in arrivals:
        if arrival.cursor is not None:
            SAVE_CURSOR.execute(connection, CURSOR.values(arrival.cursor, agent))
    inbound_messages = [(inbound, arrival.now) for arrival in arrivals for inbound in arrival.messages]
    existing = find_by_keys(connection, agent, [inbound.key for inbound, _ in inbound_messages])
    results: list[StoredEvent | None] = []
    new_events: list[tuple[InboundMessage, Receipt]] = []
    for inbound, now in inbound_messages:
        by_event, by_message = event_key(inbound.key), message_key(inbound.key)
        previous = existing.get(by_event) or existing.get(by_message)
        if previous is None:
            existing[by_event] = existing[by_message] = receipt = new_receipt(inbound, now)
            new_events.append((inbound, receipt))
        results.append(None if previous is None else StoredEvent(previous))
    stored = iter(store_events(connection, agent_row, new_events))
    events = iter([event or next(stored) for event in results])
    return [list(islice(events, len(arrival.messages))) for arrival in arrivals]


def store_events(
    connection: Connection, agent_row: AgentRow, new_events: Sequence[tuple[InboundMessage, Receipt]]
) -> list[StoredEvent]:
    """Store events with their receipts and the rows they need."""
    if not new_events:
        return []
    agent = agent_row.number
    worlds, rooms, people, states = put_environment(
        connection, agent_row, [(inbound.world, inbound.room, inbound.author) for inbound, _ in new_events]
    )
    put_memories(connection, agent, [inbound.message for inbound, _ in new_events])
    received = []
    for inbound, receipt in new_events:
        author, room = people[inbound.author.id], rooms[inbound.room.id]
        world = with_role(worlds[inbound.world.id], author)
        stored = InboundMessage(inbound.key, world, room, author, inbound.message)
        received.append(StoredEvent(receipt, stored, states[room.id], is_new=True))
    crash_point("ingress.batch")
    insert_receipts(connection, agent, [receipt for _, receipt in new_events])
    return received


def _find_known(connection: Connection, agent: int, receipt: Receipt) -> Receipt | None:
    known = find_by_keys(connection, agent, [receipt.key])
    return known.get(event_key(receipt.key)) or known.get(message_key(receipt.key))


def with_role(world: World, author: Entity) -> World:
    """Return the world with the author's role; members are added, since their role is not stored."""
    if author.id in world.roles:
        return world
    return replace(world, roles={author.id: Role.MEMBER, **world.roles})


def save_disclosures(
    connection: Connection, agent: int, disclosed: Sequence[Disclosure], stored: Sequence[Delivery]
) -> None:
    """Store the disclosures whose deliveries are stored."""
    if not disclosed:
        return
    stored_ids = {delivery.id for delivery in stored}
    rows = [DISCLOSURE.values(item, agent) for item in disclosed if item.delivery_id in stored_ids]
    SAVE_DISCLOSURE.execute_all(connection, rows)


def count_referrals(connection: Connection, agent: int, turn_commit: TurnCommit) -> None:
    """Count the referrals of a commit that are new, before their disclosures are stored.

    Raises AlreadyReferred; PostgreSQL locks the people until the commit, so that two processes do not refer them both.
    """
    people = {item.entity_id for item in turn_commit.disclosures if item.kind is DeliveryKind.REFERRAL}
    if not people:
        return
    if connection.dialect.name == "postgresql":
        for person in sorted(people):
            connection.execute(
                sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(f"referral {person}", agent)))
            )
    found = DISCLOSURE.find(connection, FIND_DISCLOSURES, people, agent=agent)
    known = {item.entity_id: item for item in found if item.kind is DeliveryKind.REFERRAL}
    for item in turn_commit.disclosures:
        last = known.get(item.entity_id)
        if last is not None and last.delivery_id == item.delivery_id:
            continue
        if last is not None and turn_commit.referred_before is not None and last.at > turn_commit.referred_before:
            raise AlreadyReferred(f"{item.entity_id} was referred to help in room {last.room_id}")
        if turn_commit.care_category:
            count = CareCount(item.at.date(), turn_commit.care_category, 1)
            ADD_CARE_COUNT.execute(connection, CARE_COUNT.values(count, agent))


PROPOSAL = RowMapping(proposals, Proposal)
INSERT_PROPOSAL = insert_if_new(proposals, PROPOSAL.stored_names)


def _list_proposals(*conditions: Any) -> Select[Any]:
    listed = sa.select(*PROPOSAL).where(matches(proposals), *conditions)
    return listed.order_by(proposals.c.position.desc()).limit(LIMIT)


ALL_PROPOSALS, WAITING_PROPOSALS = _list_proposals(), _list_proposals(sa.text(IS_WAITING))
PROPOSALS_IN_STATE = _list_proposals(matches(proposals, "state"))
PROPOSALS_OF_TURN = _list_proposals(matches(proposals, "turn_id"))
PROPOSAL_STATE_NAMES = (
    *("content", "revision", "state", "decided_by", "decided_by_id", "decided_at"),
    *("editor", "edited_until", "replaced_by"),
)
UPDATE_PROPOSAL = (
    sa.update(proposals)
    .where(matches(proposals, "id"), sa.text(IS_WAITING), proposals.c.revision == sa.bindparam("expected_revision"))
    .values({name: sa.bindparam(name) for name in PROPOSAL_STATE_NAMES})
)
UPDATE_PROPOSAL_OF_EDITOR = UPDATE_PROPOSAL.where(proposals.c.editor == sa.bindparam("expected_editor"))
MAX_WAITING = 10_000


def save_proposal(connection: Connection, agent: int, turn_commit: TurnCommit) -> None:
    """Store the proposal of a commit and replace the earlier ones, unless another process has closed its receipt."""
    proposal = turn_commit.proposal
    if proposal is None:
        return
    if proposal.receipt_id is not None:
        receipt = find_receipt(connection, agent, proposal.receipt_id)
        if receipt is None or (receipt.outcome, receipt.turn_id) != (Outcome.PARKED, proposal.turn_id):
            return
    if not INSERT_PROPOSAL.execute(connection, PROPOSAL.values(proposal, agent)).rowcount:
        return
    for earlier in PROPOSAL.find_by_id(connection, agent, turn_commit.replaced).values():
        if earlier.is_replaceable(proposal.created_at):
            replaced = replace(
                earlier, state=ProposalState.REPLACED, decided_at=proposal.created_at, replaced_by=proposal.id
            )
            change_proposal(connection, agent, replaced, earlier.revision, superseded_by=proposal.message_id)


def change_proposal(
    connection: Connection,
    agent: int,
    changed: Proposal,
    revision: int,
    *,
    editor: str | None = None,
    cause: str = "",
    superseded_by: UUID | None = None,
) -> bool:
    """Store a waiting proposal in its new state with its receipt; return False if it is no longer of this revision."""
    state = {**PROPOSAL.changes(changed, agent, PROPOSAL_STATE_NAMES), "expected_revision": revision}
    statement = UPDATE_PROPOSAL
    if editor is not None:
        statement, state = UPDATE_PROPOSAL_OF_EDITOR, {**state, "expected_editor": editor}
    if not connection.execute(statement, state).rowcount:
        return False
    receipt = None if changed.receipt_id is None else find_receipt(connection, agent, changed.receipt_id)
    if receipt is not None and receipt.outcome is Outcome.PARKED:
        decided = decide_receipt(receipt, changed, cause, superseded_by)
        connection.execute(SET_STATE, state_values(agent, decided))
    return True


def withdraw_proposals(
    connection: Connection, agent: int, now: datetime, cause: str, is_concerned: Callable[[Proposal], bool]
) -> tuple[Proposal, ...]:
    """Withdraw the waiting proposals for which a condition holds, and return them; few wait at all."""
    rows = connection.execute(WAITING_PROPOSALS, {"agent": agent, "limit": MAX_WAITING})
    withdrawn = []
    for proposal in filter(is_concerned, list(PROPOSAL.read_all(rows))):
        changed = replace(proposal, state=ProposalState.WITHDRAWN, decided_at=now)
        if change_proposal(connection, agent, changed, proposal.revision, cause=cause):
            withdrawn.append(changed)
    return tuple(withdrawn)


def save_steps(connection: Connection, agent: int, saved: Sequence[Step], receipts: Sequence[Receipt] = ()) -> None:
    """Store steps together with receipts."""
    save_receipts(connection, agent, receipts)
    SAVE_STEP.execute_all(connection, [STEP.values(step, agent) for step in saved])


class SqlLedger(SqlStorePart):
    """Stores receipts, steps and deliveries, and answers people; see `Ledger`."""

    def __init__(self, database: Access, agent_row: AgentRow) -> None:
        super().__init__(database, agent_row)
        self.health = database.health

    async def receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None = None
    ) -> list[StoredEvent]:
        return await self._database.write(SharedWork(self._receive_all, Arrival(messages, now, cursor)))

    def _receive_all(self, connection: Connection, arrivals: Sequence[Arrival]) -> list[list[StoredEvent]]:
        return receive(connection, self._agent_row, arrivals)

    @writes
    def receive_command(
        self, connection: Connection, receipt: Receipt, world: World, room: Room, author: Entity
    ) -> Receipt:
        agent = self._agent
        if (existing := _find_known(connection, agent, receipt)) is not None:
            return existing
        if not find_rooms(connection, agent, {room.id}):
            put_worlds(connection, agent, [world])
            put_rooms(connection, agent, [room])
        if not find_entities(connection, agent, {author.id}):
            put_entities(connection, agent, [author])
            touch_participants(connection, agent, [(room.id, author.id)])
        if INSERT_IF_NEW.execute(connection, RECEIPT.values(receipt, agent, receipt_columns(receipt))).rowcount:
            return receipt
        return _find_known(connection, agent, receipt) or receipt

    @writes
    def close_command(
        self,
        connection: Connection,
        receipt: Receipt,
        deliveries: Sequence[Delivery] = (),
        response: Step | None = None,
    ) -> list[Delivery]:
        is_closed = save_receipts(connection, self._agent, [receipt])
        if is_closed and response is not None:
            save_steps(connection, self._agent, [response])
        return insert_deliveries(connection, self._agent, deliveries)

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        rows = await self._read(FIND_CURSOR, platform_=platform, account_=account, name_=name)
        return str(rows[0][0]) if rows else None

    @writes
    def save_receipts(self, connection: Connection, receipts: Sequence[Receipt]) -> None:
        save_receipts(connection, self._agent, receipts)

    @reads
    def receipt(self, connection: Connection, receipt_id: UUID) -> Receipt | None:
        return find_receipt(connection, self._agent, receipt_id)

    @reads
    def inbound_message(self, connection: Connection, receipt: Receipt) -> InboundMessage | None:
        key = {"agent": self._agent, "id_": receipt.memory_id, "author": receipt.author_id}
        row = connection.execute(FIND_INBOUND_ROWS, key).first()
        if row is None:
            return None
        values = iter(row)
        world, room = WORLD.take(values), ROOM.take(values)
        author, message = ENTITY.take(values), MEMORY.take(values)
        inbound = InboundMessage(receipt.key, with_role(world, author), room, author, message)
        return hide_inbound(inbound, self._agent_row.not_read)

    @reads
    def receipts(
        self, connection: Connection, *, room_id: UUID | None = None, is_open: bool | None = None, limit: int = 50
    ) -> list[Receipt]:
        return list_receipts(connection, self._agent, room_id=room_id, is_open=is_open, limit=limit)

    @searches
    def search_receipts(
        self,
        connection: Connection,
        query: ReceiptQuery,
        *,
        before: UUID | None = None,
        after: UUID | None = None,
        limit: int = 50,
    ) -> list[ListedReceipt]:
        agent = self._agent
        last, place = None, before or after
        if place is not None:
            row = connection.execute(FIND_PLACE, {"agent": agent, "id_": place}).first()
            if row is None:  # deleted meanwhile, and all that are older
                return []
            last = (row[0], row[1])
        is_oldest_first = before is None and after is not None
        positions = list(connection.scalars(select_page(agent, query, last, limit, is_oldest_first=is_oldest_first)))
        by_position = _receipts_at(connection, positions)
        page = [by_position[position] for position in positions if position in by_position]
        return _complete(connection, self._agent_row, page)

    @searches
    def count_receipts(self, connection: Connection, query: ReceiptQuery) -> list[ReceiptCount]:
        rows = connection.execute(select_counts(self._agent, query)).all()
        examples = _receipts_at(connection, [row[3] for row in rows])
        counts = [ReceiptCount(Outcome(row[0]), row[1], row[2], examples[row[3]]) for row in rows if row[3] in examples]
        return sorted(counts, key=lambda item: -item.count)

    async def receipts_by_message_id(self, message_id: str) -> list[Receipt]:
        rows = await self._search(RECEIPTS_OF_MESSAGE, message_id_=message_id)
        return list(RECEIPT.read_all(sorted(rows, key=lambda row: int(row[-1]), reverse=True)))

    @searches
    def last_message_ids(self, connection: Connection, room_ids: Collection[UUID]) -> dict[UUID, str]:
        rows = rows_of(connection, LAST_MESSAGE_IDS, room_ids, agent=self._agent)
        return {room_id: message_id for room_id, message_id in rows if message_id is not None}

    async def unevaluated_receipts(self, limit: int = 1000) -> list[Receipt]:
        return list(RECEIPT.read_all(await self._read(UNEVALUATED, limit=limit)))

    @writes_not_durably
    def mark_evaluated(self, connection: Connection, receipt_ids: Sequence[UUID]) -> None:
        count_changed(connection, MARK_EVALUATED, receipt_ids, agent=self._agent)

    @writes_not_durably
    def add_model_calls(
        self, connection: Connection, receipt_id: UUID, calls: Sequence[ModelCall], notes: Sequence[str] = ()
    ) -> bool:
        receipt = RECEIPT.get(connection, self._agent, receipt_id)
        if receipt is None or not receipt.outcome.is_final:
            return False
        of_receipt = (receipts.c.agent_id == self._agent, receipts.c.id == receipt_id)
        added = {"model_calls": (*receipt.model_calls, *calls), "notes": tuple(dict.fromkeys((*receipt.notes, *notes)))}
        connection.execute(sa.update(receipts).where(*of_receipt).values(added))
        return True

    @writes
    def record_unreadable(self, connection: Connection, events: Sequence[UnreadableEvent]) -> None:
        INSERT_UNREADABLE.execute_all(connection, [UNREADABLE.values(event, self._agent) for event in events])
        connection.execute(DELETE_SURPLUS_UNREADABLE, {"agent": self._agent})

    async def unreadable_events(self, limit: int = 100) -> list[UnreadableEvent]:
        return list(UNREADABLE.read_all(await self._read(LIST_UNREADABLE, limit=limit)))

    @writes
    def commit(self, connection: Connection, turn_commit: TurnCommit) -> list[Delivery]:
        agent = self._agent
        if turn_commit.receipts and not save_receipts(connection, agent, turn_commit.receipts):
            return find_deliveries(connection, agent, [delivery.id for delivery in turn_commit.deliveries])
        put_memories(connection, agent, turn_commit.replies)
        stored = insert_deliveries(connection, agent, turn_commit.deliveries)
        count_referrals(connection, agent, turn_commit)
        save_disclosures(connection, agent, turn_commit.disclosures, stored)
        save_proposal(connection, agent, turn_commit)
        return stored

    async def proposals(
        self, *, state: ProposalState | None = None, turn_id: UUID | None = None, limit: int = 100
    ) -> list[Proposal]:
        if turn_id is not None:
            rows = await self._read(PROPOSALS_OF_TURN, turn_id_=turn_id, limit=limit)
        elif state is ProposalState.WAITING:
            rows = await self._read(WAITING_PROPOSALS, limit=limit)
        elif state is not None:
            rows = await self._search(PROPOSALS_IN_STATE, state_=state, limit=limit)
        else:
            rows = await self._search(ALL_PROPOSALS, limit=limit)
        return list(PROPOSAL.read_all(reversed(rows)))

    async def proposal(self, proposal_id: str) -> Proposal | None:
        find = partial(PROPOSAL.find_by_id, agent=self._agent, ids=[proposal_id])
        return (await self._database.read(find)).get(proposal_id)

    @writes
    def decide_proposal(
        self,
        connection: Connection,
        decided: Proposal,
        revision: int,
        turn_commit: TurnCommit | None = None,
        *,
        editor: str | None = None,
    ) -> list[Delivery] | None:
        agent, turn_commit = self._agent, turn_commit or TurnCommit()
        if not change_proposal(connection, agent, decided, revision, editor=editor):
            return None
        put_memories(connection, agent, turn_commit.replies)
        stored = insert_deliveries(connection, agent, turn_commit.deliveries)
        save_disclosures(connection, agent, turn_commit.disclosures, stored)
        return stored

    async def save_step(self, step: Step, receipts: Sequence[Receipt] = ()) -> None:
        is_durable = step.kind != "model"  # an answer lost in a power cut is requested again
        await self._database.write(SharedWork(self._save_all_steps, (step, receipts)), durable=is_durable)

    def _save_all_steps(self, connection: Connection, saved: Sequence[tuple[Step, Sequence[Receipt]]]) -> list[None]:
        receipts = [receipt for _, of_step in saved for receipt in of_step]
        save_steps(connection, self._agent, [step for step, _ in saved], receipts)
        return [None] * len(saved)

    @writes_not_durably
    def save_traces(self, connection: Connection, steps: Sequence[Step]) -> None:
        not_read = self._agent_row.not_read
        subject_ids = frozenset[UUID]().union(*(step.subject_ids for step in steps))
        erased = {
            person: first_id(at)
            for person, at in rows_of(
                connection, FIND_ERASURES, subject_ids, agent=self._agent, type_=ERASURE_COMPONENT
            )
        }
        saved = [
            step
            for step in steps
            if not_read.isdisjoint(step.subject_ids)
            and all(erased[person] <= step.turn_id for person in step.subject_ids & erased.keys())
        ]
        save_steps(connection, self._agent, saved)

    async def steps(self, turn_id: UUID) -> dict[str, Step]:
        return {step.key: step for step in STEP.read_all(await self._read(STEPS_OF_TURN, turn_id_=turn_id))}

    async def save_delivery(self, delivery: Delivery) -> None:
        is_durable = delivery.state is not DeliveryState.SENT  # durable with the next write or checkpoint
        await self._database.write(SharedWork(self._save_all_deliveries, delivery), durable=is_durable)

    def _save_all_deliveries(self, connection: Connection, saved: Sequence[Delivery]) -> list[None]:
        save_deliveries(connection, self._agent, saved)
        return [None] * len(saved)

    @reads
    def deliveries(
        self,
        connection: Connection,
        *,
        is_open: bool | None = None,
        room_id: UUID | None = None,
        turn_id: UUID | None = None,
    ) -> list[Delivery]:
        return list_deliveries(connection, self._agent, is_open=is_open, room_id=room_id, turn_id=turn_id)

    async def delivery(self, delivery_id: str) -> Delivery | None:
        find = partial(DELIVERY.find_by_id, agent=self._agent, ids=[delivery_id])
        return (await self._database.read(find)).get(delivery_id)

    async def disclosures(self, entity_ids: Collection[UUID]) -> list[Disclosure]:
        find = partial(DISCLOSURE.find, statement=FIND_DISCLOSURES, items=set(entity_ids), agent=self._agent)
        return await self._database.read(find)

    async def count_disclosed(self, kind: DeliveryKind) -> int:
        [row] = await self._read(COUNT_DISCLOSED, kind_=kind)
        return int(row[0])

    async def care_counts(self, since: date) -> list[CareCount]:
        return list(CARE_COUNT.read_all(await self._read(FIND_CARE_COUNTS, since=since)))

    async def undelivered(self, limit: int = 100) -> list[Delivery]:
        return list(DELIVERY.read_all(reversed(await self._search(UNDELIVERED, limit=limit))))
