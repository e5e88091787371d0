"""What came in, in SQL: receipts, and the rows that an event needs."""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime
from operator import eq
from typing import Any
from uuid import UUID

from sqlalchemy import BindParameter, Connection, and_, or_, select, union_all, update
from sqlalchemy.sql.expression import Executable

from bot import Arrival, EventKey, ModelCall, Outcome, Receipt, new_id
from plugins.sql.memories import MEMORY, memory_of, put_memories
from plugins.sql.people import ENTITY, attend, entity_of, put_entities
from plugins.sql.schema import entities, memories, receipts, rooms, worlds
from plugins.sql.statements import Listing, Row, Statement, flag, insert_into, limit, same, value
from plugins.sql.values import (
    dumps,
    id_bytes,
    id_of,
    id_or_none,
    loads,
    moment,
    moment_of,
    moment_of_or_none,
    moment_or_none,
    words,
)
from plugins.sql.worlds import ROOM, WORLD, put_worlds, room_of, world_of

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

INSERT = Statement(lambda insert: insert_into(receipts, NAMES)(insert), *NAMES)
SAVE = Statement(
    lambda _: (
        update(receipts)
        .where(OF_AGENT, same(receipts.c.id, "of_id"), IS_OPEN)
        .values({name: value(receipts.c[name], name) for name in LATER_NAMES})
    ),
    *LATER_NAMES,
    "agent",
    "of_id",
)


def _known(items: Sequence[BindParameter[Any]]) -> Executable:
    """By the transport's key or by the message's: both lead to an index of their own."""
    per_item = list(zip(*[iter(items)] * len(KEYS), strict=True))
    event = [and_(OF_AGENT, *map(eq, EVENT, one[: len(EVENT)])) for one in per_item]
    message = [and_(OF_AGENT, *map(eq, MESSAGE, one[len(EVENT) :])) for one in per_item]
    return union_all(select(*RECEIPT).where(or_(*event)), select(*RECEIPT).where(or_(*message)))


KNOWN = Listing(_known, "agent", width=len(KEYS), most=64)
FIND = Statement(lambda _: select(*RECEIPT).where(OF_AGENT, same(receipts.c.id, "id")), "agent", "id")
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
        .join(rooms, and_(rooms.c.agent_id == memories.c.agent_id, same(rooms.c.id, "room")))
        .join(worlds, and_(worlds.c.agent_id == memories.c.agent_id, worlds.c.id == rooms.c.world_id))
        .join(entities, and_(entities.c.agent_id == memories.c.agent_id, same(entities.c.id, "author")))
        .where(same(memories.c.agent_id, "agent"), same(memories.c.id, "memory"))
    ),
    "room",
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
LISTS = {None: (ALL, OF_ROOM), True: (ALL_OPEN, OPEN_OF_ROOM), False: (ALL_CLOSED, CLOSED_OF_ROOM)}


def receive(
    agent: int, arrivals: Sequence[Arrival], at: datetime, connection: Connection
) -> list[tuple[Receipt, bool]]:
    """Keep events that are not known, with the rows they need."""
    keys = [part for arrival in arrivals for part in _key_values(arrival.key)]
    rows = KNOWN.rows(connection, agent, ids=keys) if keys else []
    found: dict[object, Receipt] = {}
    for receipt in map(receipt_of, rows):
        found[_event(receipt.key)] = found[_message(receipt.key)] = receipt
    outcome: list[tuple[Receipt, bool]] = []
    fresh: list[tuple[Arrival, Receipt]] = []
    for arrival in arrivals:
        key = arrival.key
        known = found.get(_event(key)) or found.get(_message(key))
        if known is None:
            receipt = Receipt(
                new_id(), key, arrival.room.id, arrival.author.id, arrival.message.id, received_at=at
            )
            found[_event(key)] = found[_message(key)] = receipt
            fresh.append((arrival, receipt))
        outcome.append((known or receipt, known is None))
    _keep(connection, agent, fresh)
    return outcome


def _keep(connection: Connection, agent: int, fresh: Sequence[tuple[Arrival, Receipt]]) -> None:
    if not fresh:
        return
    arrivals = [arrival for arrival, _ in fresh]
    put_worlds(connection, agent, [one.world for one in arrivals], [one.room for one in arrivals])
    put_entities(connection, agent, [one.author for one in arrivals])
    attend(connection, agent, [(one.room.id, one.author.id) for one in arrivals])
    put_memories(connection, agent, [one.message for one in arrivals])
    values = [_first_values(agent, receipt) + _later_values(receipt) for _, receipt in fresh]
    INSERT.run_many(connection, values)


def save_receipts(connection: Connection, agent: int, saved: Sequence[Receipt]) -> None:
    """Write the new state of receipts, except where one is final already."""
    SAVE.run_many(connection, [(*_later_values(one), agent, one.id.bytes) for one in saved])


def find_receipt(agent: int, sought: UUID, connection: Connection) -> Receipt | None:
    """Find a receipt by its id, or the latest by its message's."""
    key = (agent, sought.bytes)
    row = FIND.first(connection, *key) or FIND_BY_MEMORY.first(connection, *key, 1)
    return receipt_of(row) if row else None


def find_arrival(agent: int, receipt: Receipt, connection: Connection) -> Arrival | None:
    """Find the rows a receipt was kept with."""
    ids = (receipt.room_id.bytes, receipt.author_id.bytes, agent, receipt.memory_id.bytes)
    row = ARRIVAL.first(connection, *ids)
    if row is None:
        return None
    world, author = world_of(row[:6]), entity_of(row[15:21])
    roles = {author.id: world.role_of(author.id), **world.roles}  # a plain member's is not kept
    return Arrival(receipt.key, replace(world, roles=roles), room_of(row[6:15]), author, memory_of(row[21:]))


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
    (attempts, carried, claimed_at, closed_at, model_calls, notes) = row[15:]
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
    )


def _first_values(agent: int, receipt: Receipt) -> tuple[Any, ...]:
    return (
        agent,
        receipt.id.bytes,
        *_key_values(receipt.key),
        receipt.author_id.bytes,
        receipt.memory_id.bytes,
        moment(receipt.received_at),
    )


def _later_values(receipt: Receipt) -> tuple[Any, ...]:
    return (
        receipt.outcome.value,
        words(receipt.reason),
        words(receipt.rule),
        id_bytes(receipt.turn_id),
        id_bytes(receipt.superseded_by),
        receipt.attempts,
        receipt.carried,
        moment_or_none(receipt.claimed_at),
        moment_or_none(receipt.closed_at),
        dumps([_call_data(call) for call in receipt.model_calls]) if receipt.model_calls else "[]",
        dumps(receipt.notes) if receipt.notes else "[]",
        int(not receipt.outcome.is_final),
    )


def _call_data(call: ModelCall) -> dict[str, Any]:
    return {name: getattr(call, name) for name in CALL_FIELDS}  # `asdict` takes ten times as long


def _key_values(key: EventKey) -> tuple[Any, ...]:
    room, message = key.room_id.bytes, words(key.message_id)
    return (words(key.platform), words(key.account), words(key.event_id), room, message, key.revision)


def _event(key: EventKey) -> object:
    return (words(key.platform), words(key.account), words(key.event_id))


def _message(key: EventKey) -> object:
    return (key.room_id, words(key.message_id), key.revision)
