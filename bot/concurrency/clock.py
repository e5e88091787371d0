"""Time: clocks, sleep, back-off delays and the deadline of a shutdown."""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

Clock = Callable[[], datetime]
Sleep = Callable[[float], Awaitable[None]]
MIN_REMAINING_SECONDS = 0.05

system_clock: Clock = partial(datetime.now, UTC)
"""Return the current time, aware, in UTC."""


def monotonic_clock(clock: Clock) -> Callable[[], float]:
    """Return a clock in seconds that follows `clock`; for the system's it is the monotonic one, which is never set."""
    return time.monotonic if clock is system_clock else lambda: clock().timestamp()


@dataclass(frozen=True, slots=True)
class TimeSource:
    """Wall clock, monotonic clock (seconds) and sleep, so that a test can replace all three."""

    now: Clock = system_clock
    monotonic: Callable[[], float] = time.monotonic
    sleep: Sleep = asyncio.sleep


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential delays with jitter, in seconds: `first`, doubled after each failure, at most `maximum`.

    Each delay is shortened by a random part of at most `jitter` (0 to 1).
    """

    first: float
    maximum: float
    jitter: float = 0.5
    chance: Callable[[], float] = random.random

    def delay(self, failures: int, *, retry_after: float = 0.0) -> float:
        """Return the seconds to wait after `failures` (1 or more) in a row, at least `retry_after`."""
        full = min(self.maximum, self.first * 2.0 ** min(failures - 1, 32))
        return max(full * (1.0 - self.jitter * self.chance()), retry_after)


class ShutdownDeadline:
    """The time by which a shutdown must end: unlimited until `start` is called."""

    def __init__(self) -> None:
        self._end = math.inf

    def start(self, seconds: float) -> None:
        """Set the deadline to `seconds` from now; an earlier deadline stays."""
        self._end = min(self._end, time.monotonic() + seconds)

    def remaining(self, max_seconds: float) -> float:
        """Return the seconds left, at most `max_seconds`, and at least 0.05 so that quick work can end."""
        return max(MIN_REMAINING_SECONDS, min(max_seconds, self._end - time.monotonic()))


async def every(seconds: float, *, until: asyncio.Event) -> AsyncIterator[None]:
    """Yield every `seconds`, and a last time after `until` is set."""
    is_last = False
    while not is_last:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await until.wait()
        is_last = until.is_set()
        yield
