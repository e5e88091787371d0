"""What platforms change afterwards, in memory."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from bot.domain.content import Content
from bot.domain.edits import (
    LATEST,
    Forgotten,
    Reaction,
    Removed,
    Revised,
    blotted,
    cancelled,
    opted_out,
    sent_as,
    unasked,
    weighed,
    withheld,
)
from bot.domain.environment import Room, World
from bot.domain.inbound import REMEMBERED, Arrival, Notice, Noticed, Received
from bot.domain.ledger import Delivery, DeliveryState
from bot.domain.memory import Memory, MemoryKind
from bot.store.inmemory.cache_logs_costs import InMemoryCache, InMemoryLogs
from bot.store.inmemory.environment import InMemoryEntities, InMemoryWorlds
from bot.store.inmemory.ledger import InMemoryLedger
from bot.store.inmemory.memories import InMemoryMemories
from bot.store.inmemory.tasks import InMemoryTasks

EVERY = 10**9


class InMemoryChanges:
    """Changes what is kept; see `ChangeStore`. Nothing that waits comes between, so each call is atomic."""

    def __init__(
        self,
        ledger: InMemoryLedger,
        worlds: InMemoryWorlds,
        entities: InMemoryEntities,
        memories: InMemoryMemories,
        tasks: InMemoryTasks,
        cache: InMemoryCache,
        logs: InMemoryLogs,
    ) -> None:
        self._ledger, self._worlds, self._entities = ledger, worlds, entities
        self._memories, self._tasks = memories, tasks
        self._cache, self._logs = cache, logs

    async def revise(self, arrival: Arrival, at: datetime, *, is_answering: bool = False) -> Revised:
        receipt = self._ledger.book.known(arrival.key)
        if receipt is not None:
            return Revised(Received(receipt))
        known = self._ledger.book.of_messages(arrival.key.room_id, [arrival.key.message_id])
        if not known:
            [received] = await self._ledger.receive([arrival], at)
            return Revised(received)
        before = (await self._memories.memories([known[0].memory_id])).get(known[0].memory_id)
        edit = weighed(arrival, at, known, before, is_answering=is_answering)
        self._ledger.book.insert(edit.receipt)
        self._ledger.book.save(edit.closed)
        if edit.message is None:
            return Revised(Received(edit.receipt))
        self._memories.put(edit.message)
        world, [room] = self._worlds.put(arrival.world, [arrival.room])
        author = self._entities.put(arrival.author, room.id)
        kept = Arrival(arrival.key, world, room, author, edit.message)
        attendance = self._worlds.attendance_of(room.id)
        return Revised(Received(edit.receipt, kept, attendance, is_new=True), before, edit.closed)

    async def remove(self, room_id: UUID, message_ids: Collection[str], at: datetime) -> Removed:
        gone = self._ledger.book.of_messages(room_id, message_ids)
        parts = await self._ledger.deliveries(room_id=room_id)
        named = {receipt.memory_id for receipt in gone} | sent_as(parts, message_ids)
        messages = tuple(await self._memories.memories(named))
        others = await self._ledger.receipts(room_id=room_id, limit=LATEST)
        reason = "the message that it answers was removed"
        deliveries = withheld(unasked(parts, gone, others), reason)
        receipts = [one for one in gone if not one.outcome.is_final]
        removed = Removed(
            len(messages),
            messages,
            tuple(cancelled(one, at, "its message was removed") for one in receipts),
            tuple(deliveries),
        )
        await self._forget(messages)
        await self._cancel(removed)
        return removed

    async def clear(self, room_id: UUID, at: datetime) -> Removed:
        said = [memory for memory in self._memories.all() if memory.room_id == room_id]
        removed = await self.abandon([room_id], at, "its room was cleared")
        await self._forget([memory.id for memory in said])
        return replace(removed, count=sum(memory.kind is MemoryKind.MESSAGE for memory in said))

    async def abandon(self, room_ids: Collection[UUID], at: datetime, reason: str) -> Removed:
        receipts = await self._ledger.receipts(is_open=True, limit=EVERY)
        removed = Removed(
            receipts=tuple(cancelled(one, at, reason) for one in receipts if one.room_id in room_ids),
            deliveries=tuple(
                withheld([part for part in await self._open_parts() if part.room_id in room_ids], reason)
            ),
        )
        await self._cancel(removed)
        return removed

    async def react(self, reaction: Reaction) -> Memory | None:
        parts = await self._ledger.deliveries(room_id=reaction.room.id)
        about = [
            one.memory_id for one in self._ledger.book.of_messages(reaction.room.id, [reaction.message_id])
        ]
        about += sent_as(parts, [reaction.message_id])
        there = await self._memories.memories(about)
        memory = reaction.about(next(iter(there), None))
        if await self._memories.memories([memory.id]):
            return None
        self._worlds.put(reaction.world, [reaction.room])
        self._entities.put(reaction.author, reaction.room.id)
        self._memories.put(memory)
        return memory

    async def notice(self, notice: Notice, at: datetime) -> Noticed:
        if notice.key and not self._cache.is_first(notice.key, at + REMEMBERED):
            return Noticed(is_new=False)
        before = await self._worlds.world(notice.world.id)
        self._worlds.put(notice.world, ())
        rooms = self._worlds.list_rooms(notice.rooms)
        known = await self._entities.entities([one.id for one in notice.people])
        kept = [self._entities.put(one, None) for one in notice.people]
        if notice.is_leaving:
            there = [room.id for room in await self._worlds.rooms(notice.world.id)]
            for one in kept:
                await self._entities.leave(one.id, there)
        return Noticed(
            before=before,
            rooms=rooms,
            new_people=frozenset(one.id for one in kept) - known.keys(),
            people=frozenset(one.id for one in kept if known.get(one.id) != one),
        )

    async def forget(self, entity_id: UUID, at: datetime) -> Forgotten:
        said = {memory.id for memory in self._memories.all() if memory.entity_id == entity_id}
        kept = await self._memories.memories(said)
        messages = sum(one.kind is MemoryKind.MESSAGE for one in kept.values())
        parts = await self._open_parts()
        receipts = self._ledger.forget(entity_id, at)
        turns = {receipt.turn_id for receipt in receipts if receipt.turn_id is not None}
        waiting = withheld((part for part in parts if part.turn_id in turns), "it was forgotten")
        answers = {one.id for turn_id in turns for one in await self._memories.by_turn(turn_id)} - said
        removed = Removed(
            receipts=tuple(blotted(one, at) for one in receipts if not one.outcome.is_final),
            deliveries=tuple(replace(part, content=Content()) for part in waiting),
        )
        await self._cancel(removed)
        count = len(self._memories.all())
        await self._forget(said | answers)
        drawn = count - len(self._memories.all()) - messages - len(answers)
        details, ties = self._entities.forget(entity_id, opted_out(entity_id, at))
        self._logs.forget(entity_id)
        tasks = self._tasks.forget(entity_id)
        return Forgotten(messages, len(answers), drawn, details, ties, tasks, removed)

    async def move(self, room_id: UUID, world: World, room: Room) -> list[Delivery]:
        self._worlds.move(room_id, world, room)
        self._entities.move(room_id, room.id)
        self._tasks.move(room_id, room.id)
        for memory in self._memories.all():
            if memory.room_id == room_id:
                self._memories.put(replace(memory, room_id=room.id, world_id=room.world_id))
        waiting = [
            part
            for part in await self._open_parts()
            if part.room_id == room_id and part.state is DeliveryState.PENDING
        ]
        return [
            self._ledger.put_last(
                replace(part, room_id=room.id, account=room.account, target=room.external_id)
            )
            for part in waiting
        ]

    async def _open_parts(self) -> list[Delivery]:
        return await self._ledger.deliveries(is_open=True)

    async def _cancel(self, removed: Removed) -> None:
        self._ledger.book.save(removed.receipts)
        for part in removed.deliveries:
            await self._ledger.save_delivery(part)

    async def _forget(self, ids: Iterable[UUID]) -> None:
        """Remove memories, and what was drawn from them, and from that."""
        gone = set(ids)
        while gone:
            await self._memories.remove(gone)
            gone = {memory.id for memory in self._memories.all() if memory.source_id in gone}
