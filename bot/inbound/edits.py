"""`EditReporter`: edits, deletions, reactions and removed rooms, stored before the platform is told."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from bot.concurrency.clock import Clock, system_clock
from bot.concurrency.tasks import crash_point
from bot.domain.content import Content
from bot.domain.environment import Entity, MarkedPerson, MarkOrigin, PersonMark, Room, TakeOver, World
from bot.domain.events import (
    ChannelCleared,
    EntityErased,
    MessageDeleted,
    MessageEdited,
    ReactionReceived,
    RoomLeft,
    RoomMigrated,
    WorldLeft,
)
from bot.domain.inbound import MAX_BACKFILL_AGE, DeletionResult, ErasureResult, InboundMessage, Reaction, is_same_emoji
from bot.domain.ledger import Outcome, Receipt, Rule
from bot.domain.memory import MemoryKind
from bot.domain.proposal import Proposal
from bot.errors import AnswerRefused
from bot.event_bus import EventBus
from bot.inbound.inbox import Inbox, sanitize, sanitize_emoji, sanitize_id, sanitize_message, sanitize_reaction
from bot.outbound.outbox import Outbox
from bot.store.protocols import Store

logger = logging.getLogger(__name__)
MAX_SCANNED_REACTIONS = 1000


class TurnControl(Protocol):
    """The turns in progress; see `ActiveTurns`."""

    def is_answering(self, room_id: UUID, message_id: str) -> bool: ...
    def withdraw(self, receipt_ids: Collection[UUID]) -> list[UUID]: ...
    def stop(self, receipt_id: UUID) -> None: ...
    def running_actions(self, room_id: UUID | None, author_id: UUID | None = None) -> dict[UUID, tuple[str, ...]]: ...
    def cancel_room(self, room_id: UUID) -> list[UUID]: ...


class EditReporter:
    """Stores what a platform changes afterwards: edits, deletions, reactions, removed and migrated rooms.

    A change is stored when its method returns; repeating it changes nothing more. All methods raise
    InboxClosed while the bot is stopping and StoreUnavailable while nothing can be stored: the platform must
    not acknowledge the change then. Changes are applied one after another. `flushes` store what was collected in
    memory, before something is deleted; `show_withdrawn` tells approvers which answers do not wait any more, and
    `drop_proposals` drops those that wait in a room that a person has taken over.
    """

    def __init__(
        self,
        agent_id: UUID,
        *,
        store: Store,
        inbox: Inbox,
        outbox: Outbox,
        turns: TurnControl,
        events: EventBus,
        clock: Clock = system_clock,
        flushes: Sequence[Callable[[], Awaitable[None]]] = (),
        show_withdrawn: Callable[[Collection[Proposal]], Awaitable[None]] | None = None,
        drop_proposals: Callable[[TakeOver], Awaitable[None]] | None = None,
    ) -> None:
        self._agent_id = agent_id
        self._store, self._inbox, self._outbox = store, inbox, outbox
        self._turns, self._events, self._clock = turns, events, clock
        self._flushes, self._show_withdrawn = flushes, show_withdrawn or _show_nothing
        self._drop_proposals = drop_proposals
        self._lock, self._erasure_lock = asyncio.Lock(), asyncio.Lock()

    async def submit_edit(self, message: InboundMessage) -> Receipt:
        """Store an edit: the same message, with a higher `revision` and an event id of its own.

        Before the reply is committed, the new text is answered; later, ON_EDIT decides. An edit of an unknown
        message is handled as a new message, unless it was written long ago.
        """
        sanitized = sanitize_message(self._inbox.hide(message), self._clock())
        return await self._inbox.run_shielded(self._apply_edit(sanitized))

    async def stop_answer(self, message_id: UUID) -> Receipt:
        """Stop the turn that answers a message; return its final receipt.

        What is shown of the reply stays, marked as incomplete. Where the outcome was being stored already, or is
        known, nothing is stopped: the receipt says what it is. Raises LookupError for an unknown message,
        AnswerRefused where another process answers it, and as `Inbox.wait_outcome` does.
        """
        receipt = await self._find_receipt(message_id)
        answering = receipt
        while answering.outcome is Outcome.SUPERSEDED and answering.superseded_by not in (None, answering.memory_id):
            newer = await self._store.ledger.receipt(answering.superseded_by)  # one turn answers both
            if newer is None:
                break
            answering = newer
        if answering.outcome.is_final:
            return receipt
        if not self._outbox.ownership.owns_room(answering.room_id):
            raise AnswerRefused(
                "elsewhere", "another process of the bot answers this message; it cannot be stopped here"
            )
        self._turns.stop(answering.id)
        closed = await self._inbox.wait_outcome(answering.id)
        return closed if receipt.id == answering.id else await self._find_receipt(message_id)

    def stop_room(self, room_id: UUID, author_id: UUID | None = None) -> dict[UUID, tuple[str, ...]]:
        """Stop what this process answers in a room, of one author if given, without waiting for its end.

        Return the receipts, each with the names of the actions that were under way: they may have taken effect.
        """
        running = self._turns.running_actions(room_id, author_id)
        for receipt_id in running:
            self._turns.stop(receipt_id)
        return running

    async def take_over(self, take_over: TakeOver) -> TakeOver:
        """Store that a person answers in place of the agent; stop what this process answers there, and drop drafts.

        Return the take-over that holds: an earlier one of the same room and person, if there is one.
        """
        held = await self._store.take_overs.begin(take_over)
        crash_point("take_over.stored")
        self.stop_room(held.room_id, held.person_id)
        if self._drop_proposals is not None:
            await self._drop_proposals(held)
        return held

    async def ignore_person(self, marked: MarkedPerson) -> None:
        """Stop what this process answers to a person, and store that they are not read."""
        for receipt_id in self._turns.running_actions(None, marked.entity_id):
            self._turns.stop(receipt_id)
        await self._store.marks.save(marked)

    async def report_ignored_role(self, person: Entity, world_id: UUID, *, is_ignored: bool) -> None:
        """Store whether a role that a person has in a world keeps them unread, where that has changed."""
        marks, mark, origin = self._store.marks, PersonMark.NOT_READ, MarkOrigin.ROLE
        known = marks.find(person.id, mark=mark) if person.id in marks.not_read else []
        was_ignored = any((item.origin, item.world_id) == (origin, world_id) for item in known)
        if is_ignored and not was_ignored:
            now = self._clock()
            await self.ignore_person(
                MarkedPerson(person.id, mark, person.platform, person.external_id, origin, now, world_id)
            )
        elif was_ignored and not is_ignored:
            await marks.remove(person.id, mark, origin, world_id)

    async def answer_again(self, message_id: UUID, event_id: str, content: Content | None = None) -> Receipt:
        """Answer a message that has its outcome once more, with another `content` if given; return the new receipt.

        The new reply takes the place of the earlier one, whose text stays in its metadata. A repeated `event_id`
        changes nothing and returns its receipt. With `content` an answer under way is stopped first. Raises
        LookupError for an unknown message, AnswerRefused where the message is being answered or was answered
        together with a newer one, and as `submit_edit` does.
        """
        if content is not None:
            await self.stop_answer(message_id)
        return await self._inbox.run_shielded(self._apply_regeneration(message_id, sanitize_id(event_id), content))

    async def delete_messages(self, room_id: UUID, message_ids: Collection[str]) -> int:
        """Delete messages that a platform deleted, and the facts learnt from them alone; count them.

        Their open events are closed. A delivery that is being sent just now arrives.
        """
        return await self._inbox.run_shielded(
            self._apply_deletion(room_id, [sanitize_id(message_id) for message_id in message_ids])
        )

    async def clear_room(self, room_id: UUID) -> int:
        """Delete all messages of a room and cancel what is still to be sent there; count the messages."""
        return await self._inbox.run_shielded(self._apply_clear(room_id))

    async def leave_room(self, room_id: UUID) -> None:
        """Record that a room is gone, or the agent is no longer in it; its messages stay."""
        await self._inbox.run_shielded(self._apply_leave(room_id))

    async def leave_world(self, world_id: UUID) -> None:
        """Record that a world is gone with all its rooms, or the agent is no longer in it."""
        await self._inbox.run_shielded(self._apply_world_leave(world_id))

    async def add_reaction(self, reaction: Reaction) -> bool:
        """Store a reaction to a message, known or not.

        Return False where it was stored before, or its author is not read.
        """
        if reaction.author.id in self._store.marks.not_read:
            return False
        return await self._inbox.run_shielded(self._apply_reaction(sanitize_reaction(reaction, self._clock())))

    async def remove_reactions(
        self, room_id: UUID, message_id: str, *, author_id: UUID | None = None, emoji: str = ""
    ) -> int:
        """Delete reactions from a message, and count them.

        Those of every author where none is named, and every emoji where none is; among the room's last
        thousand.
        """
        removal = self._apply_reaction_removal(room_id, sanitize_id(message_id), author_id, sanitize_emoji(emoji))
        return await self._inbox.run_shielded(removal)

    async def erase_entity(self, entity_id: UUID) -> ErasureResult:
        """Delete a person's data, stop the work for them, and return what was deleted.

        Other changes do not wait for it; of several people one is erased after another.
        """
        return await self._inbox.run_shielded(self._apply_erasure(entity_id))

    async def migrate_room(self, room_id: UUID, world: World, room: Room) -> None:
        """Continue a room under another id, with its messages and what is still to be sent there."""
        migration = self._apply_migration(room_id, sanitize(world), sanitize(room))
        await self._inbox.run_shielded(migration)

    async def _apply_edit(self, inbound: InboundMessage) -> Receipt:
        async with self._lock:
            [inbound] = await self._inbox.remove_forgotten_words([inbound])
            key, now = inbound.key, self._clock()
            is_answering = self._turns.is_answering(key.room_id, key.message_id)
            result = await self._store.edits.apply_edit(inbound, now, is_answering=is_answering)
            receipt = result.event.receipt
            is_unknown = result.previous is None and result.event.is_new and not receipt.outcome.is_final
            if is_unknown and now - inbound.message.created_at > MAX_BACKFILL_AGE:
                reason = "it was written long before it was edited"
                receipt = replace(receipt, outcome=Outcome.EXPIRED, reason=reason, rule=Rule.EDITED, closed_at=now)
                await self._store.ledger.save_receipts([receipt])
                return receipt
            await self._resolve_closed(result.superseded)
            if result.proposals:
                await self._show_withdrawn(result.proposals)
            if result.previous is not None and result.event.inbound is not None:
                message = result.event.inbound.message
                self._events.emit(MessageEdited(self._agent_id, message, result.previous))
            await self._inbox.processor.enqueue(result.event)
            return receipt

    async def _apply_regeneration(self, message_id: UUID, event_id: str, content: Content | None) -> Receipt:
        async with self._lock:
            ledger, now = self._store.ledger, self._clock()
            latest = await self._find_receipt(message_id)
            same_message = await ledger.receipts_by_message_id(latest.key.message_id)
            revisions = [receipt for receipt in same_message if receipt.memory_id == message_id]
            repeated = next((receipt for receipt in revisions if receipt.key.event_id == event_id), None)
            if repeated is not None:
                return repeated
            newest = max(revisions, key=lambda receipt: receipt.key.revision)
            self._check_regeneration(newest, revisions, is_edit=content is not None)
            inbound = await ledger.inbound_message(newest)
            if inbound is None:
                raise LookupError(f"message {message_id} was removed")
            key = replace(newest.key, event_id=event_id, revision=newest.key.revision + 1)
            message = inbound.message if content is None else replace(inbound.message, content=content)
            edit = sanitize_message(replace(inbound, key=key, message=message, is_regeneration=True), now)
            result = await self._store.edits.apply_edit(edit, now)
            await self._resolve_closed(result.superseded)
            if result.previous is not None and result.event.inbound is not None and content is not None:
                self._events.emit(MessageEdited(self._agent_id, result.event.inbound.message, result.previous))
            await self._inbox.processor.enqueue(result.event)
            return result.event.receipt

    def _check_regeneration(self, newest: Receipt, revisions: Collection[Receipt], *, is_edit: bool) -> None:
        """Raise AnswerRefused where a message cannot be answered once more now."""
        if any(not receipt.outcome.is_final for receipt in revisions):
            raise AnswerRefused("in_progress", "this message is being answered; stop that first, or wait for it")
        if newest.rule == Rule.LATEST_RESPONSE and not is_edit:
            newer_id = newest.superseded_by
            raise AnswerRefused("superseded", f"it was answered together with message {newer_id}; repeat that answer")

    async def _find_receipt(self, message_id: UUID) -> Receipt:
        receipt = await self._store.ledger.receipt(message_id)
        if receipt is None:
            raise LookupError(f"there is no message {message_id} to the agent")
        return receipt

    async def _apply_deletion(self, room_id: UUID, message_ids: Collection[str]) -> int:
        async with self._lock:
            await self._flush()
            result = await self._store.edits.delete_messages(room_id, message_ids, self._clock())
            await self._stop_cancelled(result)
            for message_id in result.message_ids:
                self._events.emit(MessageDeleted(self._agent_id, message_id, room_id))
            return result.message_count

    async def _apply_clear(self, room_id: UUID) -> int:
        async with self._lock:
            await self._flush()
            result = await self._store.edits.clear_room(room_id, self._clock())
            await self._stop_cancelled(result)
            room = await self._store.worlds.room(room_id)
            name = room.external_id if room is not None else ""
            self._events.emit(ChannelCleared(self._agent_id, room_id, name, result.message_count))
            return result.message_count

    async def _apply_leave(self, room_id: UUID) -> None:
        async with self._lock:
            await self._cancel_rooms([room_id], "the agent is no longer in this room")
            room = await self._store.worlds.room(room_id)
            if room is not None:
                self._events.emit(RoomLeft(self._agent_id, room))

    async def _apply_world_leave(self, world_id: UUID) -> None:
        async with self._lock:
            rooms = await self._store.worlds.rooms(world_id)
            await self._cancel_rooms([room.id for room in rooms], "the agent is no longer in this world")
            world = await self._store.worlds.world(world_id)
            if world is not None:
                self._events.emit(WorldLeft(self._agent_id, world))

    async def _cancel_rooms(self, room_ids: Collection[UUID], reason: str) -> None:
        await self._stop_cancelled(await self._store.edits.cancel_open_work(room_ids, self._clock(), reason))

    async def _apply_reaction(self, reaction: Reaction) -> bool:
        memory = await self._store.edits.save_reaction(reaction)
        if memory is None:
            return False
        self._events.emit(ReactionReceived(self._agent_id, memory, reaction.room, reaction.author))
        return True

    async def _apply_reaction_removal(self, room_id: UUID, message_id: str, author_id: UUID | None, emoji: str) -> int:
        memories = self._store.memories
        reactions = await memories.recent(room_id, MAX_SCANNED_REACTIONS, kind=MemoryKind.REACTION)
        removed_ids = [
            reaction.id
            for reaction in reactions
            if reaction.external_id == message_id
            and author_id in (None, reaction.entity_id)
            and (not emoji or is_same_emoji(emoji, reaction.content.text))
        ]
        return await memories.remove(removed_ids) if removed_ids else 0

    async def _apply_erasure(self, entity_id: UUID) -> ErasureResult:
        async with self._erasure_lock:
            await self._flush()
            result = await self._store.edits.erase_entity(entity_id, self._clock(), self._stop_cancelled)
            await self._store.take_overs.refresh()
            self._events.emit(EntityErased(self._agent_id, entity_id))
            return result

    async def _apply_migration(self, room_id: UUID, world: World, room: Room) -> None:
        async with self._lock:
            pending = await self._store.edits.migrate_room(room_id, world, room)
            await self._store.take_overs.refresh()
            await self._outbox.migrate_room(room_id, room, pending)
            for receipt_id in self._turns.cancel_room(room_id):
                await self._inbox.processor.restart(receipt_id)
            self._events.emit(RoomMigrated(self._agent_id, room_id, room))

    async def _flush(self) -> None:
        """Store what is still in memory of turns, costs and activity: it would be stored after the deletion."""
        for flush in self._flushes:
            await flush()

    async def _stop_cancelled(self, deletion: DeletionResult) -> None:
        """Stop the work on what was cancelled, where this process does it."""
        await self._resolve_closed(deletion.receipts)
        await self._outbox.stop_cancelled(deletion.deliveries)
        if deletion.proposals:
            await self._show_withdrawn(deletion.proposals)

    async def _resolve_closed(self, closed: Collection[Receipt]) -> None:
        """Resolve closed receipts and restart the messages that were to be answered with them."""
        for receipt_id in self._turns.withdraw([receipt.id for receipt in closed]):
            await self._inbox.processor.restart(receipt_id)
        for receipt in closed:
            logger.info("message %s: %s: %s", receipt.memory_id, receipt.outcome, receipt.reason)
            self._inbox.processor.resolve(receipt)


async def _show_nothing(proposals: Collection[Proposal]) -> None:
    """Do nothing: proposals are shown to no person."""
