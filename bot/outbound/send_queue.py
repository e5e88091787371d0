"""`SendQueue`: the rooms' queues of deliveries and the tasks that send them."""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from bot.adapter.adapter import Adapter
from bot.concurrency.bounded import BoundedSet
from bot.concurrency.clock import Clock, ShutdownDeadline, Sleep
from bot.domain.ledger import Delivery, DeliveryState
from bot.errors import LeaseLost
from bot.outbound.delivery_attempt import OPEN_STATES, begin_attempt, persist_state
from bot.outbound.drafts import Drafts
from bot.outbound.room_queue import DeliveryWait, RoomQueue, SendingQueue, UnclearQueue
from bot.outbound.room_sender import RoomSender
from bot.store.ledger import Ledger
from bot.store.work_sharing import ProcessRole, WorkSharing

logger = logging.getLogger(__name__)
CANCEL_GRACE_SECONDS, POLL_SECONDS = 2.0, 0.2
MAX_FINISHED_IDS = 1000
MAX_BLOCKING_SECONDS = 60.0


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

    def is_settled(self, room_id: UUID) -> bool:
        """Return whether what an earlier owner of a room has left open there has been resumed."""
        return self._sharing is None or room_id not in self._sharing.unsettled_rooms

    def sends_room(self, room_id: UUID) -> bool:
        """Return whether this process sends the deliveries of a room."""
        return self._sharing is None or self._sharing.sends_room(room_id)

    def is_connected(self, platform: str) -> bool:
        """Return whether a platform is connected; a process that only answers leaves that to the others."""
        is_worker = self._sharing is not None and self._sharing.role is ProcessRole.WORKER
        return is_worker or self._adapters is None or platform in self._adapters

    def shared_platforms(self) -> list[str]:
        """Return the connected platforms for which this process sends if it does not own the rooms."""
        if self._sharing is None or self._sharing.role.answers:
            return []
        is_sender = self._sharing.role is ProcessRole.SENDER
        return [name for name, item in (self._adapters or {}).items() if item.serves_clients is not is_sender]


class SendQueue:
    """Sends the deliveries of one agent, room by room and in each room in order.

    A delivery for a platform that is not connected waits; so does one in a room with an open commit, which
    may bring what comes before it. One of unknown outcome delays the others of its room for at most a minute;
    then they pass it. `on_sent` receives the last delivery of every message that arrived whole, `on_held`
    each delivery of which it cannot be found out whether it arrived, `on_finished` each that is not attempted again.
    """

    def __init__(
        self,
        ledger: Ledger,
        drafts: Drafts,
        *,
        on_sent: Callable[[Delivery], None],
        on_held: Callable[[Delivery], None],
        on_finished: Callable[[Delivery], None],
        sharing: WorkSharing | None,
        clock: Clock,
        sleep: Sleep,
        shutdown_deadline: ShutdownDeadline,
    ) -> None:
        self._ledger = ledger
        self._drafts = drafts
        self._on_sent, self._on_held, self._on_finished = on_sent, on_held, on_finished
        self._clock = clock
        self._shutdown_deadline = shutdown_deadline
        self.adapters: dict[str, Adapter] = {}
        self.ownership = WorkOwnership(sharing, self.adapters)
        self._queues: defaultdict[UUID, RoomQueue] = defaultdict(RoomQueue)
        self._finished_ids = BoundedSet[str](MAX_FINISHED_IDS)  # a commit or resume may still name them
        self._incomplete: set[UUID] = set()  # messages of which a part did not arrive
        self._sleep = sleep
        self._sender = RoomSender(ledger, clock, sleep)
        self._is_open = True

    def connect(self, adapter: Adapter) -> None:
        """Send what waits for a platform from now on."""
        self.adapters[adapter.platform] = adapter
        for queue in self._all_queues():
            if isinstance(queue, UnclearQueue):
                queue.since = self._clock()  # nothing could be found out before
        for room_id in list(self._queues):
            self._start_sender(room_id)

    def disconnect(self, adapter: Adapter) -> None:
        """Stop sending to a platform, also what is being sent just now, until it is connected again."""
        if self.adapters.get(adapter.platform) is not adapter:
            return
        del self.adapters[adapter.platform]
        for queue in self._all_queues():
            if queue.task and any(item.platform == adapter.platform for item in queue.deliveries):
                queue.is_disconnected = True
                queue.task.cancel()

    def is_busy(self, room_id: UUID) -> bool:
        """Return whether deliveries of a room wait here, or are being sent."""
        return room_id in self._queues

    def is_blocked(self, room_id: UUID) -> bool:
        """Return whether a new delivery of a room would have to wait."""
        return room_id in self._queues and self._queues[room_id].is_blocked

    def is_queued(self, delivery: Delivery) -> bool:
        """Return whether a delivery waits here, or is being sent."""
        queue = self._queues.get(delivery.room_id)
        return queue is not None and any(other.id == delivery.id for other in queue.unfinished)

    def count_waiting(self, platform: str) -> int:
        """Return how many deliveries for a platform wait here, or are being sent."""
        return sum(item.platform == platform for queue in self._all_queues() for item in queue.deliveries)

    def wait_of(self, delivery: Delivery) -> DeliveryWait | None:
        """Return what a queued delivery waits for; None for one that is not queued here."""
        queue = self._queues.get(delivery.room_id)
        return queue.wait_of(delivery.id) if queue is not None else None

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
            is_owned = self.ownership.sends_room(delivery.room_id)
            if delivery.state in OPEN_STATES and is_owned and delivery.id not in self._finished_ids:
                self._queues[delivery.room_id].add(delivery)
        for room_id in {delivery.room_id for delivery in deliveries}:
            self._start_sender(room_id)

    def begin_first_attempts(self, deliveries: Sequence[Delivery]) -> tuple[Delivery, ...]:
        """Return deliveries to be committed: the first one of each room, if nothing comes before it, as attempted.

        Then it leaves right after the commit, without another write before it.
        """
        rooms: set[UUID] = set()
        begun: list[Delivery] = []
        for delivery in deliveries:
            can_begin = delivery.room_id not in rooms and self._can_begin(delivery)
            begun.append(begin_attempt(delivery, self._clock()) if can_begin else delivery)
            rooms.add(delivery.room_id)
        return tuple(begun)

    def _can_begin(self, delivery: Delivery) -> bool:
        """Return whether a delivery can be sent at once after its commit, and its attempt must be stored."""
        adapter = self.adapters.get(delivery.platform)
        return (
            self._is_open
            and adapter is not None
            and not adapter.supports_idempotent_send
            and delivery.state is DeliveryState.PENDING
            and not delivery.draft_id
            and delivery.room_id not in self._queues
            and self.ownership.sends_room(delivery.room_id)
        )

    def enqueue_committed(self, committed: Sequence[Delivery], stored: Sequence[Delivery]) -> None:
        """Queue deliveries as the ledger has them after a commit.

        One whose first attempt was committed with it is attempted without storing that again. One that the
        ledger had before, from an earlier process, may have been sent.
        """
        begun = {item.id: item.first_attempt_at for item in committed if item.state is DeliveryState.ATTEMPTING}
        deliveries: list[Delivery] = []
        for delivery in stored:
            is_attempting = delivery.state is DeliveryState.ATTEMPTING
            if is_attempting and delivery.first_attempt_at == begun.get(delivery.id):
                self._queues[delivery.room_id].begun = delivery
                delivery = replace(delivery, state=DeliveryState.PENDING, attempts=0, first_attempt_at=None)
            deliveries.append(delivery)
        self.enqueue(deliveries)

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
        room_queue = self._queues.get(delivery.room_id)
        if room_queue is None:
            return True
        queue = room_queue.find(delivery.id)
        if queue is not None and queue.task is not None and queue.current is not None:
            if queue.current.state is not DeliveryState.PENDING and queue.resting_until is None:
                return False
            queue.task.cancel()  # it waits between two attempts
            await asyncio.wait({queue.task})
        self._finished_ids.add(delivery.id)
        if room_queue.remove(delivery.id):
            self._incomplete.add(delivery.memory_id)
        self._start_sender(delivery.room_id)
        return True

    def withdraw(self, cancelled: Delivery) -> None:
        """Make no further attempt at a delivery that is being sent just now; unless it arrives, it is cancelled."""
        room_queue = self._queues.get(cancelled.room_id)
        if room_queue is not None and (queue := room_queue.find(cancelled.id)) is not None:
            queue.withdrawn = cancelled

    async def release(self) -> None:
        """Stop sending: another process does it now."""
        for room_queue in self._queues.values():
            room_queue.clear()
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
        return sum(1 for queue in self._queues.values() if any(queue.unfinished))

    def close(self) -> None:
        """Send nothing more: what is committed from now on waits for the next start."""
        self._is_open = False

    async def _stop_senders(self, timeout: float) -> None:
        if tasks := self._tasks():
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=timeout)

    def _tasks(self, available_by: datetime | None = None) -> set[asyncio.Task[None]]:
        return {
            queue.task
            for queue in self._all_queues()
            if queue.task is not None and (available_by is None or queue.is_available_by(available_by))
        }

    def _all_queues(self) -> Iterator[SendingQueue]:
        return (queue for room_queue in list(self._queues.values()) for queue in room_queue.queues)

    def _start_sender(self, room_id: UUID) -> None:
        """Start what waits in a room and is not being sent yet."""
        room_queue = self._queues.get(room_id)
        if room_queue is None or room_queue.open_commits:
            return
        room_queue.unclear = [queue for queue in room_queue.unclear if queue.deliveries or queue.task]
        for queue in room_queue.queues:
            is_ready = self._is_open and queue.pending and queue.pending[0].platform in self.adapters
            if queue.task is None and is_ready:
                queue.task = asyncio.get_running_loop().create_task(self._run_sender(room_queue, queue))
                queue.task.add_done_callback(partial(self._on_sender_done, room_id, room_queue, queue))
        if room_queue.task is None and not any(room_queue.unfinished):
            del self._queues[room_id]

    def _on_sender_done(
        self, room_id: UUID, room_queue: RoomQueue, queue: SendingQueue, task: asyncio.Task[None]
    ) -> None:
        may_be_back = queue.is_disconnected  # connected again while the sender was stopping
        queue.task, queue.is_disconnected = None, False
        error = None if task.cancelled() else task.exception()
        if isinstance(error, LeaseLost):
            room_queue.clear()  # its new owner sends this; sent from here later, it would come twice
            self._start_sender(room_id)
        elif error is not None:
            logger.error("sending in room %s failed; its replies wait for the next one", room_id, exc_info=error)
        elif may_be_back or not (task.cancelled() and any(room_queue.unfinished)):
            self._start_sender(room_id)

    async def _run_sender(self, room_queue: RoomQueue, queue: SendingQueue) -> None:
        while queue.pending and not room_queue.open_commits:
            if queue is room_queue and await self._wait_for_unclear(room_queue):
                continue
            adapter = self.adapters.get(queue.pending[0].platform)  # a room has one platform
            if adapter is None:
                return
            queue.current = queue.pending.popleft()
            is_resumed = queue.current.state is DeliveryState.ATTEMPTING
            delay = 0.0
            try:
                if queue is not room_queue or not is_resumed:
                    delay = await self._sender.send(adapter, queue, self._drafts.with_external_id(queue.current))
            except BaseException:  # stopped, or a bug here: the delivery goes on from its stored state
                if queue.withdrawn is None:
                    queue.pending.appendleft(queue.current)
                queue.current = queue.withdrawn = None
                raise
            done, queue.current, queue.withdrawn = queue.current, None, None
            if done.state in OPEN_STATES:
                self._set_aside(room_queue, adapter, done, delay, is_resumed=is_resumed)
                continue
            if done.state is DeliveryState.CANCELLED:
                await self._cancel_remaining(room_queue, done)
            self._finish(room_queue, done)
            await self._drafts.close_replaced(done)

    def _set_aside(
        self, room_queue: RoomQueue, adapter: Adapter, delivery: Delivery, delay: float, *, is_resumed: bool
    ) -> None:
        """Go on with a delivery of unknown outcome beside its room's queue."""
        now = self._clock()
        unclear = UnclearQueue(
            deque([delivery]),
            not_before=room_queue.not_before,
            links_parts=adapter.links_parts,
            delay=delay,
            since=now if is_resumed else room_queue.attempted_at or now,
            is_passed=None if is_resumed else False,
        )
        room_queue.set_aside(unclear)
        self._start_sender(delivery.room_id)

    async def _wait_for_unclear(self, room_queue: RoomQueue) -> bool:
        """Wait for a delivery of unknown outcome before the next one; False where there is none to wait for."""
        unclear = next((queue for queue in room_queue.unclear if queue.is_blocking and queue.deliveries), None)
        if unclear is None or unclear.task is None:
            return False
        remaining = MAX_BLOCKING_SECONDS - (self._clock() - unclear.since).total_seconds()
        timer = asyncio.ensure_future(self._sleep(max(remaining, 0.0)))
        room_queue.is_waiting = True
        try:
            await asyncio.wait({unclear.task, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            room_queue.is_waiting = False
            if timer.done():
                unclear.is_blocking = False
            timer.cancel()
        return True

    async def _cancel_remaining(self, room_queue: RoomQueue, cancelled: Delivery) -> None:
        """Cancel the other parts of a message whose first part a user deleted."""
        for queue in room_queue.queues:
            for delivery in list(queue.pending):
                if delivery.memory_id != cancelled.memory_id or delivery.replaces_external_id:
                    continue
                queue.pending.remove(delivery)
                self._finished_ids.add(delivery.id)
                state = replace(delivery, state=DeliveryState.CANCELLED, cause=cancelled.cause)
                await persist_state(self._ledger, state)

    def _finish(self, room_queue: RoomQueue, delivery: Delivery) -> None:
        self._finished_ids.add(delivery.id)
        if delivery.state is DeliveryState.SENT:
            room_queue.note_arrived(delivery)
        if self._drafts.note_finished(delivery):
            return
        message_id = delivery.memory_id
        self._on_finished(delivery)
        if delivery.state is DeliveryState.UNKNOWN:
            self._on_held(delivery)
        elif delivery.state is not DeliveryState.SENT:
            logger.warning("delivery %s is %s: %s", delivery.id, delivery.state, delivery.cause)
        if delivery.state is not DeliveryState.SENT:
            self._incomplete.add(message_id)
        if room_queue.has_message(delivery):
            return
        if message_id in self._incomplete:
            self._incomplete.discard(message_id)
            return
        self._on_sent(delivery)
