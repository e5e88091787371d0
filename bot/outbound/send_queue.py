"""`SendQueue`: the rooms' queues of deliveries and the tasks that send them."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from bot.adapter.adapter import Adapter
from bot.concurrency.bounded import BoundedSet
from bot.concurrency.clock import Clock, ShutdownDeadline, Sleep
from bot.domain.ledger import Delivery, DeliveryState
from bot.outbound.delivery_attempt import OPEN_STATES, persist_state
from bot.outbound.drafts import Drafts
from bot.outbound.room_sender import RoomQueue, RoomSender
from bot.store.ledger import Ledger, WorkSharing

logger = logging.getLogger(__name__)
CANCEL_GRACE_SECONDS, POLL_SECONDS = 2.0, 0.2
MAX_FINISHED_IDS = 1000


class WorkOwnership:
    """Which work of one agent belongs to this process; the inbox and the outbox ask it before they start any.

    Where processes share the store, a room belongs to the one that holds its lease; without `sharing` every
    room is this process's. `adapters` are the connected ones by platform; without them every platform counts
    as connected.
    """

    def __init__(self, sharing: WorkSharing | None = None, adapters: Mapping[str, Adapter] | None = None) -> None:
        self._sharing = sharing
        self._adapters = adapters

    def owns_room(self, room_id: UUID) -> bool:
        """Return whether this process works on a room."""
        return self._sharing is None or self._sharing.owns_room(room_id)

    def is_connected(self, platform: str) -> bool:
        """Return whether a platform is connected."""
        return self._adapters is None or platform in self._adapters


class SendQueue:
    """Sends the deliveries of one agent, room by room and in each room in order.

    A delivery for a platform that is not connected waits; so does one in a room with an open commit, which
    may bring what comes before it. `on_sent` receives the last delivery of every message that arrived whole.
    """

    def __init__(
        self,
        ledger: Ledger,
        drafts: Drafts,
        *,
        on_sent: Callable[[Delivery], None],
        sharing: WorkSharing | None,
        clock: Clock,
        sleep: Sleep,
        shutdown_deadline: ShutdownDeadline,
    ) -> None:
        self._ledger = ledger
        self._drafts = drafts
        self._on_sent = on_sent
        self._clock = clock
        self._shutdown_deadline = shutdown_deadline
        self.adapters: dict[str, Adapter] = {}
        self.ownership = WorkOwnership(sharing, self.adapters)
        self._queues: defaultdict[UUID, RoomQueue] = defaultdict(RoomQueue)
        self._finished_ids = BoundedSet[str](MAX_FINISHED_IDS)  # a commit or resume may still name them
        self._incomplete: set[UUID] = set()  # messages of which a part did not arrive
        self._sender = RoomSender(ledger, clock, sleep)
        self._is_open = True

    def connect(self, adapter: Adapter) -> None:
        """Send what waits for a platform from now on."""
        self.adapters[adapter.platform] = adapter
        for room_id in list(self._queues):
            self._start_sender(room_id)

    def disconnect(self, adapter: Adapter) -> None:
        """Stop sending to a platform, also what is being sent just now, until it is connected again."""
        if self.adapters.get(adapter.platform) is not adapter:
            return
        del self.adapters[adapter.platform]
        for queue in self._queues.values():
            if queue.task and queue.current and queue.current.platform == adapter.platform:
                queue.task.cancel()

    def is_busy(self, room_id: UUID) -> bool:
        """Return whether deliveries of a room wait here, or are being sent."""
        return room_id in self._queues

    def is_current(self, delivery: Delivery) -> bool:
        """Return whether a delivery is the one that its room's sender works on."""
        queue = self._queues.get(delivery.room_id)
        return queue is not None and queue.current is not None and queue.current.id == delivery.id

    def block(self, room_ids: Collection[UUID]) -> None:
        """Start on no delivery of these rooms until `unblock` is called as often."""
        for room_id in room_ids:
            self._queues[room_id].open_commits += 1

    def unblock(self, room_ids: Collection[UUID]) -> None:
        """Allow sending in these rooms again."""
        for room_id in room_ids:
            self._queues[room_id].open_commits -= 1
            self._start_sender(room_id)

    def enqueue(self, deliveries: Sequence[Delivery]) -> None:
        """Queue the open ones among these deliveries that this process owns and has not finished."""
        for delivery in deliveries:
            is_owned = self.ownership.owns_room(delivery.room_id)
            if delivery.state in OPEN_STATES and is_owned and delivery.id not in self._finished_ids:
                self._queues[delivery.room_id].add(delivery)
        for room_id in {delivery.room_id for delivery in deliveries}:
            self._start_sender(room_id)

    def enqueue_resumed(self, deliveries: Sequence[Delivery]) -> None:
        """Queue what an earlier process left; it has been late only since now."""
        for delivery in deliveries:
            self._queues[delivery.room_id].not_before = self._clock()
        self.enqueue(deliveries)

    def forget_finished(self, deliveries: Sequence[Delivery]) -> None:
        """Allow these deliveries to be queued again, which were finished or cancelled here."""
        for delivery in deliveries:
            self._finished_ids.discard(delivery.id)

    def note_incomplete(self, deliveries: Sequence[Delivery]) -> None:
        """Record the messages of those deliveries that did not arrive: they are never reported as sent."""
        for delivery in deliveries:
            if delivery.state is not DeliveryState.SENT:
                self._incomplete.add(delivery.memory_id)

    async def cancel(self, delivery: Delivery) -> bool:
        """Take a delivery out of its room's queue; False where it is being sent just now."""
        queue = self._queues.get(delivery.room_id)
        if queue is None:
            return True
        if self.is_current(delivery) and queue.task is not None and queue.current is not None:
            if queue.current.state is not DeliveryState.PENDING:
                return False
            queue.task.cancel()  # it waits between two attempts
            await asyncio.wait({queue.task})
        self._finished_ids.add(delivery.id)
        if queue.remove(delivery.id):
            self._incomplete.add(delivery.memory_id)
        self._start_sender(delivery.room_id)
        return True

    async def release(self) -> None:
        """Stop sending: another process does it now."""
        for queue in self._queues.values():
            queue.pending.clear()
        await self._stop_senders(CANCEL_GRACE_SECONDS)
        self._queues.clear()
        self._finished_ids = BoundedSet[str](MAX_FINISHED_IDS)

    async def drain(self, seconds: float) -> int:
        """Wait up to `seconds` for senders, then stop them; return how many rooms still have deliveries.

        What is not sent stays in the ledger. A sender whose platform asked for a longer wait is not awaited.
        """
        clock = asyncio.get_running_loop().time
        end_time, wall_end = clock() + seconds, self._clock() + timedelta(seconds=seconds)
        while (tasks := self._tasks(available_by=wall_end)) and (remaining := end_time - clock()) > 0:
            await asyncio.wait(tasks, timeout=min(remaining, POLL_SECONDS))
        await self._stop_senders(self._shutdown_deadline.remaining(CANCEL_GRACE_SECONDS))
        return sum(1 for queue in self._queues.values() if queue.pending or queue.current is not None)

    def close(self) -> None:
        """Send nothing more: what is committed from now on waits for the next start."""
        self._is_open = False

    async def _stop_senders(self, timeout: float) -> None:
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)

    def _tasks(self, available_by: datetime | None = None) -> set[asyncio.Task[None]]:
        queues = self._available(available_by)
        return {queue.task for queue in queues if queue.task is not None}

    def _available(self, available_by: datetime | None) -> Iterator[RoomQueue]:
        for queue in self._queues.values():
            if available_by is None or queue.is_available_by(available_by):
                yield queue

    def _start_sender(self, room_id: UUID) -> None:
        queue = self._queues.get(room_id)
        if queue is None or queue.task is not None or queue.open_commits:
            return
        if not queue.pending:
            del self._queues[room_id]
        elif self._is_open and queue.pending[0].platform in self.adapters:
            queue.task = asyncio.get_running_loop().create_task(self._run_sender(queue))
            queue.task.add_done_callback(partial(self._on_sender_done, room_id, queue))

    def _on_sender_done(self, room_id: UUID, queue: RoomQueue, task: asyncio.Task[None]) -> None:
        queue.task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("sending in room %s failed; its replies wait for the next one", room_id, exc_info=error)
        elif not (task.cancelled() and queue.pending):
            self._start_sender(room_id)

    async def _run_sender(self, queue: RoomQueue) -> None:
        while queue.pending and not queue.open_commits:
            adapter = self.adapters.get(queue.pending[0].platform)  # a room has one platform
            if adapter is None:
                return
            queue.current = queue.pending.popleft()
            try:
                await self._sender.send(adapter, queue, self._drafts.with_external_id(queue.current))
            except BaseException:  # stopped, or a bug here: the delivery goes on from its stored state
                queue.pending.appendleft(queue.current)
                queue.current = None
                raise
            done, queue.current = queue.current, None
            if done.state is DeliveryState.CANCELLED:
                await self._cancel_remaining(queue, done)
            self._finish(queue, done)
            await self._drafts.close_replaced(done)

    async def _cancel_remaining(self, queue: RoomQueue, cancelled: Delivery) -> None:
        """Cancel the other parts of a message whose first part a user deleted."""
        for delivery in list(queue.pending):
            if delivery.memory_id != cancelled.memory_id or delivery.replaces_external_id:
                continue
            queue.pending.remove(delivery)
            self._finished_ids.add(delivery.id)
            state = replace(delivery, state=DeliveryState.CANCELLED, cause=cancelled.cause)
            await persist_state(self._ledger, state)

    def _finish(self, queue: RoomQueue, delivery: Delivery) -> None:
        self._finished_ids.add(delivery.id)
        if self._drafts.note_finished(delivery):
            return
        message_id = delivery.memory_id
        if delivery.state is not DeliveryState.SENT:
            logger.warning("delivery %s is %s: %s", delivery.id, delivery.state, delivery.cause)
            self._incomplete.add(message_id)
        if any(other.memory_id == message_id for other in queue.pending):
            return
        if message_id in self._incomplete:
            self._incomplete.discard(message_id)
            return
        self._on_sent(delivery)
