"""One part on its way out: tried again until it is sent, surely is not, or nobody can know."""

import logging
from dataclasses import dataclass, replace
from datetime import timedelta

from bot.concurrency.clock import Clock
from bot.concurrency.crash_points import reached
from bot.domain.ledger import Delivery, DeliveryState
from bot.platform.adapter import Adapter
from bot.platform.attempt import LONGEST_PAUSE, LONGEST_WAIT, OPEN, asks_to_wait, attempt, pause_after
from bot.platform.draft import Sleep
from bot.platform.lane import Lane
from bot.platform.writing_down import written_down
from bot.store.ledger import Ledger

logger = logging.getLogger(__name__)
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
