"""One room's queue and the sending of its head with retries."""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from bot.adapter.adapter import Adapter
from bot.concurrency.clock import Clock
from bot.concurrency.crash_points import reached
from bot.domain.ledger import Delivery, DeliveryState
from bot.outbound.delivery_attempt import (
    LONGEST_PAUSE,
    LONGEST_WAIT,
    OPEN,
    asks_to_wait,
    attempt,
    pause_after,
    written_down,
)
from bot.outbound.draft import Sleep
from bot.store.ledger import Ledger

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Lane:
    """One room's parts: those that wait, in order, and the one that is being sent.

    While commits are under way nothing is begun: one of them may bring what comes before it. Nothing could
    leave before `open_from`, where that is known: since then at the earliest a part is late.
    """

    waiting: deque[Delivery] = field(default_factory=deque)
    sending: Delivery | None = None
    sender: asyncio.Task[None] | None = None
    commits: int = 0
    open_from: datetime | None = None

    def is_open(self, at: datetime) -> bool:
        """Tell whether the platform has asked for no wait beyond that moment."""
        return self.open_from is None or self.open_from <= at

    def put(self, delivery: Delivery) -> None:
        """Queue a part at its place in the room's order; one that is queued already stays as it is."""
        known = (*self.waiting, self.sending) if self.sending else self.waiting
        if any(one.id == delivery.id for one in known):
            return
        after = sum(one.seq <= delivery.seq for one in self.waiting)
        self.waiting.insert(after, delivery)

    def remove(self, delivery_id: str) -> bool:
        """Take a part out; tells whether others of its message still wait."""
        left = [one for one in self.waiting if one.id != delivery_id]
        gone = [one for one in self.waiting if one.id == delivery_id]
        self.waiting = deque(left)
        return any(one.memory_id == out.memory_id for out in gone for one in left)


RETRY_BUDGET = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends parts, and writes down each attempt before its bytes leave, and its outcome after."""

    ledger: Ledger
    clock: Clock
    sleep: Sleep

    async def send(self, adapter: Adapter, lane: Lane, delivery: Delivery) -> None:
        """Send a part of a lane; as what it then is, `lane.sending` has it."""
        is_unclear = delivery.state is DeliveryState.ATTEMPTING
        if delivery.state not in OPEN:  # its outcome was known, but not yet written down, when it was stopped
            await written_down(self.ledger, delivery)
        while delivery.state in OPEN:
            delivery = replace(
                delivery,
                state=DeliveryState.ATTEMPTING,
                attempts=delivery.attempts + 1,
                first_attempt_at=delivery.first_attempt_at or self.clock(),
            )
            if not adapter.repeats_harmlessly:
                await written_down(self.ledger, delivery)
            lane.sending = delivery
            found = await attempt(adapter, delivery, is_unclear)
            if found.state is DeliveryState.UNKNOWN and not is_unclear:
                is_unclear = True  # it is asked for before anything is tried again
                continue
            is_unclear = False
            pause = pause_after(delivery.attempts, found.retry_after)
            state, cause = found.state, found.cause
            if state is DeliveryState.PENDING and self._is_given_up(lane, delivery, pause, found.retry_after):
                state, cause = DeliveryState.FAILED, f"given up after {delivery.attempts} attempts: {cause}"
            elif pause > LONGEST_PAUSE and cause != delivery.cause:
                logger.warning("part %s waits for %.0f s: %s", delivery.id, pause, cause)
            delivery = replace(delivery, state=state, external_id=found.external_id, cause=cause)
            lane.sending = delivery
            reached("send.pre_record")
            await written_down(self.ledger, delivery)
            reached(f"send.part{delivery.part + 1}")
            if state is DeliveryState.PENDING:
                await self.sleep(pause)

    def _is_given_up(self, lane: Lane, delivery: Delivery, pause: float, asked: float | None) -> bool:
        """Tell whether a part waits no longer: not for a platform's own word, but for a day at most.

        Such a wait counts against nothing that stands behind it in the room.
        """
        again = self.clock() + timedelta(seconds=pause)
        if asks_to_wait(asked):
            lane.open_from = again
            return again - delivery.created_at > timedelta(seconds=LONGEST_WAIT)
        since = max(delivery.created_at, lane.open_from or delivery.created_at)
        return again - since > RETRY_BUDGET
