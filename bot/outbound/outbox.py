"""`Outbox`: commits replies, receipts and deliveries in one transaction, and queues them for sending.

`SendQueue`: the rooms' queues of deliveries and the tasks that send them.

`HeldParts`: deliveries of unknown outcome that wait for an operator, and the notices about them.

`UndeliveredParts`: list, retry or drop deliveries that have not arrived.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from bot.adapter.adapter import Adapter, ConnectionState, Feed
from bot.concurrency.clock import Clock, ShutdownDeadline, Sleep, system_clock
from bot.concurrency.tasks import BoundedSet, TaskSet, crash_point
from bot.domain.content import MediaKind
from bot.domain.environment import Room
from bot.domain.events import (
    ControlMessage,
    DeliveryFinished,
    MarkupRemoved,
    MessageClosed,
    MessageHeld,
    MessageSent,
    ModelRetried,
    VoiceMessageSent,
)
from bot.domain.inbound import RESPONSE_SOURCE
from bot.domain.ledger import DROPPED_CAUSE, Delivery, DeliveryState, Receipt, Step
from bot.domain.memory import Memory
from bot.errors import LeaseLost, StoreUnavailable
from bot.event_bus import EventBus
from bot.outbound.content_filter import LinkPolicy, OutgoingFilter
from bot.outbound.drafts import Draft, Drafts, is_draft
from bot.outbound.sender import (
    OPEN_STATES,
    DeliveryWait,
    OutgoingReply,
    RoomQueue,
    RoomSender,
    SendingQueue,
    TypingIndicator,
    UnclearQueue,
    begin_attempt,
    is_removal,
    persist_state,
    split_reply,
    without_references,
)
from bot.store.ledger import Ledger, ProcessRole, TurnCommit, WorkSharing
from bot.text import redact, shorten

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


MAX_REOPEN_AGE = timedelta(days=1)
MAX_LISTED = 1000


class HeldParts:
    """Counts the held parts of one agent and reports each: in the log, and as an event for plugins."""

    def __init__(
        self, ledger: Ledger, events: EventBus, agent_id: UUID, ownership: WorkOwnership, clock: Clock
    ) -> None:
        self._ledger = ledger
        self._events = events
        self._agent_id = agent_id
        self._ownership = ownership
        self._clock = clock
        self._ids: set[str] = set()

    @property
    def count(self) -> int:
        """How many parts wait for a decision."""
        return len(self._ids)

    def add(self, part: Delivery) -> None:
        """Report a part that is held now."""
        logger.error(
            "part %s of a reply is held (%s): look whether %s has it, then `bot outbox send %s` or `… drop %s`",
            part.id,
            part.cause,
            part.platform,
            part.id,
            part.id,
        )
        self._ids.add(part.id)
        self._events.emit(MessageHeld(self._agent_id, part.memory_id, part.room_id, part.id, part.cause))

    def remove(self, delivery_id: str) -> None:
        """Record that a part was decided about."""
        self._ids.discard(delivery_id)

    async def reopen(self) -> None:
        """Open the parts again that an earlier process has held, where that was within a day; count the others.

        A part without an attempt of this database, such as one of a restored backup, stays held.
        """
        known_count = self.count
        for part in await self._ledger.undelivered(MAX_LISTED):
            is_held = part.state is DeliveryState.UNKNOWN and not is_draft(part)
            if not is_held or part.id in self._ids or not self._ownership.sends_room(part.room_id):
                continue
            if part.first_attempt_at is None or self._clock() - part.first_attempt_at > MAX_REOPEN_AGE:
                self._ids.add(part.id)
            else:
                await self._ledger.save_delivery(replace(part, state=DeliveryState.ATTEMPTING))
        if self.count > known_count:
            logger.warning("%d parts of replies are held: `bot outbox list` shows them", self.count)


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
        self.adapters, self.ownership = self._queue.adapters, self._queue.ownership
        self.wait_of, self.has_draft = self._queue.wait_of, self._drafts.has_draft
        self._typing = TypingIndicator(self.adapters)
        self.show_typing = self._typing.show
        self.held_parts = HeldParts(ledger, events, agent_id, self.ownership, clock)

    def connect(self, adapter: Adapter) -> None:
        """Make a platform reachable; what waits for it is sent now."""
        self._queue.connect(adapter)

    def disconnect(self, adapter: Adapter) -> None:
        """Stop sending to a platform, also what is being sent just now, until it is connected again."""
        self._queue.disconnect(adapter)

    def is_full(self, platform: str) -> bool:
        """Return whether the agent's account on a platform is off and as many deliveries wait for it as may."""
        adapter = self.adapters.get(platform)
        if adapter is None or self._queue.count_waiting(platform) < MAX_WAITING_DELIVERIES:
            return False
        return any(
            connection.snapshot.state is ConnectionState.OFF
            for connection in adapter.connections
            if connection.agent_id in (None, self._agent_id)
        )

    def feeds(self) -> list[Feed]:
        """List where the agent posts on the connected platforms."""
        feeds = (adapter.feed(self._agent_id) for adapter in self.adapters.values())
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
            content, markup = self._filter.filter(reply.memory.content, reply.memory.room_id)
            if markup:
                self._report_markup(reply.memory, markup, receipts)
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

    def _report_markup(self, memory: Memory, found: Sequence[str], receipts: Sequence[Receipt]) -> None:
        """Report markup of a model in a reply: the reader of answers should have removed it."""
        ids = ", ".join(str(receipt.id) for receipt in receipts) or f"of turn {memory.turn_id}"
        logger.warning("markup of the model was removed from a reply before it was sent: %s (receipt %s)", found, ids)
        self._events.emit(MarkupRemoved(self._agent_id, memory.room_id, tuple(found)))

    def open_draft(self, room: Room, turn_id: UUID, build_reply: Callable[[], OutgoingReply]) -> Draft | None:
        """Return what shows a reply while it is written; None where the platform takes whole replies only.

        The turn's first reply takes its place. Where the turn closes without one, the draft is removed. `build_reply`
        is called when something is to be shown.
        """
        adapter = self.adapters.get(room.platform)
        interval = adapter.stream_interval(room) if adapter is not None and self.is_streaming else None
        if adapter is None or interval is None:
            return None
        return self._drafts.open_draft(turn_id, lambda: self._with_current_room(build_reply()), adapter, interval)

    def on_closed(self, receipt: Receipt) -> None:
        """Report the outcome of a message, and remove the draft of a turn that was closed without a reply."""
        self._events.emit(MessageClosed(self._agent_id, receipt))
        if receipt.turn_id is not None and self.has_draft(receipt.turn_id):
            self.remove_draft(receipt.turn_id)

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

    async def _on_model_retried(self, event: ModelRetried) -> None:
        if event.room_id is not None:
            await self._typing.show_model_busy(event.room_id)

    async def _on_control_message(self, event: ControlMessage) -> None:
        for adapter in list(self.adapters.values()):
            await adapter.show_control(event.room_id, event.action, event.target)

    async def _remove_draft(self, turn_id: UUID) -> None:
        if not self.has_draft(turn_id) or turn_id in self._removing_drafts:
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
        return split_reply(reply, self.adapters.get(reply.room.platform), self._clock(), previous)

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


MAX_OVERDUE_READ = 500
HELD_STATES = (DeliveryState.UNKNOWN, DeliveryState.FAILED)


@dataclass(frozen=True, slots=True)
class DeliveryDecision:
    """A delivery after a decision, whether it is now as requested, and a note about it."""

    part: Delivery
    is_done: bool
    note: str


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """Why a part has not arrived, in one sentence, and when it is tried again, where that is known."""

    why: str
    next_attempt_at: datetime | None = None


def is_dropped(part: Delivery) -> bool:
    """Return whether an operator has given a part up; it is sent again only by name."""
    return part.state is DeliveryState.FAILED and part.cause == DROPPED_CAUSE


class UndeliveredParts:
    """Lists what has not arrived, sends a part again, or gives it up.

    Without an `outbox` nothing is being sent: what is retried then is sent at the next start.
    """

    def __init__(self, ledger: Ledger, outbox: Outbox | None = None) -> None:
        self._ledger = ledger
        self._outbox = outbox
        self._lock = asyncio.Lock()  # a part put back twice at once would leave twice

    @property
    def held_count(self) -> int:
        """How many parts wait for an operator's decision, as far as this process knows."""
        return self._outbox.held_parts.count if self._outbox is not None else 0

    async def parts(self, limit: int = 100) -> list[Delivery]:
        """List the latest parts that wait, are held or have failed, in the order of sending."""
        return await self._ledger.undelivered(limit)

    def explain(self, part: Delivery) -> DeliveryStatus:
        """Return why a part has not arrived, and when it is tried again."""
        cause = part.cause.rstrip(".")
        if part.state is DeliveryState.UNKNOWN:
            return DeliveryStatus(f"{cause or 'The connection broke off'}: it is unknown whether it arrived")
        if part.state not in OPEN_STATES:
            return DeliveryStatus(cause or "It was refused")
        if self._outbox is None:
            return DeliveryStatus("The bot is not running: it is sent at the next start")
        wait = self._outbox.wait_of(part)
        if wait is None and not self._outbox.ownership.sends_room(part.room_id):
            return DeliveryStatus("Another process sends it")
        if self._outbox.adapters.get(part.platform) is None:
            return DeliveryStatus(f"{part.platform} is not connected: it is sent once it is")
        if wait is not None and wait.is_behind:
            return DeliveryStatus("Behind another part of the same room")
        if wait is not None and wait.until is not None:
            return DeliveryStatus(cause or "It is tried again after a pause", wait.until)
        return DeliveryStatus("It is being sent")

    async def find_overdue(self, connected: Mapping[str, datetime], before: datetime) -> datetime | None:
        """Return since when the oldest part has waited that was to be sent before a time; None without any.

        `connected` says since when each platform is connected; parts of others wait for that. What waits for a pause
        that the platform has asked for, behind another part, or elsewhere, is not overdue.
        """
        overdue = []
        for part in await self._ledger.undelivered(MAX_OVERDUE_READ):
            wait = self._outbox.wait_of(part) if self._outbox is not None and part.state in OPEN_STATES else None
            if wait is not None and not wait.is_behind and part.platform in connected:
                since = max(part.created_at, connected[part.platform])
                overdue.append(max(since, wait.not_before or since))
        return min((since for since in overdue if since <= before), default=None)

    async def retry(self, delivery_id: str) -> DeliveryDecision | None:
        """Queue a held or failed part again; return None where there is no such part."""
        async with self._lock:
            part = await self._ledger.delivery(delivery_id)
            if part is None:
                return None
            if part.state in OPEN_STATES:
                return DeliveryDecision(part, True, "it is on its way already")
            if part.state not in HELD_STATES:
                return _build_final_decision(part)
            if is_draft(part):
                return DeliveryDecision(part, False, "it is only what was seen of a reply while that was written")
            part = replace(part, state=DeliveryState.PENDING, cause="")
            await self._ledger.save_delivery(part)
            if self._outbox is None:
                return DeliveryDecision(part, True, "it leaves at the next start")
            await self._outbox.requeue(part)
            return DeliveryDecision(part, True, "it leaves as soon as its platform takes it")

    async def drop(self, delivery_id: str) -> DeliveryDecision | None:
        """Cancel the delivery of a part; return None if there is no such part."""
        async with self._lock:
            part = await self._ledger.delivery(delivery_id)
            if part is not None and part.state in OPEN_STATES and self._outbox is not None:
                if not await self._outbox.cancel_delivery(part):
                    return DeliveryDecision(part, False, "it is being sent just now: try again in a moment")
                part = await self._ledger.delivery(delivery_id)  # again, now that it is not being sent
            if part is None:
                return None
            if part.state not in (*OPEN_STATES, *HELD_STATES):
                return _build_final_decision(part)
            part = replace(part, state=DeliveryState.FAILED, cause=DROPPED_CAUSE)
            await self._ledger.save_delivery(part)
            if self._outbox is not None:
                self._outbox.held_parts.remove(part.id)
            return DeliveryDecision(part, True, "it is given up for good")


def _build_final_decision(part: Delivery) -> DeliveryDecision:
    return DeliveryDecision(part, False, f"nothing is left to decide: it is {part.state} already")
