"""Edits, deletions, reactions, membership, erasure and migration of stored data."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import UUID

from sqlalchemy import Connection, delete, select

from bot.domain.environment import Room, World
from bot.domain.inbound import (
    MAX_SCANNED_ROWS,
    DeletionResult,
    EditResult,
    ErasureResult,
    InboundMessage,
    MembershipChange,
    MembershipUpdate,
    Reaction,
    StoredEvent,
    cancel_receipt,
    cancel_unsent,
    messages_by_external_id,
    orphaned_deliveries,
    plan_edit,
)
from bot.domain.ledger import Delivery, Receipt
from bot.domain.memory import Memory, MemoryKind
from bot.domain.proposal import Proposal
from bot.store.sql.core.base import AgentRow, SqlStorePart
from bot.store.sql.core.mapping import items_parameter, limit_parameter, matches, storable_text
from bot.store.sql.core.schema import deliveries, memories, receipts
from bot.store.sql.stores import search
from bot.store.sql.stores.erasure import Erasure, OnCancelled, delete_traces, remove_quotations_in_room
from bot.store.sql.stores.ledger import (
    DELIVERY,
    IN_ROOM,
    RECEIPT,
    find_by_keys,
    insert_receipts,
    list_receipts,
    list_unsent,
    receive,
    save_delivery,
    save_receipts,
    store_events,
    withdraw_proposals,
)
from bot.store.sql.stores.membership import apply_membership, migrate_room
from bot.store.sql.stores.memories import FIND_MEMORIES, MEMORY, delete_with_derived, put_memories
from bot.store.sql.stores.summaries import EMPTY_IN_ROOM, empty_summaries_with
from bot.store.sql.stores.worlds import put_environment

NO_LIMIT = 2**31 - 1
SOURCE_MEMORIES = memories.alias("said")

RECEIPTS_OF_MESSAGES = select(*RECEIPT).where(
    IN_ROOM, receipts.c.message_id.in_(items_parameter(receipts.c.message_id))
)
LATEST_DELIVERIES = (
    select(*DELIVERY).where(matches(deliveries, "room_id")).order_by(deliveries.c.seq.desc()).limit(limit_parameter())
)
DERIVED_FROM_ROOM = select(memories.c.id).where(
    matches(memories),
    memories.c.source_id.in_(
        select(SOURCE_MEMORIES.c.id).where(
            SOURCE_MEMORIES.c.agent_id == memories.c.agent_id, matches(SOURCE_MEMORIES, "room_id")
        )
    ),
)
DELETE_KIND_IN_ROOM = delete(memories).where(matches(memories, "room_id", "kind"))


def _apply_edit(
    agent_row: AgentRow, inbound: InboundMessage, now: datetime, is_answering: bool, connection: Connection
) -> EditResult:
    agent, key = agent_row.number, inbound.key
    receipt = next(iter(find_by_keys(connection, agent, [key]).values()), None)
    if receipt is not None:
        return EditResult(StoredEvent(receipt))
    revisions = _receipts_of_messages(connection, agent, key.room_id, [key.message_id])
    if not revisions:
        return EditResult(receive(agent_row, [inbound], now, None, connection)[0])
    previous = _find_memories(connection, agent, [revisions[0].memory_id]).get(revisions[0].memory_id)
    edit = plan_edit(inbound, now, revisions, previous, is_answering=is_answering)
    save_receipts(connection, agent, edit.superseded)
    withdrawn: tuple[Proposal, ...] = ()
    if edit.message is not None:
        message_id, cause = edit.message.id, "its message was edited"
        withdrawn = withdraw_proposals(connection, agent, now, cause, lambda item: message_id in item.subject_ids)
    if edit.message is None:
        insert_receipts(connection, agent, [edit.receipt])
        return EditResult(StoredEvent(edit.receipt))
    search.delete_embeddings(connection, agent, [edit.message.id])
    empty_summaries_with(connection, agent, [edit.message.id])
    [received] = store_events(connection, agent_row, [(replace(inbound, message=edit.message), edit.receipt)])
    return EditResult(received, previous, edit.superseded, withdrawn)


def _delete_messages(
    agent: int, room_id: UUID, message_ids: Collection[str], now: datetime, connection: Connection
) -> DeletionResult:
    message_receipts = _receipts_of_messages(connection, agent, room_id, message_ids)
    latest = _latest_deliveries(connection, agent, room_id)
    memory_ids = {receipt.memory_id for receipt in message_receipts} | messages_by_external_id(latest, message_ids)
    deleted_ids = tuple(_find_memories(connection, agent, memory_ids))
    room_receipts = list_receipts(agent, room_id, None, MAX_SCANNED_ROWS, connection)
    orphaned = orphaned_deliveries(_unsent_deliveries(connection, agent, {room_id}), message_receipts, room_receipts)
    result = DeletionResult(
        len(deleted_ids),
        deleted_ids,
        tuple(
            cancel_receipt(receipt, now, "its message was removed")
            for receipt in message_receipts
            if not receipt.outcome.is_final
        ),
        tuple(cancel_unsent(orphaned, "the message that it answers was removed")),
        withdraw_proposals(
            connection, agent, now, "its message was removed", lambda item: not item.subject_ids.isdisjoint(memory_ids)
        ),
    )
    quoted_ids = list(map(storable_text, message_ids))
    is_quoted = remove_quotations_in_room(connection, agent, room_id, quoted_ids, deleted_ids)
    if message_receipts or deleted_ids or is_quoted:
        times = [receipt.received_at for receipt in message_receipts]
        delete_traces(connection, agent, [room_id], min(times) if times else None)
    delete_with_derived(connection, agent, deleted_ids)
    _save_cancelled(connection, agent, result)
    return result


def _clear_room(agent: int, room_id: UUID, now: datetime, connection: Connection) -> DeletionResult:
    result = _cancel_open_work(agent, [room_id], now, "its room was cleared", connection)
    delete_traces(connection, agent, [room_id])
    key = {"agent": agent, "room_id_": room_id}
    connection.execute(EMPTY_IN_ROOM, key)
    derived = list(connection.execute(DERIVED_FROM_ROOM, key).scalars())
    counts = {kind: connection.execute(DELETE_KIND_IN_ROOM, {**key, "kind_": kind}).rowcount for kind in MemoryKind}
    delete_with_derived(connection, agent, derived)
    return replace(result, message_count=counts[MemoryKind.MESSAGE])


def _cancel_open_work(
    agent: int, room_ids: Collection[UUID], now: datetime, reason: str, connection: Connection
) -> DeletionResult:
    rooms = set(room_ids)  # a world may have thousands; few receipts are open at all
    open_receipts = list_receipts(agent, None, True, NO_LIMIT, connection)
    result = DeletionResult(
        receipts=tuple(cancel_receipt(receipt, now, reason) for receipt in open_receipts if receipt.room_id in rooms),
        deliveries=tuple(cancel_unsent(_unsent_deliveries(connection, agent, rooms), reason)),
        proposals=withdraw_proposals(connection, agent, now, reason, lambda item: item.room_id in rooms),
    )
    _save_cancelled(connection, agent, result)
    return result


def _store_reaction(agent_row: AgentRow, reaction: Reaction, connection: Connection) -> Memory | None:
    agent = agent_row.number
    memory = reaction.to_memory(_find_message(agent, reaction.room.id, reaction.message_id, connection))
    if _find_memories(connection, agent, [memory.id]):
        return None
    put_environment(connection, agent_row, [(reaction.world, reaction.room, reaction.author)])
    put_memories(connection, agent, [memory])
    return memory


def _find_message(agent: int, room_id: UUID, message_id: str, connection: Connection) -> UUID | None:
    receipts = _receipts_of_messages(connection, agent, room_id, [message_id])
    memory_ids = {receipt.memory_id for receipt in receipts}
    memory_ids |= messages_by_external_id(_latest_deliveries(connection, agent, room_id), [message_id])
    return next(iter(_find_memories(connection, agent, memory_ids)), None)


def _receipts_of_messages(
    connection: Connection, agent: int, room_id: UUID, message_ids: Collection[str]
) -> list[Receipt]:
    """Return the receipts of all revisions of messages."""
    return RECEIPT.find(connection, RECEIPTS_OF_MESSAGES, message_ids, agent=agent, room_id_=room_id)


def _find_memories(connection: Connection, agent: int, ids: Collection[UUID]) -> dict[UUID, Memory]:
    """Return memories by id, without their vectors."""
    return {memory.id: memory for memory in MEMORY.find(connection, FIND_MEMORIES, ids, agent=agent)}


def _latest_deliveries(connection: Connection, agent: int, room_id: UUID) -> list[Delivery]:
    values = {"agent": agent, "room_id_": room_id, "limit": MAX_SCANNED_ROWS}
    return list(DELIVERY.read_all(connection.execute(LATEST_DELIVERIES, values)))


def _unsent_deliveries(connection: Connection, agent: int, room_ids: Collection[UUID]) -> list[Delivery]:
    return [delivery for delivery in list_unsent(agent, connection) if delivery.room_id in room_ids]


def _save_cancelled(connection: Connection, agent: int, result: DeletionResult) -> None:
    save_receipts(connection, agent, result.receipts)
    for delivery in result.deliveries:
        save_delivery(agent, delivery, connection)


class SqlEdits(SqlStorePart):
    """Changes stored data; see `EditStore`."""

    async def apply_edit(self, edit: InboundMessage, now: datetime, *, is_answering: bool = False) -> EditResult:
        return await self._database.write(partial(_apply_edit, self._agent_row, edit, now, is_answering))

    async def delete_messages(self, room_id: UUID, message_ids: Collection[str], now: datetime) -> DeletionResult:
        return await self._database.write(partial(_delete_messages, self._agent, room_id, message_ids, now))

    async def clear_room(self, room_id: UUID, now: datetime) -> DeletionResult:
        return await self._database.write(partial(_clear_room, self._agent, room_id, now))

    async def cancel_open_work(self, room_ids: Collection[UUID], now: datetime, reason: str) -> DeletionResult:
        return await self._database.write(partial(_cancel_open_work, self._agent, room_ids, now, reason))

    async def save_reaction(self, reaction: Reaction) -> Memory | None:
        return await self._database.write(partial(_store_reaction, self._agent_row, reaction))

    async def find_message(self, room_id: UUID, message_id: str) -> UUID | None:
        return await self._database.read(partial(_find_message, self._agent, room_id, message_id))

    async def apply_membership(self, update: MembershipUpdate, now: datetime) -> MembershipChange:
        return await self._database.write(partial(apply_membership, self._agent, update, now))

    async def erase_entity(
        self, entity_id: UUID, now: datetime, on_cancelled: OnCancelled | None = None
    ) -> ErasureResult:
        return await Erasure(self._database, self._agent, entity_id, now, on_cancelled).run()

    async def migrate_room(self, room_id: UUID, world: World, room: Room) -> list[Delivery]:
        return await self._database.write(partial(migrate_room, self._agent, room_id, world, room))
