"""Edits, deletions and erasure in memory."""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from bot.domain.content import FORWARDED_AUTHOR
from bot.domain.environment import Room, World
from bot.domain.inbound import (
    MAX_SCANNED_ROWS,
    MEMBERSHIP_EVENT_TTL,
    DeletionResult,
    EditResult,
    ErasedWords,
    ErasureResult,
    InboundMessage,
    MembershipChange,
    MembershipUpdate,
    Reaction,
    StoredEvent,
    cancel_receipt,
    cancel_unsent,
    messages_by_external_id,
    opt_out_component,
    orphaned_deliveries,
    plan_edit,
    redact_delivery,
    redact_receipt,
    remove_quotation,
)
from bot.domain.ledger import Delivery, DeliveryState
from bot.domain.memory import Memory, MemoryKind
from bot.store.inmemory.ledger import InMemoryLedger
from bot.store.inmemory.records import (
    InMemoryCache,
    InMemoryCosts,
    InMemoryEntities,
    InMemoryLogs,
    InMemoryMemories,
    InMemoryTasks,
    InMemoryWorlds,
)

NO_LIMIT = 10**9


class InMemoryEdits:
    """Implements `EditStore`. Nothing in a method waits, so each call is atomic."""

    def __init__(
        self,
        ledger: InMemoryLedger,
        worlds: InMemoryWorlds,
        entities: InMemoryEntities,
        memories: InMemoryMemories,
        tasks: InMemoryTasks,
        cache: InMemoryCache,
        logs: InMemoryLogs,
        costs: InMemoryCosts,
    ) -> None:
        self._ledger, self._worlds, self._entities = ledger, worlds, entities
        self._memories, self._tasks = memories, tasks
        self._cache, self._logs, self._costs = cache, logs, costs

    async def apply_edit(self, edit: InboundMessage, now: datetime, *, is_answering: bool = False) -> EditResult:
        receipt = self._ledger.receipt_table.find_by_key(edit.key)
        if receipt is not None:
            return EditResult(StoredEvent(receipt))
        receipts = self._ledger.receipt_table.find_by_messages(edit.key.room_id, [edit.key.message_id])
        if not receipts:
            [event] = await self._ledger.receive([edit], now)
            return EditResult(event)
        previous = (await self._memories.memories([receipts[0].memory_id])).get(receipts[0].memory_id)
        plan = plan_edit(edit, now, receipts, previous, is_answering=is_answering)
        self._ledger.receipt_table.insert(plan.receipt)
        self._ledger.receipt_table.save(plan.superseded)
        if plan.message is None:
            return EditResult(StoredEvent(plan.receipt))
        self._memories.upsert(plan.message)
        world, [room] = self._worlds.upsert(edit.world, [edit.room])
        author = self._entities.upsert(edit.author, room.id)
        stored = InboundMessage(edit.key, world, room, author, plan.message)
        participant_state = self._worlds.participant_state_of(room.id)
        return EditResult(StoredEvent(plan.receipt, stored, participant_state, is_new=True), previous, plan.superseded)

    async def delete_messages(self, room_id: UUID, message_ids: Collection[str], now: datetime) -> DeletionResult:
        message_receipts = self._ledger.receipt_table.find_by_messages(room_id, message_ids)
        self._ledger.erase_traces({room_id})
        room_deliveries = await self._ledger.deliveries(room_id=room_id)
        memory_ids = {receipt.memory_id for receipt in message_receipts} | messages_by_external_id(
            room_deliveries, message_ids
        )
        stored_ids = tuple(await self._memories.memories(memory_ids))
        room_receipts = await self._ledger.receipts(room_id=room_id, limit=MAX_SCANNED_ROWS)
        reason = "the message that it answers was removed"
        cancelled_deliveries = cancel_unsent(
            orphaned_deliveries(room_deliveries, message_receipts, room_receipts), reason
        )
        open_receipts = [open_receipt for open_receipt in message_receipts if not open_receipt.outcome.is_final]
        result = DeletionResult(
            len(stored_ids),
            stored_ids,
            tuple(cancel_receipt(open_receipt, now, "its message was removed") for open_receipt in open_receipts),
            tuple(cancelled_deliveries),
        )
        self._remove_quotations(quoted={(room_id, message_id) for message_id in message_ids})
        await self._delete_memories(stored_ids)
        await self._save_cancelled(result)
        return result

    async def clear_room(self, room_id: UUID, now: datetime) -> DeletionResult:
        self._ledger.erase_traces({room_id})
        memories = [memory for memory in self._memories.all() if memory.room_id == room_id]
        result = await self.cancel_open_work([room_id], now, "its room was cleared")
        await self._delete_memories([memory.id for memory in memories])
        return replace(result, message_count=sum(memory.kind is MemoryKind.MESSAGE for memory in memories))

    async def cancel_open_work(self, room_ids: Collection[UUID], now: datetime, reason: str) -> DeletionResult:
        open_receipts = await self._ledger.receipts(is_open=True, limit=NO_LIMIT)
        result = DeletionResult(
            receipts=tuple(
                cancel_receipt(receipt, now, reason) for receipt in open_receipts if receipt.room_id in room_ids
            ),
            deliveries=tuple(
                cancel_unsent(
                    [delivery for delivery in await self._ledger.deliveries() if delivery.room_id in room_ids], reason
                )
            ),
        )
        await self._save_cancelled(result)
        return result

    async def save_reaction(self, reaction: Reaction) -> Memory | None:
        deliveries = await self._ledger.deliveries(room_id=reaction.room.id)
        memory_ids = [
            receipt.memory_id
            for receipt in self._ledger.receipt_table.find_by_messages(reaction.room.id, [reaction.message_id])
        ]
        memory_ids += messages_by_external_id(deliveries, [reaction.message_id])
        memories = await self._memories.memories(memory_ids)
        memory = reaction.to_memory(next(iter(memories), None))
        if await self._memories.memories([memory.id]):
            return None
        self._worlds.upsert(reaction.world, [reaction.room])
        self._entities.upsert(reaction.author, reaction.room.id)
        self._memories.upsert(memory)
        return memory

    async def apply_membership(self, update: MembershipUpdate, now: datetime) -> MembershipChange:
        if update.event_key and not self._cache.add_if_absent(update.event_key, now + MEMBERSHIP_EVENT_TTL):
            return MembershipChange(is_new=False)
        previous_world = await self._worlds.world(update.world.id)
        self._worlds.upsert(update.world, ())
        new_room_ids = self._worlds.add_rooms(update.rooms)
        existing = await self._entities.entities([entity.id for entity in update.entities])
        stored = [self._entities.upsert(entity, None) for entity in update.entities]
        if update.is_leaving:
            room_ids = [room.id for room in await self._worlds.rooms(update.world.id)]
            for entity in stored:
                await self._entities.leave_rooms(entity.id, room_ids)
        return MembershipChange(
            previous_world=previous_world,
            new_room_ids=new_room_ids,
            new_entity_ids=frozenset(entity.id for entity in stored) - existing.keys(),
            changed_entity_ids=frozenset(entity.id for entity in stored if existing.get(entity.id) != entity),
        )

    async def erase_entity(
        self, entity_id: UUID, now: datetime, on_cancelled: Callable[[DeletionResult], Awaitable[None]] | None = None
    ) -> ErasureResult:
        memory_ids = {
            memory.id
            for memory in self._memories.all()
            if memory.entity_id == entity_id or memory.content.metadata.get(FORWARDED_AUTHOR) == str(entity_id)
        }
        memories = await self._memories.memories(memory_ids)
        message_count = sum(item.kind is MemoryKind.MESSAGE for item in memories.values())
        deliveries = await self._ledger.deliveries()
        receipts = self._ledger.redact_author(entity_id, now)
        turn_ids = {receipt.turn_id for receipt in receipts if receipt.turn_id is not None}
        unsent = cancel_unsent(
            (delivery for delivery in deliveries if delivery.turn_id in turn_ids), "it was forgotten"
        )
        of_turns = {item.id: item for turn_id in turn_ids for item in await self._memories.by_turn(turn_id)}
        reply_count = sum(
            item.kind is MemoryKind.MESSAGE for memory_id, item in of_turns.items() if memory_id not in memory_ids
        )
        answers = {(item.room_id, item.external_id) for item in deliveries if item.turn_id in turn_ids}
        self._remove_quotations(author_id=entity_id, quoted=answers)
        cancelled = DeletionResult(
            receipts=tuple(redact_receipt(item, now) for item in receipts if not item.outcome.is_final),
            deliveries=tuple(redact_delivery(delivery) for delivery in unsent),
        )
        await self._save_cancelled(cancelled)
        total_before = len(self._memories.all())
        await self._delete_memories(memory_ids | of_turns.keys())
        await self._remove_words([memory.content.text for memory in memories.values()])
        derived_count = total_before - len(self._memories.all()) - message_count - reply_count
        for entity in (await self._entities.entities([entity_id])).values():
            self._ledger.erase_unreadable(entity)
        self._worlds.erase_names(entity_id)
        component_count, relationship_count = self._entities.erase(entity_id, opt_out_component(entity_id, now))
        self._logs.erase(entity_id)
        self._cache.erase(entity_id)
        task_count = self._tasks.erase(entity_id)
        if on_cancelled is not None:
            await on_cancelled(cancelled)
        return ErasureResult(
            message_count,
            reply_count,
            derived_count,
            component_count,
            relationship_count,
            task_count,
            cancelled,
            self._costs.anonymize(entity_id, now.date()),
        )

    async def migrate_room(self, room_id: UUID, world: World, room: Room) -> list[Delivery]:
        left_world = self._worlds.migrate_room(room_id, world, room)
        self._entities.migrate_room(room_id, room.id)
        self._tasks.migrate_room(room_id, room.id)
        for memory in self._memories.all():
            if memory.room_id == room_id:
                self._memories.upsert(replace(memory, room_id=room.id, world_id=room.world_id))
            elif memory.world_id == left_world:
                self._memories.upsert(replace(memory, world_id=room.world_id))
        if left_world is not None:
            self._entities.migrate_world(left_world, room.world_id)
            self._tasks.migrate_world(left_world, room.world_id)
        pending = [
            delivery
            for delivery in await self._ledger.deliveries(is_open=True)
            if delivery.room_id == room_id and delivery.state is DeliveryState.PENDING
        ]
        return [
            self._ledger.append_delivery(
                replace(delivery, room_id=room.id, account=room.account, target=room.external_id)
            )
            for delivery in pending
        ]

    def _remove_quotations(self, *, quoted: Collection[tuple[UUID, str]], author_id: UUID | None = None) -> None:
        """Remove the words of an author, and of messages by room and platform id, from the replies to them."""
        for memory in self._memories.all():
            quotation = memory.content.quotation
            if quotation is None:
                continue
            is_by_author = author_id is not None and quotation.author_id == author_id
            if is_by_author or (quotation.message_id and (memory.room_id, quotation.message_id) in quoted):
                self._memories.upsert(remove_quotation(memory))

    async def _remove_words(self, texts: Iterable[str]) -> None:
        """Remove an erased person's words from replies to others, and from the steps and deliveries of their turns."""
        words = ErasedWords()
        for text in texts:
            words.add(text)
        for reply in [memory for memory in self._memories.all() if memory.turn_id is not None]:
            redacted = words.remove_from_reply(reply)
            if redacted is not reply and reply.turn_id is not None:
                self._memories.upsert(redacted)
                await self._ledger.remove_words(reply.turn_id, words)

    async def _save_cancelled(self, cancelled: DeletionResult) -> None:
        self._ledger.receipt_table.save(cancelled.receipts)
        for delivery in cancelled.deliveries:
            await self._ledger.save_delivery(delivery)

    async def _delete_memories(self, ids: Iterable[UUID]) -> None:
        """Delete memories and, repeatedly, everything derived from them."""
        deleted = set(ids)
        while deleted:
            await self._memories.remove(deleted)
            deleted = {memory.id for memory in self._memories.all() if memory.source_id in deleted}
