"""`Clock`, `Sleep`, `TimeSource` (wall, monotonic, sleep), `ShutdownDeadline`."""

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Tell the present moment, aware, in UTC."""
    return datetime.now(UTC)


MIN_REMAINING_SECONDS = 0.05


class ShutdownDeadline:
    """As long as it likes, until somebody says when it must be over."""

    def __init__(self) -> None:
        self._end = math.inf

    def start(self, seconds: float) -> None:
        """Say in how many seconds all must have ended; an earlier end that was said stands."""
        self._end = min(self._end, time.monotonic() + seconds)

    def remaining(self, max_seconds: float) -> float:
        """Give the seconds that are left, at most `most`, and a moment at least: what is quick ends well."""
        return max(MIN_REMAINING_SECONDS, min(max_seconds, self._end - time.monotonic()))
