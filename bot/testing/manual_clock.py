"""A clock that a test moves by hand, and the sleeps of the code that waits by it."""

import asyncio
from datetime import UTC, datetime, timedelta

from bot.concurrency.clock import TimeSource

START = datetime(2026, 3, 1, 9, tzinfo=UTC)


class ManualClock:
    """Wall clock, monotonic clock and sleep that move only when a test advances them."""

    def __init__(self, now: datetime = START) -> None:
        self._now = now
        self._sleepers: list[tuple[datetime, asyncio.Event]] = []
        self._changed = asyncio.Condition()

    @property
    def time_source(self) -> TimeSource:
        """Return this clock in the form in which code under test takes it."""
        return TimeSource(self.now, self.monotonic, self.sleep)

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds since the clock was created."""
        return (self._now - START).total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was advanced by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        sleeper = (self._now + timedelta(seconds=seconds), asyncio.Event())
        async with self._changed:
            self._sleepers.append(sleeper)
            self._changed.notify_all()
        try:
            await sleeper[1].wait()
        finally:
            self._sleepers.remove(sleeper)

    async def wait_for_sleepers(self, count: int = 1) -> float:
        """Wait until `count` tasks sleep by this clock; return the seconds until the first of them wakes."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._pending()) >= count)
        return (min(until for until, _ in self._pending()) - self._now).total_seconds()

    def advance(self, seconds: float) -> None:
        """Move the clock forward and wake the sleepers whose time has come."""
        self._now += timedelta(seconds=seconds)
        for until, event in self._sleepers:
            if until <= self._now:
                event.set()

    def _pending(self) -> list[tuple[datetime, asyncio.Event]]:
        return [sleeper for sleeper in self._sleepers if not sleeper[1].is_set()]
