"""One room's queue, and the sending of its first delivery with retries."""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from bot.adapter.adapter import Adapter
from bot.concurrency.clock import Clock, Sleep
from bot.concurrency.crash_points import crash_point
from bot.domain.ledger import Delivery, DeliveryState
from bot.outbound.delivery_attempt import (
    MAX_DELAY_SECONDS,
    MAX_WAIT_SECONDS,
    OPEN_STATES,
    attempt_delivery,
    has_retry_after,
    persist_state,
    retry_delay,
)
from bot.store.ledger import Ledger

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class RoomQueue:
    """One room's deliveries: those that wait, in order, and the one that is being sent.

    While commits are open nothing is started: one of them may bring what comes before it. `not_before` is the
    time before which nothing could be sent, where that is known: a delivery is late only after it.
    """

    pending: deque[Delivery] = field(default_factory=deque)
    current: Delivery | None = None
    task: asyncio.Task[None] | None = None
    open_commits: int = 0
    not_before: datetime | None = None

    def is_available_by(self, timestamp: datetime) -> bool:
        """Return whether the platform has asked for no wait beyond that time."""
        return self.not_before is None or self.not_before <= timestamp

    def add(self, delivery: Delivery) -> None:
        """Insert a delivery at its place in the room's order; one that is queued already stays as it is."""
        queued = (*self.pending, self.current) if self.current else self.pending
        if any(other.id == delivery.id for other in queued):
            return
        position = sum(other.seq <= delivery.seq for other in self.pending)
        self.pending.insert(position, delivery)

    def remove(self, delivery_id: str) -> bool:
        """Remove a delivery; return whether others of its message still wait."""
        remaining = [delivery for delivery in self.pending if delivery.id != delivery_id]
        removed = [delivery for delivery in self.pending if delivery.id == delivery_id]
        self.pending = deque(remaining)
        return any(
            delivery.memory_id == removed_delivery.memory_id for removed_delivery in removed for delivery in remaining
        )


RETRY_BUDGET = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class RoomSender:
    """Sends deliveries; stores each attempt before it is made, and its outcome after it."""

    ledger: Ledger
    clock: Clock
    sleep: Sleep

    async def send(self, adapter: Adapter, queue: RoomQueue, delivery: Delivery) -> None:
        """Send a queue's delivery; `queue.current` is updated with its state."""
        is_ambiguous = delivery.state is DeliveryState.ATTEMPTING
        if delivery.state not in OPEN_STATES:  # its outcome was known, but not yet written down, when it was stopped
            await persist_state(self.ledger, delivery)
        while delivery.state in OPEN_STATES:
            delivery = replace(
                delivery,
                state=DeliveryState.ATTEMPTING,
                attempts=delivery.attempts + 1,
                first_attempt_at=delivery.first_attempt_at or self.clock(),
            )
            if not adapter.supports_idempotent_send:
                await persist_state(self.ledger, delivery)
            queue.current = delivery
            attempt = await attempt_delivery(adapter, delivery, is_ambiguous)
            if attempt.state is DeliveryState.UNKNOWN and not is_ambiguous:
                is_ambiguous = True  # it is asked for before anything is tried again
                continue
            is_ambiguous = False
            delay = retry_delay(delivery.attempts, attempt.retry_after)
            state, cause = attempt.state, attempt.cause
            if state is DeliveryState.PENDING and self._is_given_up(queue, delivery, delay, attempt.retry_after):
                state, cause = DeliveryState.FAILED, f"given up after {delivery.attempts} attempts: {cause}"
            elif delay > MAX_DELAY_SECONDS and cause != delivery.cause:
                logger.warning("part %s waits for %.0f s: %s", delivery.id, delay, cause)
            delivery = replace(delivery, state=state, external_id=attempt.external_id, cause=cause)
            queue.current = delivery
            crash_point("send.pre_record")
            await persist_state(self.ledger, delivery)
            crash_point(f"send.part{delivery.part + 1}")
            if state is DeliveryState.PENDING:
                await self.sleep(delay)

    def _is_given_up(self, queue: RoomQueue, delivery: Delivery, delay: float, retry_after: float | None) -> bool:
        """Return whether a delivery waits no longer: after a day where the platform named the wait.

        Such a wait does not count against the deliveries behind it.
        """
        retry_at = self.clock() + timedelta(seconds=delay)
        if has_retry_after(retry_after):
            queue.not_before = retry_at
            return retry_at - delivery.created_at > timedelta(seconds=MAX_WAIT_SECONDS)
        since = max(delivery.created_at, queue.not_before or delivery.created_at)
        return retry_at - since > RETRY_BUDGET
