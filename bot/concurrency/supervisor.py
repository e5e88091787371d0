"""Services and adapters at work: each in a task of its own, and tried again where it does not start."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from bot.concurrency.clock import Patience
from bot.concurrency.isolation import GRACE, Failure, failure_of, let_go
from bot.errors import ConfigError

H = TypeVar("H", bound=AbstractAsyncContextManager[Any])
logger = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0


class Stay(Generic[H]):
    """One stay in something: entered and left by the same task, as task groups in it want it.

    Whatever it does at either end, whoever waits for it waits no longer than it wants to.
    """

    def __init__(self, make: Callable[[], H], *, what: str) -> None:
        self._make = make
        self._what = what
        self._entered: asyncio.Future[H | Failure] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=what)
        self._end = Failure("it has ended")
        self._is_given_up = False

    async def begin(self, deadline: float | None) -> H | Failure:
        """Wait until it is entered; give it up after `deadline` seconds, if any."""
        try:
            entered, _ = await asyncio.wait({self._entered}, timeout=deadline)
        except asyncio.CancelledError:
            await self._give_up(GRACE)
            raise
        if not entered:
            await self._give_up(GRACE)
            return Failure(f"no answer within {deadline:g} s")
        return self._entered.result()

    async def over(self) -> Failure:
        """Wait until it is left, and say why."""
        await asyncio.wait({self._task})
        return self._end

    async def end(self, deadline: float, grace: float) -> None:
        """Leave it: for so many seconds it may take its time, then it is stopped."""
        self._leave.set()
        try:
            _, late = await asyncio.wait({self._task}, timeout=deadline)
        except asyncio.CancelledError:
            await self._give_up(grace)
            raise
        if late:
            logger.warning("stopping %s failed: it takes longer than %g s", self._what, deadline)
            await self._give_up(grace)

    async def _give_up(self, grace: float) -> None:
        self._is_given_up = True
        self._leave.set()
        self._task.cancel()
        await let_go(self._task, what=self._what, grace=grace)

    async def _run(self) -> None:
        try:
            held = self._make()
            async with held:
                self._entered.set_result(held)
                await self._leave.wait()
        except BaseException as error:  # it may raise anything, SystemExit included; the process lives on
            self._end = failure_of(error)
            if not self._entered.done():
                self._entered.set_result(self._end)
            elif self._leave.is_set() and not self._is_given_up:
                logger.warning("stopping %s failed: %s", self._what, self._end.cause, exc_info=error)


class Upkeep(Generic[H]):
    """Keeps something up: what does not start, or ends of its own accord, is tried again, later and later.

    What has been up for longer than it was waited for is tried again soon. Only what a person has to mend is
    left. `goes_up` is told what has started, `goes_down` why it is not
    there (any more).
    """

    def __init__(
        self,
        make: Callable[[], H],
        *,
        what: str,
        goes_up: Callable[[H], Awaitable[None]],
        goes_down: Callable[[str], None],
        patience: Patience,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._what = what
        self._goes_up = goes_up
        self._goes_down = goes_down
        self._patience = patience
        self._clock = clock
        self._stay: Stay[H] | None = None  # the one under way, else the last
        self._keeping: asyncio.Task[None] | None = None

    async def begin(self, deadline: float | None) -> Failure | None:
        """Try for the first time, and give why it has failed; from then on it is kept up."""
        tried = await self._try(deadline, FIRST_PAUSE)
        self._keeping = asyncio.get_running_loop().create_task(self._keep(tried, deadline))
        return tried if isinstance(tried, Failure) else None

    async def end(self, deadline: float) -> None:
        """Keep it up no more, and stop it within so many seconds, or as many as patience leaves."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping}, timeout=self._patience.left(GRACE))
        if self._stay is not None:
            await self._stay.end(self._patience.left(deadline), self._patience.left(GRACE))

    async def _keep(self, tried: Stay[H] | Failure, deadline: float | None) -> None:
        pause = FIRST_PAUSE
        while True:
            if isinstance(tried, Stay):
                entered_at = self._clock()
                tried = await tried.over()
                pause = FIRST_PAUSE if self._clock() - entered_at > pause else pause
                self._is_down(tried, pause)
            if _is_final(tried):
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            tried = await self._try(deadline, pause)

    async def _try(self, deadline: float | None, pause: float) -> Stay[H] | Failure:
        self._stay = Stay(self._make, what=self._what)
        given = await self._stay.begin(deadline)
        if isinstance(given, Failure):
            self._is_down(given, pause)
            return given
        await self._goes_up(given)
        return self._stay

    def _is_down(self, failure: Failure, pause: float) -> None:
        again = "" if _is_final(failure) else f"; it is tried again in {pause:g} s"
        logger.debug("%s is not there", self._what, exc_info=failure.error)
        self._goes_down(f"{failure.cause}{again}")


def _is_final(failure: Failure) -> bool:
    """Tell whether another try is of no use: a person has to mend what is wrong."""
    return isinstance(failure.error, ConfigError)
