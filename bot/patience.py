"""How long a stop may still take: one deadline, shared by everything that has to end."""

import math
import time

LEAST = 0.05


class Patience:
    """As long as it likes, until somebody says when it must be over."""

    def __init__(self) -> None:
        self._end = math.inf

    def end_in(self, seconds: float) -> None:
        """Say in how many seconds all must have ended; an earlier end that was said stands."""
        self._end = min(self._end, time.monotonic() + seconds)

    def left(self, most: float) -> float:
        """Give the seconds that are left, at most `most`, and a moment at least: what is quick ends well."""
        return max(LEAST, min(most, self._end - time.monotonic()))
