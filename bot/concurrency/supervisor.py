"""Run services and adapters, each in its own task, and restart them with growing delays."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from bot.concurrency.clock import ShutdownDeadline
from bot.concurrency.tasks import CANCEL_GRACE_SECONDS, Failure, force_stop, to_failure
from bot.errors import ConfigError

H = TypeVar("H", bound=AbstractAsyncContextManager[Any])
logger = logging.getLogger(__name__)
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 1.0, 300.0


class SupervisedContext(Generic[H]):
    """A context manager that is entered and left by one task of its own, as task groups inside it require.

    Callers never wait longer than their timeouts, whatever the context manager does.
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
        """Wait until the context is entered; cancel it and return a Failure after `timeout` seconds."""
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
        """Wait until the context is left, and return why."""
        await asyncio.wait({self._task})
        return self._exit_failure

    async def stop(self, timeout: float, grace: float) -> None:
        """Leave the context; after `timeout` seconds cancel it, and after `grace` more force it to stop."""
        self._stop_requested.set()
        try:
            _, pending = await asyncio.wait({self._task}, timeout=timeout)
        except asyncio.CancelledError:
            await self._force_stop(grace)
            raise
        if pending:
            logger.warning("stopping %s failed: it did not stop within %g s", self._label, timeout)
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
        except BaseException as error:  # plugin code may raise anything, SystemExit included
            self._exit_failure = to_failure(error)
            if not self._entered.done():
                self._entered.set_result(self._exit_failure)
            elif self._stop_requested.is_set() and not self._is_force_stopped:
                logger.warning("stopping %s failed: %s", self._label, self._exit_failure.cause, exc_info=error)


class Supervisor(Generic[H]):
    """Supervises one context manager: starts it again, with doubling delays, when it fails or ends.

    A run that was longer than the last delay resets the delay. A ConfigError is final, because only a person
    can fix it. `on_up` is called with each started context, `on_down` with the cause when it is not running.
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
        self._context: SupervisedContext[H] | None = None  # the current or the last one
        self._task: asyncio.Task[None] | None = None

    async def start(self, timeout: float | None) -> Failure | None:
        """Start for the first time, return the Failure if there is one, and supervise from then on."""
        result = await self._start_context(timeout, FIRST_DELAY_SECONDS)
        self._task = asyncio.get_running_loop().create_task(self._run(result, timeout))
        return result if isinstance(result, Failure) else None

    async def stop(self, timeout: float) -> None:
        """Stop supervising, and stop the context within `timeout` seconds or the shutdown deadline."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=self._shutdown_deadline.remaining(CANCEL_GRACE_SECONDS))
        if self._context is not None:
            await self._context.stop(
                self._shutdown_deadline.remaining(timeout), self._shutdown_deadline.remaining(CANCEL_GRACE_SECONDS)
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
        retry_note = "" if _is_permanent(failure) else f"; retry in {delay:g} s"
        logger.debug("%s is not running", self._label, exc_info=failure.error)
        self._on_down(f"{failure.cause}{retry_note}")


def _is_permanent(failure: Failure) -> bool:
    """Return whether another try is useless because a person must fix the configuration."""
    return isinstance(failure.error, ConfigError)
