"""The one door out: a reply is kept before it leaves, and leaves in its room's order."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from bot.adapter.adapter import Adapter, Feed
from bot.concurrency.bounded import BoundedSet
from bot.concurrency.clock import Clock, ShutdownDeadline, system_clock
from bot.concurrency.crash_points import crash_point
from bot.concurrency.tasks import TaskSet
from bot.domain.environment import Room
from bot.domain.events import MessageSent
from bot.domain.ledger import Delivery, DeliveryState, Receipt
from bot.domain.memory import Memory
from bot.errors import StoreUnavailable
from bot.event_bus import EventBus
from bot.outbound.content_filter import LinkPolicy, filter_outgoing
from bot.outbound.delivery_attempt import OPEN_STATES, persist_state
from bot.outbound.draft import Draft, Sleep
from bot.outbound.drafts import Drafts, is_draft
from bot.outbound.message_parts import OutgoingReply, is_removal, split_reply, without_references
from bot.outbound.room_sender import RoomQueue, RoomSender
from bot.outbound.typing_indicator import TypingIndicator
from bot.store.ledger import Ledger, TurnCommit

logger = logging.getLogger(__name__)
CANCEL_GRACE_SECONDS, POLL_SECONDS = 2.0, 0.2
MAX_FINISHED_IDS = 1000
MIGRATED_CAUSE = "it stands in the room that this was before, where nothing can be changed any more"


class Outbox:
    """Commits replies with whatever closes together with them, then sends their parts room by room.

    `secrets` are values that must never leave, `hyperlinks` says what links may carry; where it `streams`,
    replies are seen while they are written. A reply for a platform that is not connected waits; so does one
    in a room that another process holds.
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
        owns_room: Callable[[UUID], bool] = lambda room_id: True,
        clock: Clock = system_clock,
        sleep: Sleep = asyncio.sleep,
        shutdown_deadline: ShutdownDeadline | None = None,
    ) -> None:
        self._ledger = ledger
        self._events = events
        self._agent_id = agent_id
        self._secrets, self._link_policy = frozenset(secrets), link_policy
        self._owns_room = owns_room
        self._clock = clock
        self._shutdown_deadline = shutdown_deadline or ShutdownDeadline()
        self._adapters: dict[str, Adapter] = {}
        self._queues: defaultdict[UUID, RoomQueue] = defaultdict(RoomQueue)
        self._typing = TypingIndicator()
        self._finished_ids = BoundedSet[str](MAX_FINISHED_IDS)  # a commit or resume may still name them
        self._incomplete: set[UUID] = set()  # messages of which a part did not arrive
        self._migrated: dict[UUID, Room] = {}  # turns under way may still name the room that it was
        self._commits = TaskSet("commit", logs_failures=False)
        self._removing_drafts: set[UUID] = set()  # turns of which the draft is just being taken away
        self._is_streaming = is_streaming
        self._sender = RoomSender(ledger, clock, sleep)
        self._drafts = Drafts(
            ledger,
            secrets=self._secrets,
            link_policy=link_policy,
            can_send=lambda part: part.room_id not in self._queues,
            clock=clock,
            sleep=sleep,
        )
        self._is_open = True

    def connect(self, adapter: Adapter) -> None:
        """Make a platform reachable; what waits for it leaves now."""
        self._adapters[adapter.platform] = adapter
        for room_id in list(self._queues):
            self._start_sender(room_id)

    def disconnect(self, adapter: Adapter) -> None:
        """Leave what is for a platform that is gone, also what is just on its way, until it is back."""
        if self._adapters.get(adapter.platform) is not adapter:
            return
        del self._adapters[adapter.platform]
        for queue in self._queues.values():
            if queue.task and queue.current and queue.current.platform == adapter.platform:
                queue.task.cancel()

    def is_connected(self, platform: str) -> bool:
        """Tell whether a platform is connected."""
        return platform in self._adapters

    def adapter(self, platform: str) -> Adapter | None:
        """Find what connects a platform, to ask what can be done there; None while nothing does."""
        return self._adapters.get(platform)

    def feeds(self) -> list[Feed]:
        """List where the agent posts on the platforms that are connected."""
        return [
            feed for adapter in self._adapters.values() if (feed := adapter.feed(self._agent_id)) is not None
        ]

    async def commit(
        self, replies: Sequence[OutgoingReply] = (), receipts: Sequence[Receipt] = ()
    ) -> list[Memory]:
        """Keep replies, their parts and the receipts they close, all at once; then send.

        Gives back the replies as they were kept; one of which nothing may leave is dropped.
        """
        stored: list[Memory] = []
        deliveries: list[Delivery] = []
        for reply in replies:
            content = filter_outgoing(reply.memory.content, self._secrets, self._link_policy)
            if content is None:
                logger.info("a reply of turn %s was empty; nothing is sent", reply.memory.turn_id)
                continue
            reply = self._with_current_room(reply)
            if content is not reply.memory.content:
                reply = replace(reply, memory=replace(reply.memory, content=content))
            stored.append(reply.memory)
            deliveries += await self._split(reply)
        if self._drafts:
            closed_turns = {
                receipt.turn_id
                for receipt in receipts
                if receipt.turn_id is not None and receipt.outcome.is_final
            }
            deliveries = await self._drafts.replace_drafts(deliveries, closed_turns)
        await self._commit(TurnCommit(tuple(stored), tuple(deliveries), tuple(receipts)))
        return stored

    def open_draft(self, room: Room, reply: Callable[[], OutgoingReply]) -> Draft | None:
        """Give what shows a reply while it is written; None where the room's platform takes whole ones only.

        What the turn then says first takes its place. Where it closes without a word, that is taken away.
        """
        adapter = self._adapters.get(room.platform)
        interval = adapter.stream_interval(room) if adapter is not None and self._is_streaming else None
        if adapter is None or interval is None:
            return None
        return self._drafts.open_draft(self._with_current_room(reply()), adapter, interval)

    def has_draft(self, turn_id: UUID) -> bool:
        """Tell whether something of a turn's reply is seen already, or may be."""
        return turn_id in self._drafts

    def remove_draft(self, turn_id: UUID) -> Awaitable[None]:
        """Take away what is seen of a reply that will not be said; also where nobody waits for it."""
        return asyncio.shield(self._commits.start(self._remove_draft(turn_id)))

    async def _remove_draft(self, turn_id: UUID) -> None:
        if turn_id not in self._drafts or turn_id in self._removing_drafts:
            return
        self._removing_drafts.add(turn_id)
        try:
            parts = await self._drafts.replace_drafts([], [turn_id])
            await self._commit(TurnCommit(deliveries=tuple(parts)))
        except StoreUnavailable:
            logger.debug("what is seen of turn %s stands until the next start", turn_id)
        finally:
            self._removing_drafts.discard(turn_id)

    async def resume(self) -> int:
        """Take up what an earlier process left unsent; gives back how many parts that is."""
        open_deliveries = await self._ledger.deliveries(is_open=True)
        pending, abandoned_turns = await self._drafts.resume(
            [part for part in open_deliveries if self._owns_room(part.room_id)]
        )
        for turn_id in abandoned_turns:
            await self.remove_draft(turn_id)
        for turn_id in {delivery.turn_id for delivery in pending if delivery.part}:
            for part in await self._ledger.deliveries(is_open=False, turn_id=turn_id):
                if part.state is not DeliveryState.SENT:
                    self._incomplete.add(part.memory_id)
        for part in pending:
            self._queues[part.room_id].not_before = self._clock()
        self._enqueue(pending)
        return len(pending)

    async def send_pending(self, turn_id: UUID) -> None:
        """Send what a turn has committed without anybody knowing; what is under way stays as it is."""
        open_parts = await self._ledger.deliveries(is_open=True, turn_id=turn_id)
        self._enqueue([part for part in open_parts if not is_draft(part)])

    async def requeue(self, delivery: Delivery) -> None:
        """Send a part that had been held or given up, and that the ledger now has as pending."""
        finished = await self._ledger.deliveries(is_open=False, turn_id=delivery.turn_id)
        if any(
            part.memory_id == delivery.memory_id and part.state is not DeliveryState.SENT for part in finished
        ):
            self._incomplete.add(delivery.memory_id)
        self._finished_ids.discard(delivery.id)
        self._enqueue([delivery])

    async def cancel_delivery(self, delivery: Delivery) -> bool:
        """Take a part out of its room's lane; False where it is on its way right now."""
        queue = self._queues.get(delivery.room_id)
        if queue is None:
            return True
        if queue.current is not None and queue.current.id == delivery.id and queue.task is not None:
            if queue.current.state is not DeliveryState.PENDING:
                return False
            queue.task.cancel()  # it pauses between two attempts
            await asyncio.wait({queue.task})
        self._finished_ids.add(delivery.id)
        if queue.remove(delivery.id):
            self._incomplete.add(delivery.memory_id)
        self._start_sender(delivery.room_id)
        return True

    def is_busy(self, room_id: UUID) -> bool:
        """Tell whether parts of a room wait here, or are on their way."""
        return room_id in self._queues or self._drafts.is_showing(room_id)

    async def release(self) -> None:
        """Stop sending: another process does it."""
        await self._drafts.stop()
        for queue in self._queues.values():
            queue.pending.clear()
        await self._stop_sending(CANCEL_GRACE_SECONDS)
        self._queues.clear()
        self._finished_ids = BoundedSet[str](MAX_FINISHED_IDS)

    async def stop_cancelled(self, cancelled: Sequence[Delivery]) -> None:
        """Send these no more, which the ledger has as cancelled; one on its way right now is let finish."""
        for part in cancelled:
            queue = self._queues.get(part.room_id)
            is_current = queue is not None and queue.current is not None and queue.current.id == part.id
            if not await self.cancel_delivery(part):
                continue
            if is_current:
                await persist_state(self._ledger, part)  # over the attempt that was just to be written down
            if (removal := self._drafts.find_removal(part)) is not None:
                await self._commit(TurnCommit(deliveries=(removal,)))

    async def migrate_room(self, room_id: UUID, room: Room, pending: Sequence[Delivery]) -> None:
        """Have what waits in a room leave to another one, and what is still said there too."""
        self._migrated[room_id] = room
        await self._drafts.migrate(room_id)
        pending = [part for part in pending if not is_draft(part)]
        for part in pending:
            if await self.cancel_delivery(replace(part, room_id=room_id)):
                self._finished_ids.discard(part.id)
        for part in filter(is_removal, pending):
            await persist_state(
                self._ledger, replace(part, state=DeliveryState.CANCELLED, cause=MIGRATED_CAUSE)
            )
        self._enqueue([without_references(part) for part in pending if not is_removal(part)])

    async def drain(self, seconds: float) -> int:
        """Wait for parts on their way, then stop those; gives back how many rooms still have some.

        What is not sent stays in the ledger; it is taken up with the room's next reply, or at the next
        start. Nobody waits for what its platform will not have before the time is up.
        """
        clock = asyncio.get_running_loop().time
        end_time, wall_end = clock() + seconds, self._clock() + timedelta(seconds=seconds)
        await self._commits.wait(min(seconds, CANCEL_GRACE_SECONDS))
        while (senders := self._senders(available_by=wall_end)) and (remaining := end_time - clock()) > 0:
            await asyncio.wait(senders, timeout=min(remaining, POLL_SECONDS))
        await self._stop_sending(self._shutdown_deadline.remaining(CANCEL_GRACE_SECONDS))
        return sum(1 for queue in self._queues.values() if queue.pending or queue.current)

    async def close(self, seconds: float) -> int:
        """Drain, and send nothing more: what is committed from now on waits for the next start."""
        await self._drafts.stop()
        open_rooms = await self.drain(seconds)
        self._is_open = False
        return open_rooms

    def show_typing(self, room: Room) -> AbstractAsyncContextManager[None]:
        """Show that the agent is at work in a room, as long as the block lasts."""
        return self._typing.show(self._adapters.get(room.platform), room)

    def _with_current_room(self, reply: OutgoingReply) -> OutgoingReply:
        """Give a reply the room that its own has become, if it has; there it answers nothing by a name."""
        room = self._migrated.get(reply.room.id)
        if room is None:
            return reply
        memory = replace(reply.memory, room_id=room.id, world_id=room.world_id)
        return replace(reply, memory=memory, room=room, reply_to="")

    async def _split(self, reply: OutgoingReply) -> list[Delivery]:
        previous: list[Delivery] = []
        if reply.replaces is not None:
            deliveries = await self._ledger.deliveries(turn_id=reply.replaces.turn_id)
            same_target = (part for part in deliveries if part.target == reply.room.external_id)
            previous = [part for part in same_target if part.memory_id == reply.replaces.id]
        return split_reply(reply, self._adapters.get(reply.room.platform), self._clock(), previous)

    def _enqueue(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            is_owned = self._owns_room(delivery.room_id)
            if delivery.state in OPEN_STATES and is_owned and delivery.id not in self._finished_ids:
                self._queues[delivery.room_id].add(delivery)
        for room_id in {delivery.room_id for delivery in deliveries}:
            self._start_sender(room_id)

    async def _commit(self, turn_commit: TurnCommit) -> None:
        """Carry a commitment out and queue its parts, also where whoever asked for it is stopped."""
        room_ids = {delivery.room_id for delivery in turn_commit.deliveries}
        for room_id in room_ids:
            self._queues[room_id].open_commits += 1
        task = self._commits.start(self._ledger.commit(turn_commit))
        try:
            await asyncio.shield(task)
        finally:
            if task.done():
                self._on_committed(room_ids, task)
            else:
                task.add_done_callback(partial(self._on_committed, room_ids))

    def _on_committed(self, room_ids: Collection[UUID], task: asyncio.Task[list[Delivery]]) -> None:
        if not task.cancelled() and task.exception() is None:
            crash_point("outbox.committed")
            deliveries = task.result()
            if self._drafts:
                deliveries = [*self._drafts.note_committed(deliveries), *deliveries]
            self._enqueue(deliveries)
        for room_id in room_ids:
            self._queues[room_id].open_commits -= 1
            self._start_sender(room_id)

    async def _stop_sending(self, seconds: float) -> None:
        senders = self._senders()
        for task in senders:
            task.cancel()
        if senders:
            await asyncio.wait(senders, timeout=seconds)

    def _senders(self, available_by: datetime | None = None) -> set[asyncio.Task[None]]:
        queues = (
            queue
            for queue in self._queues.values()
            if available_by is None or queue.is_available_by(available_by)
        )
        return {queue.task for queue in queues if queue.task is not None}

    def _start_sender(self, room_id: UUID) -> None:
        queue = self._queues.get(room_id)
        if queue is None or queue.task is not None or queue.open_commits:
            return
        if not queue.pending:
            del self._queues[room_id]
        elif self._is_open and queue.pending[0].platform in self._adapters:
            queue.task = asyncio.get_running_loop().create_task(self._run_sender(queue))
            queue.task.add_done_callback(partial(self._on_sender_done, room_id, queue))

    def _on_sender_done(self, room_id: UUID, queue: RoomQueue, task: asyncio.Task[None]) -> None:
        queue.task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("replies for room %s wait for the next one", room_id, exc_info=error)
        elif not (task.cancelled() and queue.pending):
            self._start_sender(room_id)

    async def _run_sender(self, queue: RoomQueue) -> None:
        while queue.pending and not queue.open_commits:
            adapter = self._adapters.get(queue.pending[0].platform)  # a room has one platform
            if adapter is None:
                return
            queue.current = queue.pending.popleft()
            try:
                await self._sender.send(adapter, queue, self._drafts.with_external_id(queue.current))
            except BaseException:  # stopped, or our own fault: the part goes on from where it stands
                queue.pending.appendleft(queue.current)
                queue.current = None
                raise
            sent, queue.current = queue.current, None
            if sent.state is DeliveryState.CANCELLED:
                await self._cancel_remaining(queue, sent)
            self._finish(queue, sent)
            await self._drafts.close_replaced(sent)

    async def _cancel_remaining(self, queue: RoomQueue, cancelled: Delivery) -> None:
        """Say no more of a message whose beginning somebody has taken away."""
        for part in [
            queued
            for queued in queue.pending
            if queued.memory_id == cancelled.memory_id and not queued.replaces_external_id
        ]:
            queue.pending.remove(part)
            self._finished_ids.add(part.id)
            remaining = replace(part, state=DeliveryState.CANCELLED, cause=cancelled.cause)
            await persist_state(self._ledger, remaining)

    def _finish(self, queue: RoomQueue, delivery: Delivery) -> None:
        self._finished_ids.add(delivery.id)
        if self._drafts.note_finished(delivery):
            return
        message_id = delivery.memory_id
        if delivery.state is not DeliveryState.SENT:
            logger.warning("part %s is %s: %s", delivery.id, delivery.state, delivery.cause)
            self._incomplete.add(message_id)
        if any(other.memory_id == message_id for other in queue.pending):
            return
        if message_id in self._incomplete:
            self._incomplete.discard(message_id)
            return
        self._events.emit(MessageSent(self._agent_id, message_id, delivery.room_id, delivery.turn_id))
