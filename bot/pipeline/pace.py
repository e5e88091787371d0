"""How often the same thing may be done again."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from uuid import UUID

MOST_NOTED = 1000


class Pace:
    """Lets the work on one message begin every so many seconds, and never counts the first time."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._begun: dict[UUID, float] = {}

    def note(self, message_id: UUID) -> None:
        """Note that the work on a message begins now."""
        self._begun.pop(message_id, None)
        self._begun[message_id] = self._clock()
        if len(self._begun) > MOST_NOTED:
            del self._begun[next(iter(self._begun))]

    async def wait(self, message_id: UUID) -> None:
        """Wait until the work on a message may begin again."""
        begun = self._begun.get(message_id)
        if begun is not None and (pause := begun + self._seconds - self._clock()) > 0:
            await self._sleep(pause)
