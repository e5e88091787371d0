"""`SendQueue`: the rooms' queues of deliveries and the tasks that send them; `WorkOwnership`.

One room's deliveries: those that wait in order, and those of unknown outcome, which wait aside.

Sending one delivery of a queue: attempts, pauses, and when it is given up.

One attempt to deliver a part, the delay after it, and its persisted state.

`OutgoingReply` and its split into deliveries.
"""

import asyncio
import logging
import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Protocol
from uuid import UUID

from bot.adapter.adapter import Adapter, ConnectionState
from bot.concurrency.clock import Backoff, Clock, ShutdownDeadline, Sleep
from bot.concurrency.tasks import BoundedSet, CancellationScope, crash_point
from bot.domain.content import Content
from bot.domain.environment import Room
from bot.domain.ids import delivery_id, derived_id
from bot.domain.ledger import Delivery, DeliveryKind, DeliveryState
from bot.domain.memory import Memory
from bot.errors import DeliveryHeld, DeliveryUnknown, LeaseLost, MessageGone, NotSent, StoreUnavailable, Undeliverable
from bot.store.ledger import Ledger, ProcessRole, WorkSharing
from bot.user_texts import user_text


@dataclass(frozen=True, slots=True)
class DeliveryWait:
    """Why a delivery is not sent yet: it `is_behind` another one of its room, or waits `until` a time.

    Neither is true of one that is being sent just now. Before `not_before` nothing could be sent, where that is known.
    """

    is_behind: bool = False
    until: datetime | None = None
    not_before: datetime | None = field(default=None, compare=False)


@dataclass(slots=True, eq=False)
class SendingQueue:
    """Deliveries that are sent one after the other, and the one that is being sent.

    `not_before` is the time before which nothing could be sent, where that is known: a delivery is late only
    after it. `resting_until` is the end of the pause between two attempts, `attempted_at` the start of the
    latest one. `withdrawn` is the current delivery as it was cancelled while it was being sent. `is_disconnected`
    while the task is stopped because its platform was disconnected.
    """

    pending: deque[Delivery] = field(default_factory=deque)
    current: Delivery | None = None
    task: asyncio.Task[None] | None = None
    not_before: datetime | None = None
    resting_until: datetime | None = None
    attempted_at: datetime | None = None
    withdrawn: Delivery | None = None
    is_disconnected: bool = False

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """All deliveries that are not finished, the one that is being sent first."""
        return (self.current, *self.pending) if self.current else tuple(self.pending)

    def is_available_by(self, timestamp: datetime) -> bool:
        """Return whether the next attempt is made by that time."""
        return all(pause is None or pause <= timestamp for pause in (self.not_before, self.resting_until))

    def insert(self, delivery: Delivery) -> None:
        """Insert a delivery at its place in the room's order."""
        position = sum(other.seq <= delivery.seq for other in self.pending)
        self.pending.insert(position, delivery)


@dataclass(slots=True, eq=False)
class UnclearQueue(SendingQueue):
    """A delivery of unknown outcome, which is repeated or asked for, and those that must not come before it.

    `delay` are the seconds until its next attempt, `since` is when it was set aside. As long as it
    `is_blocking`, it delays the others of its room. `is_passed` tells whether one of them has arrived before
    it; None where only the ledger knows.
    """

    links_parts: bool = False
    delay: float = 0.0
    since: datetime = datetime.min
    is_blocking: bool = True
    is_passed: bool | None = False

    def must_precede(self, delivery: Delivery) -> bool:
        """Return whether a delivery must not come before one of these.

        That is what edits or reacts to the same message, what replaces the same draft, and, where the platform
        `links_parts`, another part of the same message.
        """
        return any(
            (other.draft_id and other.draft_id == delivery.draft_id)
            or (other.replaces_external_id and other.replaces_external_id == delivery.replaces_external_id)
            or (self.links_parts and other.memory_id == delivery.memory_id)
            or (other.kind is delivery.kind is DeliveryKind.REACTION and other.reply_to == delivery.reply_to)
            for other in self.deliveries
        )


@dataclass(slots=True, eq=False)
class RoomQueue(SendingQueue):
    """One room's deliveries; those of unknown outcome are in queues of their own.

    While commits are open nothing is started: one of them may bring what comes before it. `begun` is the delivery
    that was committed together with its first attempt.
    """

    begun: Delivery | None = None
    open_commits: int = 0
    unclear: list[UnclearQueue] = field(default_factory=list)
    is_waiting: bool = False  # for one of `unclear`

    @property
    def queues(self) -> tuple[SendingQueue, ...]:
        """This queue and those of unknown outcome."""
        return (self, *self.unclear)

    @property
    def unfinished(self) -> Iterator[Delivery]:
        """All deliveries of the room that are not finished."""
        return (delivery for queue in self.queues for delivery in queue.deliveries)

    @property
    def is_blocked(self) -> bool:
        """Return whether a new delivery would have to wait."""
        return bool(self.deliveries) or any(queue.is_blocking for queue in self.unclear)

    def is_available_by(self, timestamp: datetime) -> bool:
        """Return whether the next attempt is made by that time."""
        if self.is_waiting and not any(queue.is_available_by(timestamp) for queue in self.unclear):
            return False
        return SendingQueue.is_available_by(self, timestamp)

    def add(self, delivery: Delivery) -> None:
        """Insert a delivery at its place in the room's order; one that is queued already stays as it is."""
        if not any(other.id == delivery.id for other in self.unfinished):
            self._queue_for(delivery).insert(delivery)

    def clear(self) -> None:
        """Forget the deliveries that wait."""
        for queue in self.queues:
            queue.pending.clear()

    def set_aside(self, unclear: UnclearQueue) -> None:
        """Move what must not come before an unclear delivery behind it."""
        self.unclear.append(unclear)
        remaining, self.pending = self.pending, deque()
        for delivery in remaining:
            self._queue_for(delivery).insert(delivery)

    def take_begun(self, delivery: Delivery) -> Delivery | None:
        """Return a delivery as it was committed with its first attempt, once; None if it was not."""
        begun = self.begun
        if begun is None or begun.id != delivery.id:
            return None
        self.begun = None
        return begun

    def find(self, delivery_id: str) -> SendingQueue | None:
        """Return the queue that is sending a delivery just now."""
        return next((queue for queue in self.queues if queue.current and queue.current.id == delivery_id), None)

    def wait_of(self, delivery_id: str) -> DeliveryWait | None:
        """Return what a delivery waits for; None for one that is not in this room's queues."""
        for queue in self.queues:
            for index, delivery in enumerate(queue.deliveries):
                if delivery.id == delivery_id:
                    is_behind = index > 0 or (queue is self and self.is_waiting)
                    until = None if is_behind else queue.resting_until
                    return DeliveryWait(is_behind, until, queue.not_before)
        return None

    def remove(self, delivery_id: str) -> bool:
        """Remove a waiting delivery; return whether others of its message still wait."""
        for queue in self.queues:
            for delivery in queue.pending:
                if delivery.id == delivery_id:
                    queue.pending.remove(delivery)
                    return self.has_message(delivery)
        return False

    def has_message(self, delivery: Delivery) -> bool:
        """Return whether another delivery of the same message is not finished."""
        return any(other.memory_id == delivery.memory_id and other.id != delivery.id for other in self.unfinished)

    def note_arrived(self, delivery: Delivery) -> None:
        """Record that a delivery has come before unclear ones that were committed before it."""
        for queue in self.unclear:
            queue.is_passed = queue.is_passed or any(other.seq < delivery.seq for other in queue.deliveries)

    def _queue_for(self, delivery: Delivery) -> SendingQueue:
        return next((queue for queue in self.unclear if queue.must_precede(delivery)), self)


logger = logging.getLogger(__name__)

OPEN_STATES = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)
CANCEL_GRACE_SECONDS, POLL_SECONDS = 2.0, 0.2
MAX_FINISHED_IDS = 1000
MAX_WAITING_DELIVERIES = 5  # for a platform on which the account is off; no reply beyond them is generated
MAX_BLOCKING_SECONDS = 60.0
ATTEMPT_TIMEOUT = 60.0
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS, MAX_WAIT_SECONDS = 1.0, 60.0, 86_400.0
MAX_FAST_RETRIES = 5


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """The result of one attempt: the new state, and the seconds that the platform asks to wait.

    It is ATTEMPTING where the outcome is unknown and can still be found out, UNKNOWN where it cannot.
    """

    state: DeliveryState
    external_id: str = ""
    cause: str = ""
    retry_after: float | None = None


def begin_attempt(delivery: Delivery, now: datetime) -> Delivery:
    """Return a delivery as it is stored before the next attempt at it is made."""
    return replace(
        delivery,
        state=DeliveryState.ATTEMPTING,
        attempts=delivery.attempts + 1,
        first_attempt_at=delivery.first_attempt_at or now,
        next_attempt_at=None,
    )


async def attempt_delivery(adapter: Adapter, delivery: Delivery, is_ambiguous: bool) -> DeliveryAttempt:
    """Try once, or reconcile where an earlier outcome is unknown; for at most a minute.

    An edit, a reaction or a thread is not reconciled but made again.
    """
    cancellation = CancellationScope()
    try:
        async with asyncio.timeout(ATTEMPT_TIMEOUT):
            return DeliveryAttempt(DeliveryState.SENT, await _call_adapter(adapter, delivery, is_ambiguous))
    except NotSent as error:
        return DeliveryAttempt(DeliveryState.PENDING, cause=str(error), retry_after=error.retry_after)
    except MessageGone as error:
        return DeliveryAttempt(DeliveryState.CANCELLED, cause=str(error))
    except Undeliverable as error:
        return DeliveryAttempt(DeliveryState.FAILED, cause=str(error))
    except DeliveryHeld as error:
        return DeliveryAttempt(DeliveryState.UNKNOWN, cause=str(error))
    except DeliveryUnknown as error:
        return DeliveryAttempt(DeliveryState.ATTEMPTING, cause=str(error), retry_after=error.retry_after)
    except asyncio.CancelledError:
        if cancellation.requested:
            raise
        return DeliveryAttempt(DeliveryState.ATTEMPTING, cause="the adapter cancelled itself")
    except Exception as error:  # an adapter's fault may have come after the bytes left
        logger.warning("%s failed to deliver %s", adapter.platform, delivery.id, exc_info=True)
        return DeliveryAttempt(DeliveryState.ATTEMPTING, cause=f"{type(error).__name__}: {error}")


async def _call_adapter(adapter: Adapter, delivery: Delivery, is_ambiguous: bool) -> str:
    if delivery.kind is DeliveryKind.REACTION:
        if not delivery.reply_to:
            raise MessageGone("the message is in the room that this was before")
        return await adapter.react(delivery)
    if delivery.kind is DeliveryKind.THREAD:
        return await adapter.open_thread(delivery, is_repeat=is_ambiguous)
    if delivery.replaces_external_id:
        return await adapter.edit(delivery)
    return await (adapter.reconcile(delivery) if is_ambiguous else adapter.deliver(delivery))


def retry_delay(attempts: int, retry_after: float | None = None, *, jitter: float = 0.0) -> float:
    """Return the seconds to wait after so many attempts: what the platform asks for, if that is plausible.

    Where it asks for none, the delay grows after a few attempts all the same; up to the share `jitter` of it
    is left out at random.
    """
    backoff = Backoff(FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS, jitter=jitter).delay(attempts)
    if retry_after is None or not math.isfinite(retry_after) or retry_after < 0:
        return backoff
    return min(max(retry_after, backoff if attempts > MAX_FAST_RETRIES else 0.0), MAX_WAIT_SECONDS)


def has_retry_after(retry_after: float | None) -> bool:
    """Return whether a platform has named a wait, which is then respected, however long it has lasted."""
    return retry_after is not None and math.isfinite(retry_after) and retry_after > 0


async def persist_state(ledger: Ledger, delivery: Delivery) -> None:
    """Store a delivery's state, retrying while the store fails. Raises LeaseLost."""
    for failures in count(1):
        try:
            await ledger.save_delivery(delivery)
        except LeaseLost:
            raise
        except StoreUnavailable:  # the log has it once, and not for every part
            logger.debug("part %s waits to be written down", delivery.id)
        except Exception:  # the store's fault, and perhaps a passing one: what was sent must be known
            logger.warning("part %s could not be written down", delivery.id, exc_info=True)
        else:
            return
        await asyncio.sleep(retry_delay(failures))


# no reply of a turn has these numbers, no draft and no notice
REACTION_REPLY_INDEX, THREAD_REPLY_INDEX = -3, -4
LATE_KEY = "is_late"  # in the metadata of a part's content


@dataclass(frozen=True, slots=True)
class OutgoingReply:
    """A reply before it is split.

    `reply_index` counts the replies of its turn, `reply_to` is a platform's id, `replaces` is the earlier
    reply that is edited into this one. A memory of the kind REACTION is a reaction to the message `reply_to`, in place
    of the one of the delivery `replaced_reaction`; without a text it removes that.
    """

    memory: Memory
    room: Room
    reply_index: int = 0
    reply_to: str = ""
    replaces: Memory | None = None
    replaced_reaction: str = ""


def build_reaction(reply: OutgoingReply, created_at: datetime) -> Delivery:
    """Return the delivery of a reaction."""
    room, memory = reply.room, reply.memory
    turn_id = memory.turn_id or memory.id
    return Delivery(
        id=delivery_id(turn_id, REACTION_REPLY_INDEX, 0),
        turn_id=turn_id,
        room_id=room.id,
        memory_id=memory.id,
        platform=room.platform,
        account=room.account,
        target=room.external_id,
        part=0,
        content=memory.content,
        created_at=created_at,
        reply_to=reply.reply_to,
        replaces_external_id=reply.replaced_reaction,
        kind=DeliveryKind.REACTION,
    )


def build_thread_opening(room: Room, turn_id: UUID, name: str, reply_to: str, created_at: datetime) -> Delivery:
    """Return the delivery that opens a thread in a room at the message `reply_to`; it has no memory."""
    return Delivery(
        id=delivery_id(turn_id, THREAD_REPLY_INDEX, 0),
        turn_id=turn_id,
        room_id=room.id,
        memory_id=derived_id(turn_id, DeliveryKind.THREAD),
        platform=room.platform,
        account=room.account,
        target=room.external_id,
        part=0,
        content=Content(text=name),
        created_at=created_at,
        reply_to=reply_to,
        kind=DeliveryKind.THREAD,
    )


def split_reply(
    reply: OutgoingReply, adapter: Adapter | None, created_at: datetime, previous: Sequence[Delivery] = ()
) -> list[Delivery]:
    """Split a reply into deliveries.

    Each edits one message of `previous` that was sent, as far as there are such; the remaining ones are deleted.
    A message of which `previous` has edits too is one.
    """
    room, memory = reply.room, reply.memory
    contents = adapter.split_content(_with_numbered_choices(memory.content, adapter)) if adapter else [memory.content]
    sent = [part for part in previous if part.state is DeliveryState.SENT and part.external_id]
    removed = {part.replaces_external_id for part in sent if is_removal(part)}
    sent_ids = [shown for shown in dict.fromkeys(part.external_id for part in sent) if shown not in removed]
    contents = [*contents, *[Content()] * (len(sent_ids) - len(contents))]
    turn_id = memory.turn_id or memory.id
    return [
        Delivery(
            id=delivery_id(turn_id, reply.reply_index, number),
            turn_id=turn_id,
            room_id=room.id,
            memory_id=memory.id,
            platform=room.platform,
            account=room.account,
            target=room.external_id,
            part=number,
            content=content,
            created_at=created_at,
            reply_to=reply.reply_to if number == 0 else "",
            replaces_external_id=sent_ids[number] if number < len(sent_ids) else "",
        )
        for number, content in enumerate(contents)
    ]


def is_removal(part: Delivery) -> bool:
    """Return whether a delivery only deletes a message."""
    content = part.content
    return bool(part.replaces_external_id) and not (content.text or content.attachments or content.choices)


def mark_late(part: Delivery) -> Delivery:
    """Return the delivery so that it gets the notice when it is sent: no adapter is connected yet."""
    return replace(part, content=replace(part.content, metadata={**part.content.metadata, LATE_KEY: True}))


def with_late_notice(part: Delivery, adapter: Adapter) -> Delivery:
    """Return the delivery with the notice that later ones came before it, where the platform has room for that.

    An edit needs none: its message stands where it belongs. Neither does what adds no message.
    """
    content = part.content
    is_action = content.operation is not None and not content.operation.creates_post
    if not adapter.marks_late_parts or part.replaces_external_id or part.draft_id == part.id or is_action:
        return part
    notice = user_text("notices.late")
    marked = replace(content, text=f"{notice}{content.text}")
    if len(adapter.split_content(marked)) > 1:
        return part
    return replace(part, content=marked, late_notice=notice)


def without_references(part: Delivery) -> Delivery:
    """Return the delivery without the ids that it edits and answers: they are unknown in its new room."""
    return replace(part, replaces_external_id="", reply_to="")


def _with_numbered_choices(content: Content, adapter: Adapter) -> Content:
    """Return the content with its choices as numbered lines, where the platform has no buttons."""
    if not content.choices or adapter.shows_choices:
        return content
    lines = [f"{number}. {choice.label}" for number, choice in enumerate(content.choices, 1)]
    if all(choice.label in content.text for choice in content.choices):
        lines = []
    return replace(content, text="\n".join([content.text, *lines]), choices=())


RETRY_BUDGET = timedelta(minutes=15)
RETRY_JITTER = 0.5


@dataclass(frozen=True, slots=True)
class RoomSender:
    """Sends deliveries; stores each attempt before it is made, and its outcome after it."""

    ledger: Ledger
    clock: Clock
    sleep: Sleep

    async def send(self, adapter: Adapter, queue: SendingQueue, delivery: Delivery) -> float:
        """Send a queue's delivery until its outcome is known; `queue.current` is updated with its state.

        Where the outcome of an attempt is unknown, only an `UnclearQueue` goes on with it. Return the seconds
        to wait before that.
        """
        if delivery.state not in OPEN_STATES:  # its outcome was known, but not yet written down, when it was stopped
            await persist_state(self.ledger, delivery)
        is_ambiguous, failures, delay = delivery.state is DeliveryState.ATTEMPTING, 0, 0.0
        if isinstance(queue, UnclearQueue):
            failures, queue.delay, delay = int(queue.delay > 0), 0.0, queue.delay
            await self._rest(queue, delay)
        while delivery.state in OPEN_STATES:
            delivery = await self._begin_attempt(adapter, queue, delivery)
            sendable = await self._as_sent(adapter, queue, delivery)
            was_ambiguous, attempt = is_ambiguous, await attempt_delivery(adapter, sendable, is_ambiguous)
            is_ambiguous = attempt.state is DeliveryState.ATTEMPTING
            failures += 1
            delay = 0.0  # it is done, or the pause was before the platform was asked
            if is_ambiguous:
                delay = retry_delay(failures, attempt.retry_after, jitter=RETRY_JITTER)
            elif attempt.state is DeliveryState.PENDING and not (was_ambiguous and attempt.retry_after is None):
                delay = retry_delay(delivery.attempts, attempt.retry_after)
            delivery = self._with_outcome(queue, delivery, attempt, delay)
            queue.current = delivery
            crash_point("send.pre_record")
            await persist_state(self.ledger, delivery)
            crash_point(f"send.part{delivery.part + 1}")
            if is_ambiguous and not isinstance(queue, UnclearQueue):
                break
            if delivery.state in OPEN_STATES:
                await self._rest(queue, delay)
        return delay

    async def _begin_attempt(self, adapter: Adapter, queue: SendingQueue, delivery: Delivery) -> Delivery:
        queue.attempted_at = now = self.clock()
        begun = queue.take_begun(delivery) if isinstance(queue, RoomQueue) else None
        if begun is not None:
            delivery = begin_attempt(delivery, begun.first_attempt_at or now)  # this is stored already
        else:
            delivery = begin_attempt(delivery, now)
            if not adapter.supports_idempotent_send:
                await persist_state(self.ledger, delivery)
        queue.current = delivery
        return delivery

    async def _as_sent(self, adapter: Adapter, queue: SendingQueue, delivery: Delivery) -> Delivery:
        """Return a delivery as the adapter is given it: marked if others have arrived before it.

        An AI notice has the platform's form, and a reaction the platform's id of the one that it replaces.
        """
        if delivery.kind is DeliveryKind.NOTICE:
            return replace(
                delivery, content=replace(delivery.content, text=adapter.render_notice(delivery.content.text))
            )
        if delivery.kind is DeliveryKind.THREAD:
            return delivery
        if delivery.kind is DeliveryKind.REACTION:
            reference = delivery.replaces_external_id
            earlier = await self.ledger.delivery(reference) if reference else None
            return replace(delivery, replaces_external_id=earlier.external_id if earlier is not None else "")
        if LATE_KEY in delivery.content.metadata:
            return with_late_notice(delivery, adapter)
        if not isinstance(queue, UnclearQueue):
            return delivery
        if queue.is_passed is None:
            try:
                others = await self.ledger.deliveries(is_open=False, room_id=delivery.room_id)
            except StoreUnavailable:
                return delivery
            arrived = (other for other in others if other.state is DeliveryState.SENT)
            queue.is_passed = any(other.seq > delivery.seq for other in arrived)
        return with_late_notice(delivery, adapter) if queue.is_passed else delivery

    def _with_outcome(
        self, queue: SendingQueue, delivery: Delivery, attempt: DeliveryAttempt, delay: float
    ) -> Delivery:
        if (withdrawn := queue.withdrawn) is not None:
            withdrawn = replace(withdrawn, attempts=delivery.attempts, first_attempt_at=delivery.first_attempt_at)
            if attempt.state is not DeliveryState.SENT:
                return withdrawn
            return replace(withdrawn, state=attempt.state, external_id=attempt.external_id, cause="")
        state, cause = attempt.state, attempt.cause
        is_set_aside = state is DeliveryState.ATTEMPTING and not isinstance(queue, UnclearQueue)
        if state in OPEN_STATES and not is_set_aside and self._is_given_up(queue, delivery, delay, attempt.retry_after):
            cause = f"given up after {delivery.attempts} attempts: {cause}"
            state = DeliveryState.FAILED if state is DeliveryState.PENDING else DeliveryState.UNKNOWN
        elif delay > MAX_DELAY_SECONDS and not (cause and delivery.cause == cause):
            logger.warning("part %s waits for %.0f s: %s", delivery.id, delay, cause)
        next_attempt_at = self.clock() + timedelta(seconds=delay) if state in OPEN_STATES else None
        return replace(
            delivery, state=state, external_id=attempt.external_id, cause=cause, next_attempt_at=next_attempt_at
        )

    def _is_given_up(self, queue: SendingQueue, delivery: Delivery, delay: float, retry_after: float | None) -> bool:
        """Return whether a delivery waits no longer: after a day where the platform named the wait.

        Such a wait does not count against the deliveries behind it. One of unknown outcome is late only since
        that is unknown.
        """
        now = self.clock()
        retry_at = now + timedelta(seconds=delay)
        is_unclear = isinstance(queue, UnclearQueue)
        since = max(queue.since, delivery.created_at) if isinstance(queue, UnclearQueue) else delivery.created_at
        if retry_after is not None and has_retry_after(retry_after):
            queue.not_before = retry_at
            is_hopeless = is_unclear and retry_after > MAX_WAIT_SECONDS
            return is_hopeless or retry_at - since > timedelta(seconds=MAX_WAIT_SECONDS)
        return (now if is_unclear else retry_at) - max(since, queue.not_before or since) > RETRY_BUDGET

    async def _rest(self, queue: SendingQueue, seconds: float) -> None:
        queue.resting_until = self.clock() + timedelta(seconds=seconds)
        try:
            await self.sleep(seconds)
        finally:
            queue.resting_until = None


class DraftReplacements(Protocol):
    """What becomes of drafts when the parts that replace them are sent; see `Drafts`."""

    def with_external_id(self, part: Delivery) -> Delivery:
        """Return a part as the replacement of a draft that is known only now to have arrived."""

    def note_finished(self, part: Delivery) -> bool:
        """Record a draft that was sent as other parts are; return False for any other part."""

    async def close_replaced(self, replacement: Delivery) -> None:
        """Close a draft after its replacement was sent."""


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
    then they pass it. `on_held` receives each delivery of which it cannot be found out whether it arrived,
    `on_finished` each that is not attempted again, and whether it completes a message that has arrived whole.
    """

    def __init__(
        self,
        ledger: Ledger,
        drafts: DraftReplacements,
        *,
        on_held: Callable[[Delivery], None],
        on_finished: Callable[[Delivery, bool], None],
        sharing: WorkSharing | None,
        clock: Clock,
        sleep: Sleep,
        shutdown_deadline: ShutdownDeadline,
    ) -> None:
        self._ledger = ledger
        self._drafts = drafts
        self._on_held, self._on_finished = on_held, on_finished
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

    def is_full(self, platform: str, agent_id: UUID) -> bool:
        """Return whether the agent's account on a platform is off and as many deliveries wait for it as may."""
        adapter = self.adapters.get(platform)
        waiting = (item for queue in self._all_queues() for item in queue.deliveries if item.platform == platform)
        if adapter is None or len(list(waiting)) < MAX_WAITING_DELIVERIES:
            return False
        return any(
            connection.snapshot.state is ConnectionState.OFF
            for connection in adapter.connections
            if connection.agent_id in (None, agent_id)
        )

    def wait_of(self, delivery: Delivery) -> DeliveryWait | None:
        """Return what a queued delivery waits for; None for one that is not queued here."""
        queue = self._queues.get(delivery.room_id)
        return queue.wait_of(delivery.id) if queue is not None else None

    def begin_commit(self, deliveries: Sequence[Delivery]) -> tuple[tuple[Delivery, ...], Collection[UUID]]:
        """Return deliveries as they are to be committed, and their rooms, where nothing is begun before `end_commit`.

        The first delivery of each room, if nothing comes before it, is committed as attempted: then it leaves right
        after the commit, without another write before it.
        """
        rooms: set[UUID] = set()
        begun: list[Delivery] = []
        for delivery in deliveries:
            can_begin = delivery.room_id not in rooms and self._can_begin(delivery)
            begun.append(begin_attempt(delivery, self._clock()) if can_begin else delivery)
            rooms.add(delivery.room_id)
        for room_id in rooms:
            self._queues[room_id].open_commits += 1
        return tuple(begun), rooms

    def end_commit(self, room_ids: Collection[UUID]) -> None:
        """Allow sending in these rooms again, once their other commits have ended too."""
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
                    part = queue.current
                    part = self._drafts.with_external_id(part) if part.draft_id else part
                    delay = await self._sender.send(adapter, queue, part)
            except BaseException:  # stopped, or a bug here: the delivery goes on from its stored state
                if queue.withdrawn is None:
                    queue.pending.appendleft(queue.current)
                queue.current = queue.withdrawn = None
                raise
            done, queue.current, queue.withdrawn = queue.current, None, None
            if done.state in OPEN_STATES:
                self._set_aside(room_queue, adapter, done, delay, is_resumed=is_resumed)
                continue
            self._finished_ids.add(done.id)
            if done.state is DeliveryState.CANCELLED:
                await self._cancel_remaining(room_queue, done)
            self._finish(room_queue, done)
            if done.draft_id:
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
        if delivery.state is DeliveryState.SENT:
            room_queue.note_arrived(delivery)
        if delivery.draft_id and self._drafts.note_finished(delivery):
            return
        message_id, is_last = delivery.memory_id, not room_queue.has_message(delivery)
        if delivery.state is not DeliveryState.SENT:
            self._incomplete.add(message_id)
        self._on_finished(delivery, is_last and message_id not in self._incomplete)
        if is_last:
            self._incomplete.discard(message_id)
        if delivery.state is DeliveryState.UNKNOWN:
            self._on_held(delivery)
        elif delivery.state is not DeliveryState.SENT:
            logger.warning("delivery %s is %s: %s", delivery.id, delivery.state, delivery.cause)
