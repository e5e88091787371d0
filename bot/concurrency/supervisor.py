"""Services and adapters at work: each in a task of its own, and tried again where it does not start."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from bot.concurrency.clock import ShutdownDeadline
from bot.concurrency.isolation import CANCEL_GRACE_SECONDS, Failure, force_stop, to_failure
from bot.errors import ConfigError

H = TypeVar("H", bound=AbstractAsyncContextManager[Any])
logger = logging.getLogger(__name__)
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 1.0, 300.0


class SupervisedContext(Generic[H]):
    """One stay in something: entered and left by the same task, as task groups in it want it.

    Whatever it does at either end, whoever waits for it waits no longer than it wants to.
    """

    def __init__(self, factory: Callable[[], H], *, label: str) -> None:
        self._factory = factory
        self._label = label
        self._entered: asyncio.Future[H | Failure] = asyncio.get_running_loop().create_future()
        self._stop_requested = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=label)
        self._exit_failure = Failure("it has ended")
        self._is_force_stopped = False

    async def start(self, timeout: float | None) -> H | Failure:
        """Wait until it is entered; give it up after `deadline` seconds, if any."""
        try:
            done, _ = await asyncio.wait({self._entered}, timeout=timeout)
        except asyncio.CancelledError:
            await self._force_stop(CANCEL_GRACE_SECONDS)
            raise
        if not done:
            await self._force_stop(CANCEL_GRACE_SECONDS)
            return Failure(f"no answer within {timeout:g} s")
        return self._entered.result()

    async def wait_closed(self) -> Failure:
        """Wait until it is left, and say why."""
        await asyncio.wait({self._task})
        return self._exit_failure

    async def stop(self, timeout: float, grace: float) -> None:
        """Leave it: for so many seconds it may take its time, then it is stopped."""
        self._stop_requested.set()
        try:
            _, pending = await asyncio.wait({self._task}, timeout=timeout)
        except asyncio.CancelledError:
            await self._force_stop(grace)
            raise
        if pending:
            logger.warning("stopping %s failed: it takes longer than %g s", self._label, timeout)
            await self._force_stop(grace)

    async def _force_stop(self, grace: float) -> None:
        self._is_force_stopped = True
        self._stop_requested.set()
        self._task.cancel()
        await force_stop(self._task, label=self._label, grace=grace)

    async def _run(self) -> None:
        try:
            context = self._factory()
            async with context:
                self._entered.set_result(context)
                await self._stop_requested.wait()
        except BaseException as error:  # it may raise anything, SystemExit included; the process lives on
            self._exit_failure = to_failure(error)
            if not self._entered.done():
                self._entered.set_result(self._exit_failure)
            elif self._stop_requested.is_set() and not self._is_force_stopped:
                logger.warning(
                    "stopping %s failed: %s", self._label, self._exit_failure.cause, exc_info=error
                )


class Supervisor(Generic[H]):
    """Keeps something up: what does not start, or ends of its own accord, is tried again, later and later.

    What has been up for longer than it was waited for is tried again soon. Only what a person has to mend is
    left. `goes_up` is told what has started, `goes_down` why it is not
    there (any more).
    """

    def __init__(
        self,
        factory: Callable[[], H],
        *,
        label: str,
        on_up: Callable[[H], Awaitable[None]],
        on_down: Callable[[str], None],
        shutdown_deadline: ShutdownDeadline,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._factory = factory
        self._label = label
        self._on_up = on_up
        self._on_down = on_down
        self._shutdown_deadline = shutdown_deadline
        self._clock = clock
        self._context: SupervisedContext[H] | None = None  # the one under way, else the last
        self._task: asyncio.Task[None] | None = None

    async def start(self, timeout: float | None) -> Failure | None:
        """Try for the first time, and give why it has failed; from then on it is kept up."""
        result = await self._start_context(timeout, FIRST_DELAY_SECONDS)
        self._task = asyncio.get_running_loop().create_task(self._run(result, timeout))
        return result if isinstance(result, Failure) else None

    async def stop(self, timeout: float) -> None:
        """Keep it up no more, and stop it within so many seconds, or as many as patience leaves."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=self._shutdown_deadline.remaining(CANCEL_GRACE_SECONDS))
        if self._context is not None:
            await self._context.stop(
                self._shutdown_deadline.remaining(timeout),
                self._shutdown_deadline.remaining(CANCEL_GRACE_SECONDS),
            )

    async def _run(self, result: SupervisedContext[H] | Failure, timeout: float | None) -> None:
        delay = FIRST_DELAY_SECONDS
        while True:
            if isinstance(result, SupervisedContext):
                entered_at = self._clock()
                result = await result.wait_closed()
                delay = FIRST_DELAY_SECONDS if self._clock() - entered_at > delay else delay
                self._report_down(result, delay)
            if _is_permanent(result):
                return
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_DELAY_SECONDS)
            result = await self._start_context(timeout, delay)

    async def _start_context(self, timeout: float | None, delay: float) -> SupervisedContext[H] | Failure:
        self._context = SupervisedContext(self._factory, label=self._label)
        entered = await self._context.start(timeout)
        if isinstance(entered, Failure):
            self._report_down(entered, delay)
            return entered
        await self._on_up(entered)
        return self._context

    def _report_down(self, failure: Failure, delay: float) -> None:
        retry_note = "" if _is_permanent(failure) else f"; it is tried again in {delay:g} s"
        logger.debug("%s is not there", self._label, exc_info=failure.error)
        self._on_down(f"{failure.cause}{retry_note}")


def _is_permanent(failure: Failure) -> bool:
    """Tell whether another try is of no use: a person has to mend what is wrong."""
    return isinstance(failure.error, ConfigError)
