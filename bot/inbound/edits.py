"""The door's other leaf: what a platform changes afterwards, kept before the platform is told so."""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from bot.concurrency.clock import Clock, system_clock
from bot.domain.edits import EDITED, Forgotten, Reaction, Removed
from bot.domain.environment import Room, World
from bot.domain.events import (
    ChannelCleared,
    EntityForgotten,
    MessageDeleted,
    MessageEdited,
    ReactionReceived,
    RoomLeft,
    RoomMoved,
    WorldLeft,
)
from bot.domain.inbound import TOO_OLD, Arrival
from bot.domain.ledger import Outcome, Receipt
from bot.domain.memory import MemoryKind
from bot.event_bus import EventBus
from bot.inbound.inbox import Inbox
from bot.inbound.sanitize import (
    tidied,
    tidied_id,
    tidied_reaction,
    tidied_room,
    tidied_sign,
    tidied_world,
)
from bot.outbound.outbox import Outbox
from bot.store.protocols import Store

logger = logging.getLogger(__name__)
MOST_SIGNS = 1000


class Work(Protocol):
    """What is being worked on; see `Underway`."""

    def is_answering(self, room_id: UUID, message_id: str) -> bool: ...
    def withdraw(self, receipt_ids: Collection[UUID]) -> list[UUID]: ...
    def call_off(self, room_id: UUID) -> list[UUID]: ...


class Changes:
    """Takes in that a message was edited or removed, that somebody reacted, that a room is gone or moved.

    Each change is kept when its method returns, and repeated it changes nothing more. All of them raise
    IntakeClosed while the bot is stopping and StoreUnavailable while nothing can be kept: the platform
    must then not be told. Changes follow one another, so that the last word is the last.
    """

    def __init__(
        self,
        agent_id: UUID,
        *,
        store: Store,
        inbox: Inbox,
        outbox: Outbox,
        work: Work,
        events: EventBus,
        clock: Clock = system_clock,
    ) -> None:
        self._agent_id = agent_id
        self._store, self._inbox, self._outbox = store, inbox, outbox
        self._work, self._events, self._clock = work, events, clock
        self._in_turn = asyncio.Lock()

    async def edited(self, arrival: Arrival) -> Receipt:
        """Keep an edit: the same message, with a higher `revision` and an event id of its own.

        Before the answer is accepted, the new text is what is answered. Later, ON_EDIT decides. An edit
        of a message that is not known is a message like any, unless it was written long ago.
        """
        return await self._inbox.carry_out(self._edit(tidied(arrival, self._clock())))

    async def deleted(self, room_id: UUID, message_ids: Collection[str]) -> int:
        """Forget messages that a platform took back, and what was learnt from them alone; counts them.

        What waits for an answer is answered no more. What is on its way to the platform arrives.
        """
        return await self._inbox.carry_out(self._delete(room_id, [tidied_id(one) for one in message_ids]))

    async def cleared(self, room_id: UUID) -> int:
        """Forget all that was said in a room, and cancel what was still to be said there; counts messages."""
        return await self._inbox.carry_out(self._clear(room_id))

    async def left(self, room_id: UUID) -> None:
        """Take in that a room is gone, or the agent is no longer in it; what was said there is remembered."""
        await self._inbox.carry_out(self._leave(room_id))

    async def left_world(self, world_id: UUID) -> None:
        """Take in that a world is gone, with all its rooms, or the agent is no longer in it."""
        await self._inbox.carry_out(self._leave_world(world_id))

    async def reacted(self, reaction: Reaction) -> bool:
        """Keep a reaction to a message, known or not; False where it was known already."""
        return await self._inbox.carry_out(self._react(tidied_reaction(reaction, self._clock())))

    async def unreacted(
        self, room_id: UUID, message_id: str, *, author_id: UUID | None = None, sign: str = ""
    ) -> int:
        """Forget signs that were taken off a message, and count them.

        Everybody's where no author is named, and every sign where none is; of the room's last thousand.
        """
        change = self._unreact(room_id, tidied_id(message_id), author_id, tidied_sign(sign))
        return await self._inbox.carry_out(change)

    async def forgotten(self, entity_id: UUID) -> Forgotten:
        """Delete what is kept of somebody, and stop what is being done for them; tells how much it was."""
        return await self._inbox.carry_out(self._forget(entity_id))

    async def moved(self, room_id: UUID, world: World, room: Room) -> None:
        """Have a room go on under another id: what was said in it, and what is still to be said, go along."""
        change = self._move(room_id, tidied_world(world), tidied_room(room))
        await self._inbox.carry_out(change)

    async def _edit(self, arrival: Arrival) -> Receipt:
        async with self._in_turn:
            key, now = arrival.key, self._clock()
            is_answering = self._work.is_answering(key.room_id, key.message_id)
            revised = await self._store.changes.revise(arrival, now, is_answering=is_answering)
            receipt = revised.received.receipt
            is_unknown = revised.before is None and revised.received.is_new
            if is_unknown and now - arrival.message.created_at > TOO_OLD:
                reason = "it was written long before it was edited"
                receipt = replace(receipt, outcome=Outcome.EXPIRED, reason=reason, rule=EDITED, closed_at=now)
                await self._store.ledger.save_receipts([receipt])
                return receipt
            await self._settle(revised.closed)
            if revised.before is not None and revised.received.arrival is not None:
                message = revised.received.arrival.message
                self._events.emit(MessageEdited(self._agent_id, message, revised.before))
            await self._inbox.begin(revised.received)
            return receipt

    async def _delete(self, room_id: UUID, message_ids: Collection[str]) -> int:
        async with self._in_turn:
            removed = await self._store.changes.remove(room_id, message_ids, self._clock())
            await self._take_out(removed)
            for message_id in removed.messages:
                self._events.emit(MessageDeleted(self._agent_id, message_id, room_id))
            return removed.count

    async def _clear(self, room_id: UUID) -> int:
        async with self._in_turn:
            removed = await self._store.changes.clear(room_id, self._clock())
            await self._take_out(removed)
            room = await self._store.worlds.room(room_id)
            name = room.external_id if room is not None else ""
            self._events.emit(ChannelCleared(self._agent_id, room_id, name, removed.count))
            return removed.count

    async def _leave(self, room_id: UUID) -> None:
        async with self._in_turn:
            await self._abandon([room_id], "the agent is no longer in this room")
            room = await self._store.worlds.room(room_id)
            if room is not None:
                self._events.emit(RoomLeft(self._agent_id, room))

    async def _leave_world(self, world_id: UUID) -> None:
        async with self._in_turn:
            rooms = await self._store.worlds.rooms(world_id)
            await self._abandon([room.id for room in rooms], "the agent is no longer in this world")
            world = await self._store.worlds.world(world_id)
            if world is not None:
                self._events.emit(WorldLeft(self._agent_id, world))

    async def _abandon(self, room_ids: Collection[UUID], reason: str) -> None:
        await self._take_out(await self._store.changes.abandon(room_ids, self._clock(), reason))

    async def _react(self, reaction: Reaction) -> bool:
        memory = await self._store.changes.react(reaction)
        if memory is None:
            return False
        self._events.emit(ReactionReceived(self._agent_id, memory, reaction.room, reaction.author))
        return True

    async def _unreact(self, room_id: UUID, message_id: str, author_id: UUID | None, sign: str) -> int:
        memories = self._store.memories
        signs = await memories.recent(room_id, MOST_SIGNS, kind=MemoryKind.REACTION)
        gone = [
            one.id
            for one in signs
            if one.external_id == message_id
            and author_id in (None, one.entity_id)
            and sign in ("", one.content.text)
        ]
        return await memories.remove(gone) if gone else 0

    async def _forget(self, entity_id: UUID) -> Forgotten:
        async with self._in_turn:
            forgotten = await self._store.changes.forget(entity_id, self._clock())
            await self._take_out(forgotten.removed)
            self._events.emit(EntityForgotten(self._agent_id, entity_id))
            return forgotten

    async def _move(self, room_id: UUID, world: World, room: Room) -> None:
        async with self._in_turn:
            waiting = await self._store.changes.move(room_id, world, room)
            await self._outbox.move(room_id, room, waiting)
            for receipt_id in self._work.call_off(room_id):
                await self._inbox.begin_again(receipt_id)
            self._events.emit(RoomMoved(self._agent_id, room_id, room))

    async def _take_out(self, removed: Removed) -> None:
        """Stop what was cancelled where this process is at it."""
        await self._settle(removed.receipts)
        await self._outbox.hold_back(removed.deliveries)

    async def _settle(self, closed: Collection[Receipt]) -> None:
        """Have nobody work on closed receipts any more; messages that were answered with them come back."""
        for receipt_id in self._work.withdraw([receipt.id for receipt in closed]):
            await self._inbox.begin_again(receipt_id)
        for receipt in closed:
            logger.info("message %s: %s: %s", receipt.memory_id, receipt.outcome, receipt.reason)
            self._inbox.settle(receipt)
