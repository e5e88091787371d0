"""`Outbox`: commits replies, receipts and deliveries in one transaction, and queues them for sending."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from bot.adapter.adapter import Adapter, Feed
from bot.adapter.connection_status import ConnectionState
from bot.concurrency.clock import Clock, ShutdownDeadline, Sleep, system_clock
from bot.concurrency.crash_points import crash_point
from bot.concurrency.tasks import TaskSet
from bot.domain.content import MediaKind
from bot.domain.environment import Room
from bot.domain.events import (
    ControlMessage,
    DeliveryFinished,
    MarkupRemoved,
    MessageClosed,
    MessageSent,
    ModelRetried,
    VoiceMessageSent,
)
from bot.domain.inbound import RESPONSE_SOURCE
from bot.domain.ledger import Delivery, DeliveryState, Receipt, Step
from bot.domain.memory import Memory
from bot.errors import StoreUnavailable
from bot.event_bus import EventBus
from bot.outbound.content_filter import LinkPolicy, OutgoingFilter, remove_markup
from bot.outbound.delivery_attempt import persist_state
from bot.outbound.draft import Draft
from bot.outbound.drafts import Drafts, is_draft
from bot.outbound.held_parts import HeldParts
from bot.outbound.message_parts import OutgoingReply, is_removal, split_reply, without_references
from bot.outbound.send_queue import CANCEL_GRACE_SECONDS, SendQueue
from bot.outbound.typing_indicator import TypingIndicator
from bot.store.ledger import Ledger, TurnCommit
from bot.store.work_sharing import WorkSharing
from bot.text import redact, shorten

logger = logging.getLogger(__name__)
MAX_WAITING_DELIVERIES = 5  # for a platform on which the account is off; no reply beyond them is generated
MAX_ACTION_RESULT_LENGTH = 1_000  # characters
MIGRATED_CAUSE = "it stands in the room that this was before, where nothing can be changed any more"


class Outbox:
    """Commits an agent's replies with the receipts they close, then sends their deliveries room by room.

    `secrets` are values that must never leave, `link_policy` says what links may carry; where it
    `is_streaming`, replies are shown while they are written. A reply for a platform that is not connected
    waits; so does one in a room that another process owns, by `sharing`.
    """

    def __init__(
        self,
        ledger: Ledger,
        events: EventBus,
        agent_id: UUID,
        *,
        secrets: Collection[str] = (),
        link_policy: LinkPolicy | None = None,
        is_streaming: bool = True,
        sharing: WorkSharing | None = None,
        clock: Clock = system_clock,
        sleep: Sleep = asyncio.sleep,
        shutdown_deadline: ShutdownDeadline | None = None,
    ) -> None:
        self._ledger = ledger
        self._events = events
        events.subscribe(ModelRetried, self._on_model_retried)
        events.subscribe(ControlMessage, self._on_control_message)
        self._agent_id = agent_id
        self._clock = clock
        self._secrets = frozenset(secrets)
        self._filter = OutgoingFilter(self._secrets, link_policy, clock=clock)
        self.filter_text = self._filter.filter_partial
        self._typing = TypingIndicator()
        self._migrated: dict[UUID, Room] = {}  # turns in progress may still name the room as it was
        self._commits = TaskSet("commit", logs_failures=False)
        self._removing_drafts: set[UUID] = set()  # turns whose draft is just being removed
        self.is_streaming = is_streaming
        self._drafts = Drafts(
            ledger,
            filter_text=self._filter.filter_partial,
            can_send=lambda delivery: not self._queue.is_blocked(delivery.room_id),
            clock=clock,
            sleep=sleep,
        )
        self.shown_text = self._drafts.shown_text
        self._queue = SendQueue(
            ledger,
            self._drafts,
            on_sent=self._on_sent,
            on_held=lambda delivery: self.held_parts.add(delivery),
            on_finished=lambda delivery: events.emit(DeliveryFinished(agent_id, delivery)),
            sharing=sharing,
            clock=clock,
            sleep=sleep,
            shutdown_deadline=shutdown_deadline or ShutdownDeadline(),
        )
        self.ownership, self.wait_of = self._queue.ownership, self._queue.wait_of
        self.held_parts = HeldParts(ledger, events, agent_id, self.ownership, clock)

    def connect(self, adapter: Adapter) -> None:
        """Make a platform reachable; what waits for it is sent now."""
        self._queue.connect(adapter)

    def disconnect(self, adapter: Adapter) -> None:
        """Stop sending to a platform, also what is being sent just now, until it is connected again."""
        self._queue.disconnect(adapter)

    def adapter(self, platform: str) -> Adapter | None:
        """Return the adapter of a connected platform; None where it is not connected."""
        return self._queue.adapters.get(platform)

    def is_full(self, platform: str) -> bool:
        """Return whether the agent's account on a platform is off and as many deliveries wait for it as may."""
        adapter = self._queue.adapters.get(platform)
        connections = adapter.connections if adapter is not None else ()
        is_off = any(
            connection.snapshot.state is ConnectionState.OFF
            for connection in connections
            if connection.agent_id in (None, self._agent_id)
        )
        return is_off and self._queue.count_waiting(platform) >= MAX_WAITING_DELIVERIES

    def feeds(self) -> list[Feed]:
        """List where the agent posts on the connected platforms."""
        feeds = (adapter.feed(self._agent_id) for adapter in self._queue.adapters.values())
        return [feed for feed in feeds if feed is not None]

    async def commit(
        self,
        replies: Sequence[OutgoingReply] = (),
        receipts: Sequence[Receipt] = (),
        action_results: Sequence[Memory] = (),
    ) -> list[Memory]:
        """Store replies, their deliveries, receipts and results of actions in one transaction, then send.

        Return the replies as they were stored; one of which the content filter leaves nothing is dropped.
        """
        stored: list[Memory] = []
        deliveries: list[Delivery] = []
        for reply in replies:
            content = self._filter.filter(reply.memory.content, reply.memory.room_id)
            if content is None:
                logger.info("a reply of turn %s was empty; nothing is sent", reply.memory.turn_id)
                self._report_markup(reply.memory, receipts)
                continue
            self._report_markup(reply.memory, receipts)
            reply = self._with_current_room(reply)
            if content is not reply.memory.content:
                reply = replace(reply, memory=replace(reply.memory, content=content))
            stored.append(reply.memory)
            deliveries += await self._split(reply)
        if self._drafts:
            closed_turns = {
                receipt.turn_id for receipt in receipts if receipt.turn_id is not None and receipt.outcome.is_final
            }
            deliveries = await self._drafts.replace_drafts(deliveries, closed_turns)
        results = map(self._redact_result, action_results)
        await self._commit(TurnCommit((*stored, *results), tuple(deliveries), tuple(receipts)))
        return stored

    async def commit_response(
        self, receipt: Receipt, deliveries: Sequence[Delivery] = (), response: Step | None = None
    ) -> None:
        """Store how a command ended in one transaction, then send the deliveries of its response."""
        await self._commit(
            TurnCommit(deliveries=tuple(deliveries)),
            lambda turn_commit: self._ledger.close_command(receipt, turn_commit.deliveries, response),
        )

    def _report_markup(self, memory: Memory, receipts: Sequence[Receipt]) -> None:
        """Report markup of a model in a reply: the reader of answers should have removed it."""
        _, found = remove_markup(memory.content.text)
        if not found:
            return
        ids = ", ".join(str(receipt.id) for receipt in receipts) or f"of turn {memory.turn_id}"
        logger.warning("markup of the model was removed from a reply before it was sent: %s (receipt %s)", found, ids)
        self._events.emit(MarkupRemoved(self._agent_id, memory.room_id, tuple(found)))

    def open_draft(self, room: Room, turn_id: UUID, build_reply: Callable[[], OutgoingReply]) -> Draft | None:
        """Return what shows a reply while it is written; None where the platform takes whole replies only.

        The turn's first reply takes its place. Where the turn closes without one, the draft is removed. `build_reply`
        is called when something is to be shown.
        """
        adapter = self._queue.adapters.get(room.platform)
        interval = adapter.stream_interval(room) if adapter is not None and self.is_streaming else None
        if adapter is None or interval is None:
            return None
        return self._drafts.open_draft(turn_id, lambda: self._with_current_room(build_reply()), adapter, interval)

    def on_closed(self, receipt: Receipt) -> None:
        """Report the outcome of a message, and remove the draft of a turn that was closed without a reply."""
        self._events.emit(MessageClosed(self._agent_id, receipt))
        if receipt.turn_id is not None and self.has_draft(receipt.turn_id):
            self.remove_draft(receipt.turn_id)

    def has_draft(self, turn_id: UUID) -> bool:
        """Return whether something of a turn's reply is shown already, or may be."""
        return turn_id in self._drafts

    def remove_draft(self, turn_id: UUID) -> Awaitable[None]:
        """Remove the draft of a turn that will not reply, also where the caller does not wait."""
        return asyncio.shield(self._commits.start(self._remove_draft(turn_id)))

    async def resume(self) -> int:
        """Queue the deliveries that an earlier process left open or held, and return how many there are."""
        await self.held_parts.reopen()
        stored = await self._ledger.deliveries(is_open=True)
        owned = [delivery for delivery in stored if self.ownership.sends_room(delivery.room_id)]
        pending, abandoned_turns = await self._drafts.resume(owned)
        for turn_id in abandoned_turns:
            await self.remove_draft(turn_id)
        for turn_id in {delivery.turn_id for delivery in pending if delivery.part}:
            self._queue.note_incomplete(await self._ledger.deliveries(is_open=False, turn_id=turn_id))
        self._queue.enqueue_resumed(pending)
        return len(pending)

    async def send_pending(self, turn_id: UUID) -> None:
        """Send what an earlier attempt of a turn has committed; what is queued already stays as it is."""
        pending = await self._ledger.deliveries(is_open=True, turn_id=turn_id)
        self._queue.enqueue([delivery for delivery in pending if not is_draft(delivery)])

    async def requeue(self, delivery: Delivery) -> None:
        """Send a delivery that was held or had failed, and that the ledger now has as pending."""
        self.held_parts.remove(delivery.id)
        closed = await self._ledger.deliveries(is_open=False, turn_id=delivery.turn_id)
        self._queue.note_incomplete([part for part in closed if part.memory_id == delivery.memory_id])
        self._queue.forget_finished([delivery])
        self._queue.enqueue([delivery])

    async def cancel_delivery(self, delivery: Delivery) -> bool:
        """Take a delivery out of its room's queue; False where it is being sent just now."""
        return await self._queue.cancel(delivery)

    def is_busy(self, room_id: UUID) -> bool:
        """Return whether deliveries of a room wait here, are being sent, or are shown as a draft."""
        return self._queue.is_busy(room_id) or self._drafts.is_showing(room_id)

    async def release(self) -> None:
        """Stop sending: another process does it now."""
        await asyncio.gather(self._queue.release(), self._drafts.stop())  # a draft may take a second to stop

    async def stop_cancelled(self, cancelled: Sequence[Delivery]) -> None:
        """Stop sending what the ledger has as cancelled.

        A delivery that is being sent just now finishes its attempt, and ends as sent or cancelled.
        """
        for delivery in cancelled:
            self.held_parts.remove(delivery.id)
            is_queued = self._queue.is_queued(delivery)
            if not await self._queue.cancel(delivery):
                self._queue.withdraw(delivery)
                continue
            if is_queued:  # an attempt may have been stored over the cancellation
                await persist_state(self._ledger, delivery)
            if (removal := self._drafts.find_removal(delivery)) is not None:
                await self._commit(TurnCommit(deliveries=(removal,)))

    async def migrate_room(self, room_id: UUID, room: Room, pending: Sequence[Delivery]) -> None:
        """Send what waits in a room to the one that it has become, also what is still to be committed."""
        self._migrated[room_id] = room
        await self._drafts.migrate(room_id)
        pending = [delivery for delivery in pending if not is_draft(delivery)]
        moved = [item for item in pending if await self._queue.cancel(replace(item, room_id=room_id))]
        self._queue.forget_finished(moved)
        for delivery in filter(is_removal, pending):
            cancelled = replace(delivery, state=DeliveryState.CANCELLED, cause=MIGRATED_CAUSE)
            await persist_state(self._ledger, cancelled)
        self._queue.enqueue([without_references(item) for item in pending if not is_removal(item)])

    async def drain(self, seconds: float) -> int:
        """Wait for commits and senders, then stop them; return how many rooms still have deliveries.

        What is not sent stays in the ledger, for the room's next reply or the next start.
        """
        clock = asyncio.get_running_loop().time
        end_time = clock() + seconds
        await self._commits.wait(min(seconds, CANCEL_GRACE_SECONDS))
        return await self._queue.drain(end_time - clock())

    async def close(self, seconds: float) -> int:
        """Drain, and send nothing more: what is committed from now on waits for the next start."""
        await self._drafts.stop()
        open_rooms = await self.drain(seconds)
        self._queue.close()
        return open_rooms

    def show_typing(self, room: Room) -> AbstractAsyncContextManager[None]:
        """Show that the agent is at work in a room, as long as the block lasts."""
        return self._typing.show(self._queue.adapters.get(room.platform), room)

    async def _on_model_retried(self, event: ModelRetried) -> None:
        if event.room_id is not None:
            await self._typing.show_model_busy(event.room_id)

    async def _on_control_message(self, event: ControlMessage) -> None:
        for adapter in list(self._queue.adapters.values()):
            await adapter.show_control(event.room_id, event.action, event.target)

    async def _remove_draft(self, turn_id: UUID) -> None:
        if turn_id not in self._drafts or turn_id in self._removing_drafts:
            return
        self._removing_drafts.add(turn_id)
        try:
            removals = await self._drafts.replace_drafts([], [turn_id])
            await self._commit(TurnCommit(deliveries=tuple(removals)))
        except StoreUnavailable:
            logger.debug("the draft of turn %s stays until the next start", turn_id)
        finally:
            self._removing_drafts.discard(turn_id)

    def _with_current_room(self, reply: OutgoingReply) -> OutgoingReply:
        """Return the reply for the room that its own has become; there it answers no message by its id."""
        room = self._migrated.get(reply.room.id)
        if room is None:
            return reply
        memory = replace(reply.memory, room_id=room.id, world_id=room.world_id)
        return replace(reply, memory=memory, room=room, reply_to="")

    def _redact_result(self, result: Memory) -> Memory:
        """Return the result of an action shortened, without secrets, in the room that its own has become."""
        room = self._migrated.get(result.room_id)
        if room is not None:
            result = replace(result, room_id=room.id, world_id=room.world_id)
        text = shorten(redact(result.content.text, self._secrets), MAX_ACTION_RESULT_LENGTH)
        return replace(result, content=replace(result.content, text=text))

    async def _split(self, reply: OutgoingReply) -> list[Delivery]:
        previous: list[Delivery] = []
        if reply.replaces is not None:
            stored = await self._ledger.deliveries(turn_id=reply.replaces.turn_id)
            same_target = (item for item in stored if item.target == reply.room.external_id)
            previous = [item for item in same_target if item.memory_id == reply.replaces.id]
        return split_reply(reply, self._queue.adapters.get(reply.room.platform), self._clock(), previous)

    async def _commit(
        self, turn_commit: TurnCommit, store: Callable[[TurnCommit], Coroutine[Any, Any, list[Delivery]]] | None = None
    ) -> None:
        """Store a commit and queue its deliveries, also where the caller is cancelled meanwhile."""
        turn_commit = replace(turn_commit, deliveries=self._queue.begin_first_attempts(turn_commit.deliveries))
        room_ids = {delivery.room_id for delivery in turn_commit.deliveries}
        self._queue.block(room_ids)
        task = self._commits.start((store or self._ledger.commit)(turn_commit))
        try:
            await asyncio.shield(task)
        finally:
            if task.done():
                self._on_committed(turn_commit.deliveries, room_ids, task)
            else:
                task.add_done_callback(partial(self._on_committed, turn_commit.deliveries, room_ids))

    def _on_committed(
        self, committed: Sequence[Delivery], room_ids: Collection[UUID], task: asyncio.Task[list[Delivery]]
    ) -> None:
        if not task.cancelled() and task.exception() is None:
            crash_point("outbox.committed")
            deliveries = task.result()
            if self._drafts:
                deliveries = [*self._drafts.note_committed(deliveries), *deliveries]
            self._queue.enqueue_committed(committed, deliveries)
        self._queue.unblock(room_ids)

    def _on_sent(self, delivery: Delivery) -> None:
        if delivery.content.source == RESPONSE_SOURCE:  # it is no message of the conversation
            return
        has_recording = any(attachment.kind is MediaKind.AUDIO for attachment in delivery.content.attachments)
        kind = VoiceMessageSent if has_recording else MessageSent
        event = kind(
            self._agent_id, delivery.memory_id, delivery.room_id, delivery.turn_id, external_id=delivery.external_id
        )
        self._events.emit(event)
