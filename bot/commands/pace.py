"""How fast one person may give commands."""

from collections import Counter
from datetime import timedelta
from uuid import UUID

from bot.concurrency.clock import Clock
from bot.domain.inbound import Shown

MOST, WITHIN = 20, timedelta(minutes=1)
SLOW_DOWN = "That is a lot of commands: slow down, please. I take no more of you for a minute."


class Pace:
    """Counts commands by person, anew every minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts = Counter[UUID]()
        self._ends_at = clock()

    def refusal(self, person_id: UUID) -> Shown | None:
        """Count a command; beyond the bound the person is told so, and after that nothing."""
        if (now := self._clock()) >= self._ends_at:
            self._counts.clear()
            self._ends_at = now + WITHIN
        self._counts[person_id] += 1
        if self._counts[person_id] <= MOST:
            return None
        return Shown(SLOW_DOWN if self._counts[person_id] == MOST + 1 else "")
