"""The one place where plugin code meets ours: what it raises, or how long it takes, stays with it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)
CANCEL_GRACE_SECONDS = 2.0  # for whoever is told to stop
BUNDLED_PREFIX = "plugins."  # the package of the plugins that are part of this distribution


@dataclass(frozen=True, slots=True)
class Failure:
    """Plugin code that gave no result: the cause in one line, and what was raised if anything was."""

    cause: str
    error: BaseException | None = field(default=None, compare=False, repr=False)


class CancellationScope:
    """Tells a cancellation of the current task that comes from outside from one that its own code raised."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._initial_count = self._count()

    @property
    def requested(self) -> bool:
        """Whether somebody has asked this task to stop since this was made."""
        return self._count() > self._initial_count

    def _count(self) -> int:
        return self._task.cancelling() if self._task is not None else 0


async def call_isolated(
    call: Callable[[], Awaitable[T] | T], *, label: str, timeout: float | None
) -> T | Failure:
    """Call plugin code that may be a plain function or an asynchronous one; a plain one costs no waiting."""
    value = call_plugin(call, label=label)
    if isinstance(value, bool) or not isinstance(value, Awaitable):
        return value
    return await run_isolated(value, label=label, timeout=timeout)


def call_plugin(call: Callable[[], Awaitable[T] | T], *, label: str) -> Awaitable[T] | T | Failure:
    """Call plugin code; gives what a plain function gives, or what is still to be awaited of an async one."""
    try:
        return call()
    except BaseException as error:  # as below
        return log_failure(error, label=label)


async def run_isolated(awaitable: Awaitable[T], *, label: str, timeout: float | None) -> T | Failure:
    """Await plugin code for `deadline` seconds, if any, then stop it; what it raises becomes a Failure.

    Only a cancellation that comes from outside passes through, also where the code has swallowed it.
    Code that goes on for two seconds after that is ended by force. `what` names the code in the log.
    """
    cancellation = CancellationScope()
    result: T | Failure
    try:
        if timeout is None:
            result = await await_in_task(awaitable, label=label)
        else:
            async with asyncio.timeout(timeout) as limit:
                result = await await_in_task(awaitable, label=label)
    except asyncio.CancelledError as error:
        if cancellation.requested:
            raise
        result = log_failure(error, label=label)
    except TimeoutError as error:
        is_timeout = timeout is not None and limit.expired()
        timeout_error = TimeoutError(f"no answer within {timeout:g} s") if is_timeout else None
        result = log_failure(timeout_error or error, label=label, cause=str(timeout_error or ""))
    except BaseException as error:  # a plugin may raise anything, SystemExit included; the process lives on
        result = log_failure(error, label=label)
    if cancellation.requested:
        raise asyncio.CancelledError
    return result


async def await_in_task(awaitable: Awaitable[T], *, label: str) -> T:
    """Await plugin code and give or raise what it does; whoever awaits it can always be stopped.

    The code runs in a task of its own, which is stopped with this one, and by force where it does not stop
    within two seconds. What comes along with us lets cancellations pass, and is awaited as it is.
    """
    if _is_bundled(awaitable):
        return await awaitable
    task = asyncio.ensure_future(_capture_result(awaitable))
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await force_stop(task, label=label)
        if not task.done():
            raise
        if asyncio.iscoroutine(awaitable):
            awaitable.close()  # it may never have begun
    result = task.result()
    if result.error is not None:
        raise result.error
    return result.value  # type: ignore[return-value]  # there is one wherever there is no error


def _is_bundled(awaitable: Awaitable[Any]) -> bool:
    frame = getattr(awaitable, "cr_frame", None)  # of a coroutine that has not begun
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(BUNDLED_PREFIX)


async def force_stop(task: asyncio.Task[Any], *, label: str, grace: float | None = None) -> None:
    """Wait a moment for a task that was told to stop; one that does not is ended by force.

    Its coroutine is closed where it waits: what catches cancellations does not catch that.
    """
    try:
        await asyncio.wait({task}, timeout=CANCEL_GRACE_SECONDS if grace is None else grace)
    finally:
        if not task.done():
            logger.warning("%s did not stop when it was told to, and is ended by force", label)
            task.add_done_callback(_log_late_end)
            if (coroutine := task.get_coro()) is not None:
                with suppress(Exception):  # it may answer that, too, with whatever it likes
                    coroutine.close()
            task.cancel()


def _log_late_end(task: asyncio.Task[Any]) -> None:
    """Look at how a task ended, so that nobody is told it was forgotten: it was let go."""
    if not task.cancelled() and task.exception() is not None:
        logger.debug("%s has ended: %s", task.get_name(), task.exception())


def log_failure(error: BaseException, *, label: str, cause: str = "") -> Failure:
    """Log what plugin code has raised, and make a Failure of it."""
    failure = Failure(cause, error) if cause else to_failure(error)
    logger.warning("%s failed: %s", label, failure.cause, exc_info=None if cause else error)
    return failure


def to_failure(error: BaseException) -> Failure:
    """Make a Failure of what plugin code has raised."""
    if isinstance(error, asyncio.CancelledError):
        return Failure("it cancelled itself", error)
    cause = error
    while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
        [cause] = cause.exceptions
    return Failure(f"{type(cause).__name__}: {cause}", error)


@dataclass(frozen=True, slots=True)
class _TaskResult(Generic[T]):
    value: T | None = None
    error: BaseException | None = None


async def _capture_result(awaitable: Awaitable[T]) -> _TaskResult[T]:
    """Await a call to its end, whatever that is: a task that raised SystemExit would end the process."""
    try:
        return _TaskResult(await awaitable)
    except BaseException as error:
        return _TaskResult(error=error)
