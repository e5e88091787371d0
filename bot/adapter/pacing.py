"""How often an adapter sends: `SlidingWindow` limits requests, `TypingIndicator` repeats one while the agent works."""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from bot.concurrency.clock import Sleep
from bot.concurrency.tasks import TaskSet

C = TypeVar("C", bound=Hashable)


@dataclass(slots=True)
class SlidingWindow:
    """Allows `limit` requests in any period of so many seconds; `times` are those of the sent and the reserved ones."""

    limit: int
    seconds: float
    times: list[float] = field(default_factory=list)
    blocked_until: float = 0.0

    def find_time(self, earliest: float) -> float:
        """Return the first time from `earliest` on at which one more request may be sent."""
        time = max(earliest, self.blocked_until)
        while len(near := self._find_near(time)) >= self.limit:
            time = near[len(near) - self.limit] + self.seconds
        return time

    def count_spare(self, now: float) -> int:
        """Return how many requests could be sent at once."""
        return self.limit - len(self._find_near(now))

    def reserve(self, time: float, now: float) -> None:
        """Count a request that is sent at a time, and forget those that are too old to matter."""
        del self.times[: bisect_right(self.times, now - self.seconds)]
        insort(self.times, time)

    def block(self, until: float) -> None:
        """Allow nothing before a time; an earlier block that ends later stays."""
        self.blocked_until = max(self.blocked_until, until)

    def _find_near(self, time: float) -> list[float]:
        """Return the times that may lie in one period with a time."""
        first = bisect_right(self.times, time, key=lambda at: at + self.seconds)
        return self.times[first : bisect_left(self.times, time + self.seconds)]


class TypingIndicator(Generic[C]):
    """Calls `send` every `interval` seconds for each channel in which the agent is at work, first after `delay`.

    It ends in a channel where `send` returns False, and with `stop`. A call that has begun is not cancelled by the end
    of the work: its connection is kept.
    """

    def __init__(
        self, send: Callable[[C], Coroutine[Any, Any, bool]], sleep: Sleep, *, interval: float, delay: float = 0.0
    ) -> None:
        self._send, self._sleep = send, sleep
        self._interval, self._delay = interval, delay
        self._tasks: dict[C, asyncio.Task[None]] = {}
        self._requests = TaskSet("a typing request")

    def show(self, channel: C, active: bool) -> None:
        """Start or end the indicator in a channel."""
        if (task := self._tasks.pop(channel, None)) is not None:
            task.cancel()
        if active:
            self._tasks[channel] = asyncio.get_running_loop().create_task(self._repeat(channel))

    async def stop(self) -> None:
        """End the indicator everywhere."""
        for channel in list(self._tasks):
            self.show(channel, active=False)
        await self._requests.cancel()

    async def _repeat(self, channel: C) -> None:
        if self._delay:
            await self._sleep(self._delay)
        while await asyncio.shield(self._requests.start(self._send(channel))):
            await self._sleep(self._interval)
