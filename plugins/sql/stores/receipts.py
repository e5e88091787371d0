"""Receipts, stream cursors."""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime
from operator import eq
from typing import Any
from uuid import UUID

from sqlalchemy import BindParameter, Connection, and_, literal_column, or_, select, union_all, update
from sqlalchemy.sql.expression import Executable

from bot import Entity, Outcome, Receipt, Role, World, crash_point
from bot.models import ModelCall
from bot.platform import EventKey, InboundMessage, StreamCursor
from bot.store import StoredEvent, new_receipt
from plugins.sql.core.base import AgentRow
from plugins.sql.core.schema import cursors, entities, memories, receipts, rooms, worlds
from plugins.sql.core.statements import (
    ListStatement,
    Row,
    Statement,
    equals,
    flag_equals,
    insert_into,
    limit_parameter,
    typed_parameter,
    upsert,
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
from plugins.sql.stores.entities import (
    ENTITY,
    entity_of,
    is_entity_unchanged,
    put_entities,
    touch_participants,
)
from plugins.sql.stores.memories import MEMORY, memory_of, put_memories
from plugins.sql.stores.worlds import (
    ROOM,
    WORLD,
    is_place_unchanged,
    participant_state,
    put_rooms,
    put_worlds,
    room_of,
    world_of,
)

RECEIPT_FIXED_NAMES = (
    "agent_id",
    "id",
    "platform",
    "account",
    "event_id",
    "room_id",
    "message_id",
    "revision",
    "author_id",
    "memory_id",
    "received_at",
)
RECEIPT_STATE_NAMES = (
    "outcome",
    "reason",
    "rule",
    "turn_id",
    "superseded_by",
    "attempts",
    "carried",
    "claimed_at",
    "closed_at",
    "model_calls",
    "notes",
    "is_learnt",
    "is_open",
)
RECEIPT_NAMES = (*RECEIPT_FIXED_NAMES, *RECEIPT_STATE_NAMES)
RECEIPT = tuple(receipts.c[name] for name in RECEIPT_NAMES[1:-1])
OF_AGENT = equals(receipts.c.agent_id, "agent")
IN_ROOM = equals(receipts.c.room_id, "room")
IS_OPEN, IS_CLOSED = flag_equals(receipts.c.is_open), flag_equals(receipts.c.is_open, is_set=False)
NEWEST_FIRST = receipts.c.position.desc()
EVENT_KEY = (receipts.c.platform, receipts.c.account, receipts.c.event_id)
MESSAGE_KEY = (receipts.c.room_id, receipts.c.message_id, receipts.c.revision)
UNIQUE_KEYS = (*EVENT_KEY, *MESSAGE_KEY)
CALL_FIELDS = tuple(field.name for field in fields(ModelCall))

INSERT_IF_NEW = Statement(
    lambda insert: insert_into(receipts, RECEIPT_NAMES)(insert).on_conflict_do_nothing(), *RECEIPT_NAMES
)
INSERT_RECEIPT = Statement(lambda insert: insert_into(receipts, RECEIPT_NAMES)(insert), *RECEIPT_NAMES)
SAVE_RECEIPT = Statement(
    lambda _: (
        update(receipts)
        .where(OF_AGENT, equals(receipts.c.id, "of_id"), IS_OPEN)
        .values({name: typed_parameter(receipts.c[name], name) for name in RECEIPT_STATE_NAMES})
    ),
    *RECEIPT_STATE_NAMES,
    "agent",
    "of_id",
)


def _select_by_keys(items: Sequence[BindParameter[Any]]) -> Executable:
    """By the transport's key or by the message's: both lead to an index of their own."""
    per_item = list(zip(*[iter(items)] * len(UNIQUE_KEYS), strict=True))
    event = [and_(OF_AGENT, *map(eq, EVENT_KEY, values[: len(EVENT_KEY)])) for values in per_item]
    message = [and_(OF_AGENT, *map(eq, MESSAGE_KEY, values[len(EVENT_KEY) :])) for values in per_item]
    return union_all(select(*RECEIPT).where(or_(*event)), select(*RECEIPT).where(or_(*message)))


FIND_BY_KEYS = ListStatement(_select_by_keys, "agent", width=len(UNIQUE_KEYS), max_items=64)
FIND_RECEIPT = Statement(
    lambda _: select(*RECEIPT).where(OF_AGENT, equals(receipts.c.id, "id")), "agent", "id"
)
FIND_BY_MEMORY = Statement(
    lambda _: (
        select(*RECEIPT)
        .where(OF_AGENT, equals(receipts.c.memory_id, "memory"))
        .order_by(NEWEST_FIRST)
        .limit(limit_parameter())
    ),
    "agent",
    "memory",
    "limit",
)
FIND_INBOUND_ROWS = Statement(
    lambda _: (
        select(*WORLD, *ROOM, *ENTITY, *MEMORY)
        .select_from(memories)
        .join(rooms, and_(rooms.c.agent_id == memories.c.agent_id, rooms.c.id == memories.c.room_id))
        .join(worlds, and_(worlds.c.agent_id == memories.c.agent_id, worlds.c.id == rooms.c.world_id))
        .join(entities, and_(entities.c.agent_id == memories.c.agent_id, equals(entities.c.id, "author")))
        .where(equals(memories.c.agent_id, "agent"), equals(memories.c.id, "memory"))
    ),
    "author",
    "agent",
    "memory",
)
ALL = Statement(
    lambda _: select(*RECEIPT).where(OF_AGENT).order_by(NEWEST_FIRST).limit(limit_parameter()),
    "agent",
    "limit",
)
ALL_OPEN = Statement(
    lambda _: select(*RECEIPT).where(OF_AGENT, IS_OPEN).order_by(NEWEST_FIRST).limit(limit_parameter()),
    "agent",
    "limit",
)
ALL_CLOSED = Statement(
    lambda _: select(*RECEIPT).where(OF_AGENT, IS_CLOSED).order_by(NEWEST_FIRST).limit(limit_parameter()),
    "agent",
    "limit",
)
OF_ROOM = Statement(
    lambda _: select(*RECEIPT).where(OF_AGENT, IN_ROOM).order_by(NEWEST_FIRST).limit(limit_parameter()),
    "agent",
    "room",
    "limit",
)
OPEN_OF_ROOM = Statement(
    lambda _: (
        select(*RECEIPT).where(OF_AGENT, IN_ROOM, IS_OPEN).order_by(NEWEST_FIRST).limit(limit_parameter())
    ),
    "agent",
    "room",
    "limit",
)
CLOSED_OF_ROOM = Statement(
    lambda _: (
        select(*RECEIPT).where(OF_AGENT, IN_ROOM, IS_CLOSED).order_by(NEWEST_FIRST).limit(limit_parameter())
    ),
    "agent",
    "room",
    "limit",
)
UNEVALUATED = Statement(
    lambda _: (
        select(*RECEIPT)
        .where(OF_AGENT, flag_equals(receipts.c.is_learnt, is_set=False))
        .order_by(receipts.c.position)
        .limit(limit_parameter())
    ),
    "agent",
    "limit",
)
MARK_EVALUATED = ListStatement(
    lambda ids: (
        update(receipts).where(OF_AGENT, receipts.c.id.in_(ids)).values(is_learnt=literal_column("1"))
    ),
    "agent",
)
LISTS = {None: (ALL, OF_ROOM), True: (ALL_OPEN, OPEN_OF_ROOM), False: (ALL_CLOSED, CLOSED_OF_ROOM)}


def receive(
    agent_row: AgentRow,
    inbound_messages: Sequence[InboundMessage],
    now: datetime,
    cursor: StreamCursor | None,
    connection: Connection,
) -> list[StoredEvent]:
    """Keep events that are not known, with the rows they need, and how far the stream has been read."""
    agent = agent_row.number
    if cursor is not None:
        save_cursor(connection, agent, cursor)
    elif len(inbound_messages) == 1 and (
        received := _receive_unchanged(connection, agent_row, inbound_messages[0], now)
    ):
        return [received]
    existing = find_by_keys(connection, agent, [inbound.key for inbound in inbound_messages])
    results: list[StoredEvent | None] = []
    new_events: list[tuple[InboundMessage, Receipt]] = []
    for inbound in inbound_messages:
        event_key, message_key = _event_key(inbound.key), _message_key(inbound.key)
        previous = existing.get(event_key) or existing.get(message_key)
        if previous is None:
            existing[event_key] = existing[message_key] = receipt = new_receipt(inbound, now)
            new_events.append((inbound, receipt))
        results.append(None if previous is None else StoredEvent(previous))
    stored = iter(store_events(connection, agent_row, new_events))
    return [event or next(stored) for event in results]


def _receive_unchanged(
    connection: Connection, agent_row: AgentRow, inbound: InboundMessage, now: datetime
) -> StoredEvent | None:
    """Keep an event whose place and author stand as they are given, which is nearly every one.

    Its receipt comes first, for nothing else can have changed where it turns out that the event is known.
    """
    agent = agent_row.number
    if not is_place_unchanged(connection, agent, inbound.world, inbound.room):
        return None
    if not is_entity_unchanged(connection, agent, inbound.author):
        return None
    receipt = new_receipt(inbound, now)
    if not INSERT_IF_NEW.run(connection, *fixed_values(agent, receipt), *state_values(receipt)):
        return None
    return _store_rows(connection, agent_row, [(inbound, receipt)])[0]


def find_by_keys(connection: Connection, agent: int, keys: Sequence[EventKey]) -> dict[object, Receipt]:
    """Find the receipts of events, by either of their keys."""
    by_key: dict[object, Receipt] = {}
    if keys:
        rows = FIND_BY_KEYS.rows(connection, agent, ids=[part for key in keys for part in _key_values(key)])
        for receipt in map(receipt_of, rows):
            by_key[_event_key(receipt.key)] = by_key[_message_key(receipt.key)] = receipt
    return by_key


def store_events(
    connection: Connection, agent_row: AgentRow, new_events: Sequence[tuple[InboundMessage, Receipt]]
) -> list[StoredEvent]:
    """Keep events with their receipts and the rows they need."""
    if not new_events:
        return []
    received = _store_rows(connection, agent_row, new_events)
    crash_point("ingress.batch")
    insert_receipts(connection, agent_row.number, [receipt for _, receipt in new_events])
    return received


def _store_rows(
    connection: Connection, agent_row: AgentRow, new_events: Sequence[tuple[InboundMessage, Receipt]]
) -> list[StoredEvent]:
    agent, inbound_messages = agent_row.number, [inbound for inbound, _ in new_events]
    worlds = put_worlds(connection, agent, [inbound.world for inbound in inbound_messages])
    rooms = put_rooms(connection, agent, [inbound.room for inbound in inbound_messages])
    people = put_entities(connection, agent, [inbound.author for inbound in inbound_messages])
    touch_participants(
        connection, agent, [(inbound.room.id, inbound.author.id) for inbound in inbound_messages]
    )
    put_memories(connection, agent, [inbound.message for inbound in inbound_messages])
    received = []
    for inbound, receipt in new_events:
        author = people[inbound.author.id]
        world = with_role(worlds[inbound.world.id], author)
        stored = InboundMessage(inbound.key, world, rooms[inbound.room.id], author, inbound.message)
        participant = participant_state(connection, agent, agent_row.id, inbound.room.id)
        received.append(StoredEvent(receipt, stored, participant, is_new=True))
    return received


def with_role(world: World, author: Entity) -> World:
    """Say what an author may do, also a plain member, whose role is not kept."""
    if author.id in world.roles:
        return world
    return replace(world, roles={author.id: Role.MEMBER, **world.roles})


def insert_receipts(connection: Connection, agent: int, receipts: Sequence[Receipt]) -> None:
    """Insert receipts; what they are about is there."""
    INSERT_RECEIPT.run_many(
        connection, [fixed_values(agent, receipt) + state_values(receipt) for receipt in receipts]
    )


def save_receipts(connection: Connection, agent: int, changed: Sequence[Receipt]) -> int:
    """Write the new state of receipts, except where one is final already, and count them."""
    return sum(
        SAVE_RECEIPT.run(connection, *state_values(receipt), agent, receipt.id.bytes) for receipt in changed
    )


def find_receipt(agent: int, searched_id: UUID, connection: Connection) -> Receipt | None:
    """Find a receipt by its id, or the latest by its message's."""
    key = (agent, searched_id.bytes)
    row = FIND_RECEIPT.first(connection, *key) or FIND_BY_MEMORY.first(connection, *key, 1)
    return receipt_of(row) if row else None


def find_inbound(agent: int, receipt: Receipt, connection: Connection) -> InboundMessage | None:
    """Find the rows a receipt was kept with."""
    ids = (receipt.author_id.bytes, agent, receipt.memory_id.bytes)
    row = FIND_INBOUND_ROWS.first(connection, *ids)
    if row is None:
        return None
    author = entity_of(row[15:21])
    world = with_role(world_of(row[:6]), author)
    return InboundMessage(receipt.key, world, room_of(row[6:15]), author, memory_of(row[21:]))


def list_receipts(
    agent: int, room_id: UUID | None, is_open: bool | None, limit: int, connection: Connection
) -> list[Receipt]:
    """List receipts that match, newest first."""
    everywhere, in_room = LISTS[is_open]
    if room_id is None:
        rows = everywhere.rows(connection, agent, limit)
    else:
        rows = in_room.rows(connection, agent, room_id.bytes, limit)
    return [receipt_of(row) for row in rows]


def receipt_of(row: Row) -> Receipt:
    """Read a receipt from its columns."""
    (receipt_id, platform, account, event_id, room_id, message_id, revision) = row[:7]
    (author_id, memory_id, received_at, outcome, reason, rule, turn_id, superseded_by) = row[7:15]
    (attempts, carried, claimed_at, closed_at, model_calls, notes, is_learnt) = row[15:]
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


def fixed_values(agent: int, receipt: Receipt) -> tuple[Any, ...]:
    """Write what of a receipt never changes."""
    return (
        agent,
        receipt.id.bytes,
        *_key_values(receipt.key),
        receipt.author_id.bytes,
        receipt.memory_id.bytes,
        microseconds_of(receipt.received_at),
    )


def state_values(receipt: Receipt) -> tuple[Any, ...]:
    """Write what of a receipt changes."""
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


def _event_key(key: EventKey) -> object:
    return (storable_text(key.platform), storable_text(key.account), storable_text(key.event_id))


def _message_key(key: EventKey) -> object:
    return (key.room_id, storable_text(key.message_id), key.revision)


CURSOR_KEY = ("agent_id", "platform", "account", "name")
SAVE_CURSOR = upsert(cursors, CURSOR_KEY, (*CURSOR_KEY, "value"))
FIND_CURSOR = Statement(
    lambda _: select(cursors.c.value).where(
        equals(cursors.c.agent_id, "agent"),
        equals(cursors.c.platform, "platform"),
        equals(cursors.c.account, "account"),
        equals(cursors.c.name, "name"),
    ),
    "agent",
    "platform",
    "account",
    "name",
)


def save_cursor(connection: Connection, agent: int, cursor: StreamCursor) -> None:
    """Note how far a stream has been read."""
    SAVE_CURSOR.run(
        connection, agent, *map(storable_text, (cursor.platform, cursor.account, cursor.name, cursor.value))
    )


def find_cursor(agent: int, platform: str, account: str, name: str, connection: Connection) -> str | None:
    """Find how far a stream has been read."""
    row = FIND_CURSOR.first(
        connection, agent, storable_text(platform), storable_text(account), storable_text(name)
    )
    return str(row[0]) if row else None
