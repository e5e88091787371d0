"""Receipts, stream cursors."""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime
from operator import eq
from typing import Any
from uuid import UUID

from sqlalchemy import BindParameter, Connection, and_, literal_column, or_, select, union_all, update
from sqlalchemy.sql.expression import Executable

from bot import Entity, Outcome, Receipt, Role, World, reached
from bot.models import ModelCall
from bot.platform import Arrival, Cursor, EventKey
from bot.store import Received, first_claim
from plugins.sql.core.base import Owner
from plugins.sql.core.schema import cursors, entities, memories, receipts, rooms, worlds
from plugins.sql.core.statements import Listing, Row, Statement, flag, insert_into, limit, same, upsert, value
from plugins.sql.core.values import (
    dumps,
    id_bytes,
    id_of,
    id_or_none,
    loads,
    moment,
    moment_of,
    moment_of_or_none,
    moment_or_none,
    storable_text,
)
from plugins.sql.stores.entities import ENTITY, attend, entity_of, person_stands, put_entities
from plugins.sql.stores.memories import MEMORY, memory_of, put_memories
from plugins.sql.stores.worlds import (
    ROOM,
    WORLD,
    attendance_in,
    place_stands,
    put_rooms,
    put_worlds,
    room_of,
    world_of,
)

FIRST_NAMES = (
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
LATER_NAMES = (
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
NAMES = (*FIRST_NAMES, *LATER_NAMES)
RECEIPT = tuple(receipts.c[name] for name in NAMES[1:-1])
OF_AGENT = same(receipts.c.agent_id, "agent")
IN_ROOM = same(receipts.c.room_id, "room")
IS_OPEN, IS_CLOSED = flag(receipts.c.is_open), flag(receipts.c.is_open, is_set=False)
NEWEST = receipts.c.position.desc()
EVENT = (receipts.c.platform, receipts.c.account, receipts.c.event_id)
MESSAGE = (receipts.c.room_id, receipts.c.message_id, receipts.c.revision)
KEYS = (*EVENT, *MESSAGE)
CALL_FIELDS = tuple(field.name for field in fields(ModelCall))

INSERT_UNLESS_KNOWN = Statement(
    lambda insert: insert_into(receipts, NAMES)(insert).on_conflict_do_nothing(), *NAMES
)
INSERT = Statement(lambda insert: insert_into(receipts, NAMES)(insert), *NAMES)
SAVE_RECEIPT = Statement(
    lambda _: (
        update(receipts)
        .where(OF_AGENT, same(receipts.c.id, "of_id"), IS_OPEN)
        .values({name: value(receipts.c[name], name) for name in LATER_NAMES})
    ),
    *LATER_NAMES,
    "agent",
    "of_id",
)


def _by_keys(items: Sequence[BindParameter[Any]]) -> Executable:
    """By the transport's key or by the message's: both lead to an index of their own."""
    per_item = list(zip(*[iter(items)] * len(KEYS), strict=True))
    event = [and_(OF_AGENT, *map(eq, EVENT, one[: len(EVENT)])) for one in per_item]
    message = [and_(OF_AGENT, *map(eq, MESSAGE, one[len(EVENT) :])) for one in per_item]
    return union_all(select(*RECEIPT).where(or_(*event)), select(*RECEIPT).where(or_(*message)))


KNOWN = Listing(_by_keys, "agent", width=len(KEYS), most=64)
FIND_RECEIPT = Statement(lambda _: select(*RECEIPT).where(OF_AGENT, same(receipts.c.id, "id")), "agent", "id")
FIND_BY_MEMORY = Statement(
    lambda _: (
        select(*RECEIPT).where(OF_AGENT, same(receipts.c.memory_id, "memory")).order_by(NEWEST).limit(limit())
    ),
    "agent",
    "memory",
    "limit",
)
ARRIVAL = Statement(
    lambda _: (
        select(*WORLD, *ROOM, *ENTITY, *MEMORY)
        .select_from(memories)
        .join(rooms, and_(rooms.c.agent_id == memories.c.agent_id, rooms.c.id == memories.c.room_id))
        .join(worlds, and_(worlds.c.agent_id == memories.c.agent_id, worlds.c.id == rooms.c.world_id))
        .join(entities, and_(entities.c.agent_id == memories.c.agent_id, same(entities.c.id, "author")))
        .where(same(memories.c.agent_id, "agent"), same(memories.c.id, "memory"))
    ),
    "author",
    "agent",
    "memory",
)
ALL = Statement(lambda _: select(*RECEIPT).where(OF_AGENT).order_by(NEWEST).limit(limit()), "agent", "limit")
ALL_OPEN = Statement(
    lambda _: select(*RECEIPT).where(OF_AGENT, IS_OPEN).order_by(NEWEST).limit(limit()), "agent", "limit"
)
ALL_CLOSED = Statement(
    lambda _: select(*RECEIPT).where(OF_AGENT, IS_CLOSED).order_by(NEWEST).limit(limit()), "agent", "limit"
)
OF_ROOM = Statement(
    lambda _: select(*RECEIPT).where(OF_AGENT, IN_ROOM).order_by(NEWEST).limit(limit()),
    "agent",
    "room",
    "limit",
)
OPEN_OF_ROOM = Statement(
    lambda _: select(*RECEIPT).where(OF_AGENT, IN_ROOM, IS_OPEN).order_by(NEWEST).limit(limit()),
    "agent",
    "room",
    "limit",
)
CLOSED_OF_ROOM = Statement(
    lambda _: select(*RECEIPT).where(OF_AGENT, IN_ROOM, IS_CLOSED).order_by(NEWEST).limit(limit()),
    "agent",
    "room",
    "limit",
)
UNLEARNT = Statement(
    lambda _: (
        select(*RECEIPT)
        .where(OF_AGENT, flag(receipts.c.is_learnt, is_set=False))
        .order_by(receipts.c.position)
        .limit(limit())
    ),
    "agent",
    "limit",
)
MARK_LEARNT = Listing(
    lambda ids: (
        update(receipts).where(OF_AGENT, receipts.c.id.in_(ids)).values(is_learnt=literal_column("1"))
    ),
    "agent",
)
LISTS = {None: (ALL, OF_ROOM), True: (ALL_OPEN, OPEN_OF_ROOM), False: (ALL_CLOSED, CLOSED_OF_ROOM)}


def receive(
    owner: Owner, arrivals: Sequence[Arrival], at: datetime, cursor: Cursor | None, connection: Connection
) -> list[Received]:
    """Keep events that are not known, with the rows they need, and how far the stream has been read."""
    agent = owner.number
    if cursor is not None:
        save_cursor(connection, agent, cursor)
    elif len(arrivals) == 1 and (received := _receive_familiar(connection, owner, arrivals[0], at)):
        return [received]
    known = known_by_key(connection, agent, [arrival.key for arrival in arrivals])
    outcome: list[Received | None] = []
    fresh: list[tuple[Arrival, Receipt]] = []
    for arrival in arrivals:
        event, message = _event(arrival.key), _message(arrival.key)
        before = known.get(event) or known.get(message)
        if before is None:
            known[event] = known[message] = receipt = first_claim(arrival, at)
            fresh.append((arrival, receipt))
        outcome.append(None if before is None else Received(before))
    new = iter(keep(connection, owner, fresh))
    return [one or next(new) for one in outcome]


def _receive_familiar(
    connection: Connection, owner: Owner, arrival: Arrival, at: datetime
) -> Received | None:
    """Keep an event whose place and author stand as they are given, which is nearly every one.

    Its receipt comes first, for nothing else can have changed where it turns out that the event is known.
    """
    agent = owner.number
    if not place_stands(connection, agent, arrival.world, arrival.room):
        return None
    if not person_stands(connection, agent, arrival.author):
        return None
    receipt = first_claim(arrival, at)
    if not INSERT_UNLESS_KNOWN.run(connection, *first_values(agent, receipt), *later_values(receipt)):
        return None
    return _put(connection, owner, [(arrival, receipt)])[0]


def known_by_key(connection: Connection, agent: int, keys: Sequence[EventKey]) -> dict[object, Receipt]:
    """Find the receipts of events, by either of their keys."""
    found: dict[object, Receipt] = {}
    if keys:
        rows = KNOWN.rows(connection, agent, ids=[part for key in keys for part in _key_values(key)])
        for receipt in map(receipt_of, rows):
            found[_event(receipt.key)] = found[_message(receipt.key)] = receipt
    return found


def keep(connection: Connection, owner: Owner, fresh: Sequence[tuple[Arrival, Receipt]]) -> list[Received]:
    """Keep events with their receipts and the rows they need."""
    if not fresh:
        return []
    received = _put(connection, owner, fresh)
    reached("ingress.batch")
    book(connection, owner.number, [receipt for _, receipt in fresh])
    return received


def _put(connection: Connection, owner: Owner, fresh: Sequence[tuple[Arrival, Receipt]]) -> list[Received]:
    agent, arrivals = owner.number, [arrival for arrival, _ in fresh]
    worlds = put_worlds(connection, agent, [one.world for one in arrivals])
    rooms = put_rooms(connection, agent, [one.room for one in arrivals])
    people = put_entities(connection, agent, [one.author for one in arrivals])
    attend(connection, agent, [(one.room.id, one.author.id) for one in arrivals])
    put_memories(connection, agent, [one.message for one in arrivals])
    received = []
    for one, receipt in fresh:
        author = people[one.author.id]
        world = with_role(worlds[one.world.id], author)
        kept = Arrival(one.key, world, rooms[one.room.id], author, one.message)
        attendance = attendance_in(connection, agent, owner.id, one.room.id)
        received.append(Received(receipt, kept, attendance, is_new=True))
    return received


def with_role(world: World, author: Entity) -> World:
    """Say what an author may do, also a plain member, whose role is not kept."""
    if author.id in world.roles:
        return world
    return replace(world, roles={author.id: Role.MEMBER, **world.roles})


def book(connection: Connection, agent: int, receipts: Sequence[Receipt]) -> None:
    """Insert receipts; what they are about is there."""
    INSERT.run_many(connection, [first_values(agent, one) + later_values(one) for one in receipts])


def save_receipts(connection: Connection, agent: int, saved: Sequence[Receipt]) -> int:
    """Write the new state of receipts, except where one is final already, and count them."""
    return sum(SAVE_RECEIPT.run(connection, *later_values(one), agent, one.id.bytes) for one in saved)


def find_receipt(agent: int, sought: UUID, connection: Connection) -> Receipt | None:
    """Find a receipt by its id, or the latest by its message's."""
    key = (agent, sought.bytes)
    row = FIND_RECEIPT.first(connection, *key) or FIND_BY_MEMORY.first(connection, *key, 1)
    return receipt_of(row) if row else None


def find_arrival(agent: int, receipt: Receipt, connection: Connection) -> Arrival | None:
    """Find the rows a receipt was kept with."""
    ids = (receipt.author_id.bytes, agent, receipt.memory_id.bytes)
    row = ARRIVAL.first(connection, *ids)
    if row is None:
        return None
    author = entity_of(row[15:21])
    world = with_role(world_of(row[:6]), author)
    return Arrival(receipt.key, world, room_of(row[6:15]), author, memory_of(row[21:]))


def list_receipts(
    agent: int, room_id: UUID | None, is_open: bool | None, most: int, connection: Connection
) -> list[Receipt]:
    """List receipts that match, newest first."""
    everywhere, in_room = LISTS[is_open]
    if room_id is None:
        rows = everywhere.rows(connection, agent, most)
    else:
        rows = in_room.rows(connection, agent, room_id.bytes, most)
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
        received_at=moment_of(received_at),
        outcome=Outcome(outcome),
        reason=reason,
        rule=rule,
        turn_id=id_or_none(turn_id),
        superseded_by=id_or_none(superseded_by),
        attempts=attempts,
        carried=carried,
        claimed_at=moment_of_or_none(claimed_at),
        closed_at=moment_of_or_none(closed_at),
        model_calls=tuple(ModelCall(**call) for call in loads(model_calls)),
        notes=tuple(loads(notes)),
        is_learnt=bool(is_learnt),
    )


def first_values(agent: int, receipt: Receipt) -> tuple[Any, ...]:
    """Write what of a receipt never changes."""
    return (
        agent,
        receipt.id.bytes,
        *_key_values(receipt.key),
        receipt.author_id.bytes,
        receipt.memory_id.bytes,
        moment(receipt.received_at),
    )


def later_values(receipt: Receipt) -> tuple[Any, ...]:
    """Write what of a receipt changes."""
    return (
        receipt.outcome.value,
        storable_text(receipt.reason),
        storable_text(receipt.rule),
        id_bytes(receipt.turn_id),
        id_bytes(receipt.superseded_by),
        receipt.attempts,
        receipt.carried,
        moment_or_none(receipt.claimed_at),
        moment_or_none(receipt.closed_at),
        dumps([_call_data(call) for call in receipt.model_calls]) if receipt.model_calls else "[]",
        dumps(receipt.notes) if receipt.notes else "[]",
        int(receipt.is_learnt),
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


def _event(key: EventKey) -> object:
    return (storable_text(key.platform), storable_text(key.account), storable_text(key.event_id))


def _message(key: EventKey) -> object:
    return (key.room_id, storable_text(key.message_id), key.revision)


KEY = ("agent_id", "platform", "account", "name")
SAVE_CURSOR = upsert(cursors, KEY, (*KEY, "value"))
FIND_CURSOR = Statement(
    lambda _: select(cursors.c.value).where(
        same(cursors.c.agent_id, "agent"),
        same(cursors.c.platform, "platform"),
        same(cursors.c.account, "account"),
        same(cursors.c.name, "name"),
    ),
    "agent",
    "platform",
    "account",
    "name",
)


def save_cursor(connection: Connection, agent: int, cursor: Cursor) -> None:
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
