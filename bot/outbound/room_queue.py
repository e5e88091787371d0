"""One room's deliveries: those that wait in order, and those of unknown outcome, which wait aside."""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from bot.domain.ledger import Delivery


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

        That is what edits the same message, what replaces the same draft, and, where the platform
        `links_parts`, another part of the same message.
        """
        return any(
            (other.draft_id and other.draft_id == delivery.draft_id)
            or (other.replaces_external_id and other.replaces_external_id == delivery.replaces_external_id)
            or (self.links_parts and other.memory_id == delivery.memory_id)
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
