"""How often a new session may be begun: Discord resets the token of a bot that does so too often."""

from collections import deque
from collections.abc import Callable

MOST_AN_HOUR, MOST_A_DAY = 50, 500
HOUR, DAY, REST = 3600.0, 86_400.0, 1800.0
RESERVE = 50  # of the thousand a day; a person may want to start the bot as well


class IdentifyBudget:
    """Says how long to wait before the next session is begun: after too many in a row, half an hour each."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun: deque[float] = deque(maxlen=MOST_A_DAY)

    def wait(self, left: int | None = None, reset_after: float = 0.0) -> float:
        """Give the seconds to wait; `left` and `reset_after` are Discord's own count, where it is known."""
        if left is not None and left <= RESERVE:
            return max(reset_after, 1.0)
        now = self._clock()
        if self._began(MOST_AN_HOUR, now - HOUR) or self._began(MOST_A_DAY, now - DAY):
            return max(0.0, self._begun[-1] + REST - now)
        return 0.0

    def spend(self) -> None:
        """Count a session."""
        self._begun.append(self._clock())

    def _began(self, count: int, since: float) -> bool:
        """Tell whether so many were begun since then."""
        return len(self._begun) >= count and self._begun[-count] > since
