"""A clock that moves only when it is told to, and the pauses of whoever waits by it."""

import asyncio
from datetime import UTC, datetime, timedelta

BEGINNING = datetime(2026, 3, 1, 9, tzinfo=UTC)


class FastClock:
    """Tells the time, and lets a month pass in a moment; give `now` as clock and `pause` as sleep."""

    def __init__(self, now: datetime = BEGINNING) -> None:
        self._now = now
        self._waiting: list[tuple[datetime, asyncio.Event]] = []
        self._changed = asyncio.Condition()

    def now(self) -> datetime:
        """Tell the time."""
        return self._now

    async def pause(self, seconds: float) -> None:
        """Wait until that much time has passed here."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter = (self._now + timedelta(seconds=seconds), asyncio.Event())
        async with self._changed:
            self._waiting.append(waiter)
            self._changed.notify_all()
        try:
            await waiter[1].wait()
        finally:
            self._waiting.remove(waiter)

    async def until_resting(self, count: int = 1) -> float:
        """Wait until so many wait by this clock; gives back the seconds until the first of them goes on."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._asleep) >= count)
        return (min(until for until, _ in self._asleep) - self._now).total_seconds()

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake whoever has waited long enough."""
        self._now += timedelta(seconds=seconds)
        for until, event in self._waiting:
            if until <= self._now:
                event.set()

    @property
    def _asleep(self) -> list[tuple[datetime, asyncio.Event]]:
        return [one for one in self._waiting if not one[1].is_set()]
