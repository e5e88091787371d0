"""What platforms change afterwards, in SQL."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import UUID

from sqlalchemy import Connection, delete, select

from bot import Memory, MemoryKind, Receipt, Room, World
from bot.platform import Arrival, Delivery, Reaction
from bot.store import (
    LATEST,
    Forgotten,
    Notice,
    Noticed,
    Received,
    Removed,
    Revised,
    cancelled,
    sent_as,
    unasked,
    weighed,
    withheld,
)
from plugins.sql.core.base import Book, Owner
from plugins.sql.core.schema import deliveries, memories, receipts
from plugins.sql.core.statements import Listing, Statement, limit, same
from plugins.sql.core.values import id_of, storable_text
from plugins.sql.stores import search
from plugins.sql.stores.deliveries import DELIVERY, delivery_of, list_deliveries, save_delivery
from plugins.sql.stores.entities import attend, put_entities
from plugins.sql.stores.erasure import forget
from plugins.sql.stores.membership import move
from plugins.sql.stores.membership import notice as keep_notice
from plugins.sql.stores.memories import FIND as FIND_MEMORIES
from plugins.sql.stores.memories import REMOVE, memory_of, put_memories
from plugins.sql.stores.receipts import (
    IN_ROOM,
    OF_AGENT,
    RECEIPT,
    book,
    keep,
    known_by_key,
    list_receipts,
    receipt_of,
    receive,
    save_receipts,
)
from plugins.sql.stores.worlds import put_rooms, put_worlds

EVERY = 2**31 - 1
SAID = memories.alias("said")

OF_MESSAGES = Listing(
    lambda ids: select(*RECEIPT).where(OF_AGENT, IN_ROOM, receipts.c.message_id.in_(ids)), "agent", "room"
)
LATEST_PARTS = Statement(
    lambda _: (
        select(*DELIVERY)
        .where(same(deliveries.c.agent_id, "agent"), same(deliveries.c.room_id, "room"))
        .order_by(deliveries.c.seq.desc())
        .limit(limit())
    ),
    "agent",
    "room",
    "limit",
)
DRAWN = Listing(
    lambda ids: select(memories.c.id).where(
        same(memories.c.agent_id, "agent"), memories.c.source_id.in_(ids)
    ),
    "agent",
)
DRAWN_FROM_ROOM = Statement(
    lambda _: select(memories.c.id).where(
        same(memories.c.agent_id, "agent"),
        memories.c.source_id.in_(
            select(SAID.c.id).where(SAID.c.agent_id == memories.c.agent_id, same(SAID.c.room_id, "room"))
        ),
    ),
    "agent",
    "room",
)
CLEAR_KIND = Statement(
    lambda _: delete(memories).where(
        same(memories.c.agent_id, "agent"), same(memories.c.room_id, "room"), same(memories.c.kind, "kind")
    ),
    "agent",
    "room",
    "kind",
)


def _revise(
    owner: Owner, arrival: Arrival, at: datetime, is_answering: bool, connection: Connection
) -> Revised:
    agent, key = owner.number, arrival.key
    receipt = next(iter(known_by_key(connection, agent, [key]).values()), None)
    if receipt is not None:
        return Revised(Received(receipt))
    known = _of_messages(connection, agent, key.room_id, [key.message_id])
    if not known:
        return Revised(receive(owner, [arrival], at, None, connection)[0])
    before = _memories(connection, agent, [known[0].memory_id]).get(known[0].memory_id)
    edit = weighed(arrival, at, known, before, is_answering=is_answering)
    save_receipts(connection, agent, edit.closed)
    if edit.message is None:
        book(connection, agent, [edit.receipt])
        return Revised(Received(edit.receipt))
    search.delete_embeddings(connection, agent, [edit.message.id])
    [received] = keep(connection, owner, [(replace(arrival, message=edit.message), edit.receipt)])
    return Revised(received, before, edit.closed)


def _remove(
    agent: int, room_id: UUID, message_ids: Collection[str], at: datetime, connection: Connection
) -> Removed:
    gone = _of_messages(connection, agent, room_id, message_ids)
    parts = _latest_parts(connection, agent, room_id)
    named = {receipt.memory_id for receipt in gone} | sent_as(parts, message_ids)
    messages = tuple(_memories(connection, agent, named))
    others = list_receipts(agent, room_id, None, LATEST, connection)
    waiting = unasked(_open_parts(connection, agent, {room_id}), gone, others)
    removed = Removed(
        len(messages),
        messages,
        tuple(cancelled(one, at, "its message was removed") for one in gone if not one.outcome.is_final),
        tuple(withheld(waiting, "the message that it answers was removed")),
    )
    _forget(connection, agent, messages)
    _cancel(connection, agent, removed)
    return removed


def _clear(agent: int, room_id: UUID, at: datetime, connection: Connection) -> Removed:
    removed = _abandon(agent, [room_id], at, "its room was cleared", connection)
    drawn = [id_of(row[0]) for row in DRAWN_FROM_ROOM.rows(connection, agent, room_id.bytes)]
    counts = {kind: CLEAR_KIND.run(connection, agent, room_id.bytes, kind.value) for kind in MemoryKind}
    _forget(connection, agent, drawn)
    return replace(removed, count=counts[MemoryKind.MESSAGE])


def _abandon(
    agent: int, room_ids: Collection[UUID], at: datetime, reason: str, connection: Connection
) -> Removed:
    rooms = set(room_ids)  # a world may have thousands, while few receipts are open anywhere
    waiting = list_receipts(agent, None, True, EVERY, connection)
    removed = Removed(
        receipts=tuple(cancelled(one, at, reason) for one in waiting if one.room_id in rooms),
        deliveries=tuple(withheld(_open_parts(connection, agent, rooms), reason)),
    )
    _cancel(connection, agent, removed)
    return removed


def _react(agent: int, reaction: Reaction, connection: Connection) -> Memory | None:
    room_id = reaction.room.id
    about = {one.memory_id for one in _of_messages(connection, agent, room_id, [reaction.message_id])}
    about |= sent_as(_latest_parts(connection, agent, room_id), [reaction.message_id])
    memory = reaction.about(next(iter(_memories(connection, agent, about)), None))
    if _memories(connection, agent, [memory.id]):
        return None
    put_worlds(connection, agent, [reaction.world])
    put_rooms(connection, agent, [reaction.room])
    put_entities(connection, agent, [reaction.author])
    attend(connection, agent, [(room_id, reaction.author.id)])
    put_memories(connection, agent, [memory])
    return memory


def _of_messages(
    connection: Connection, agent: int, room_id: UUID, message_ids: Collection[str]
) -> list[Receipt]:
    """List the receipts of messages, all revisions of them."""
    ids = [storable_text(one) for one in message_ids]
    return [receipt_of(row) for row in OF_MESSAGES.rows(connection, agent, room_id.bytes, ids=ids)]


def _memories(connection: Connection, agent: int, ids: Collection[UUID]) -> dict[UUID, Memory]:
    rows = FIND_MEMORIES.rows(connection, agent, ids=[one.bytes for one in ids])
    return {memory.id: memory for memory in map(memory_of, (row[:12] for row in rows))}


def _latest_parts(connection: Connection, agent: int, room_id: UUID) -> list[Delivery]:
    return [delivery_of(row) for row in LATEST_PARTS.rows(connection, agent, room_id.bytes, LATEST)]


def _open_parts(connection: Connection, agent: int, room_ids: Collection[UUID]) -> list[Delivery]:
    """List the parts that wait in rooms; few wait anywhere."""
    found = list_deliveries(agent, True, None, None, connection)
    return [part for part in found if part.room_id in room_ids]


def _cancel(connection: Connection, agent: int, removed: Removed) -> None:
    save_receipts(connection, agent, removed.receipts)
    for part in removed.deliveries:
        save_delivery(agent, part, connection)


def _forget(connection: Connection, agent: int, ids: Sequence[UUID]) -> None:
    """Remove memories, and what was drawn from them, and from that; vectors go with them."""
    keys = [one.bytes for one in ids]
    while keys:
        REMOVE.count(connection, agent, ids=keys)
        keys = [row[0] for row in DRAWN.rows(connection, agent, ids=keys)]


class SqlChanges(Book):
    """Changes what is kept; see `ChangeStore`."""

    async def revise(self, arrival: Arrival, at: datetime, *, is_answering: bool = False) -> Revised:
        return await self._database.write(partial(_revise, self._owner, arrival, at, is_answering))

    async def remove(self, room_id: UUID, message_ids: Collection[str], at: datetime) -> Removed:
        return await self._database.write(partial(_remove, self._agent, room_id, message_ids, at))

    async def clear(self, room_id: UUID, at: datetime) -> Removed:
        return await self._database.write(partial(_clear, self._agent, room_id, at))

    async def abandon(self, room_ids: Collection[UUID], at: datetime, reason: str) -> Removed:
        return await self._database.write(partial(_abandon, self._agent, room_ids, at, reason))

    async def react(self, reaction: Reaction) -> Memory | None:
        return await self._database.write(partial(_react, self._agent, reaction))

    async def notice(self, notice: Notice, at: datetime) -> Noticed:
        return await self._database.write(partial(keep_notice, self._agent, notice, at))

    async def forget(self, entity_id: UUID, at: datetime) -> Forgotten:
        return await self._database.write(partial(forget, self._agent, entity_id, at))

    async def move(self, room_id: UUID, world: World, room: Room) -> list[Delivery]:
        return await self._database.write(partial(move, self._agent, room_id, world, room))
