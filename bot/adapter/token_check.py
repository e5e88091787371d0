"""`TokenCheck`: whether a platform accepts the token of an account."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from itertools import count

from bot.adapter.connection_status import ConnectionStatus, DisconnectCause
from bot.concurrency.clock import Backoff, TimeSource
from bot.concurrency.tasks import TaskSet

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 15.0, 900.0
PAUSES = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, jitter=0.0)  # between two questions


class TokenCheck:
    """Whether a platform accepts the token of one account; created and closed by its adapter.

    That a call was refused says nothing about the token before the platform's own "who am I" call is refused too:
    `ask` makes that call and returns whether the token is accepted, None where the platform cannot be asked. While
    the token is refused the account is off, which `status` reports to the operator with `problem`, and the platform
    is asked again with growing `pauses` until it accepts the token.
    """

    def __init__(
        self,
        status: ConnectionStatus,
        ask: Callable[[], Awaitable[bool | None]],
        problem: str,
        time_source: TimeSource | None = None,
        pauses: Backoff = PAUSES,
    ) -> None:
        self.problem = problem
        self._status, self._ask, self._pauses = status, ask, pauses
        self._time = time_source or TimeSource()
        self._lock = asyncio.Lock()
        self._accepted = asyncio.Event()
        self._accepted.set()
        self._asks_at = -math.inf  # by the monotonic clock
        self._tasks = TaskSet(f"the token of {status.label} on {status.platform}")

    @property
    def is_refused(self) -> bool:
        """Whether the platform refuses the token."""
        return not self._accepted.is_set()

    @property
    def retry_after(self) -> float:
        """The seconds until the platform has been asked again, at least one."""
        return max(1.0, self._asks_at - self._time.monotonic() + 1.0)

    async def confirm(self) -> bool:
        """Ask the platform after a call was refused, and return whether it refuses the token."""
        async with self._lock:
            if not self.is_refused and await self._ask() is False:
                self.refuse()
        return self.is_refused

    def refuse(self, problem: str = "") -> None:
        """Take the account off, because the "who am I" call was refused, and ask again with growing pauses.

        `problem` is what the operator reads of it, if it is another one than before.
        """
        if not self.is_refused:
            self.problem = problem or self.problem
            self._accepted.clear()
            self._asks_at = self._time.monotonic() + self._pauses.delay(1)
            self._status.stopped(DisconnectCause.REFUSED, self.problem)
            self._tasks.start(self._ask_again())

    async def wait_accepted(self) -> None:
        """Wait until the platform accepts the token."""
        await self._accepted.wait()

    async def close(self) -> None:
        """Ask no more."""
        await self._tasks.cancel()

    async def _ask_again(self) -> None:
        for failures in count(1):
            pause = self._pauses.delay(failures)
            self._asks_at = self._time.monotonic() + pause
            await self._time.sleep(pause)
            if await self._ask():
                self._status.accepted()
                self._accepted.set()
                return
