"""Sending one delivery of a queue: attempts, pauses, and when it is given up."""

import logging
from dataclasses import dataclass, replace
from datetime import timedelta

from bot.adapter.adapter import Adapter
from bot.concurrency.clock import Clock, Sleep
from bot.concurrency.crash_points import crash_point
from bot.domain.ledger import Delivery, DeliveryState
from bot.errors import StoreUnavailable
from bot.outbound.delivery_attempt import (
    MAX_DELAY_SECONDS,
    MAX_WAIT_SECONDS,
    OPEN_STATES,
    DeliveryAttempt,
    attempt_delivery,
    begin_attempt,
    has_retry_after,
    persist_state,
    retry_delay,
)
from bot.outbound.message_parts import with_late_notice
from bot.outbound.room_queue import RoomQueue, SendingQueue, UnclearQueue
from bot.store.ledger import Ledger

logger = logging.getLogger(__name__)
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
            if is_ambiguous:
                delay = retry_delay(failures, attempt.retry_after, jitter=RETRY_JITTER)
            elif was_ambiguous and attempt.retry_after is None:
                delay = 0.0  # the pause was before the platform was asked
            else:
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
        """Return a delivery as the adapter is given it: with a notice if others have arrived before it."""
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
        elif delay > MAX_DELAY_SECONDS and cause != delivery.cause:
            logger.warning("part %s waits for %.0f s: %s", delivery.id, delay, cause)
        return replace(delivery, state=state, external_id=attempt.external_id, cause=cause)

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
