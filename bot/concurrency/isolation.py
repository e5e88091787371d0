"""Run plugin code: time limits, exceptions turned into `Failure`, forced stop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)
CANCEL_GRACE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Plugin code that returned no result: the cause in one line, and the exception if there was one."""

    cause: str
    error: BaseException | None = field(default=None, compare=False, repr=False)


class CancellationScope:
    """Distinguishes cancellation of the current task from outside from CancelledError raised inside it."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._initial_count = self._count()

    @property
    def requested(self) -> bool:
        """Whether the task was cancelled from outside since this scope was created."""
        return self._count() > self._initial_count

    def _count(self) -> int:
        return self._task.cancelling() if self._task is not None else 0


async def call_isolated(
    call: Callable[[], Awaitable[T] | T], *, label: str, timeout: float | None, trusted: bool = False
) -> T | Failure:
    """Call a plain or async plugin function; return its result, or a Failure as `run_isolated` does."""
    value = call_plugin(call, label=label)
    if isinstance(value, bool) or not isinstance(value, Awaitable):
        return value
    return await run_isolated(value, label=label, timeout=timeout, trusted=trusted)


def call_plugin(call: Callable[[], Awaitable[T] | T], *, label: str) -> Awaitable[T] | T | Failure:
    """Call plugin code; return its value, the awaitable of an async function, or a Failure if it raises."""
    try:
        return call()
    except BaseException as error:  # plugin code may raise anything, SystemExit included
        return log_failure(error, label=label)


async def run_isolated(
    awaitable: Awaitable[T], *, label: str, timeout: float | None, trusted: bool = False
) -> T | Failure:
    """Await plugin code for at most `timeout` seconds (None: no limit). Return its result, or `Failure` for a
    timeout or any exception.

    Only cancellation from outside propagates, even if the plugin swallows it. Code that still runs two
    seconds after cancellation is stopped by force. `label` names the code in the log.
    """
    cancellation = CancellationScope()
    result: T | Failure
    try:
        if timeout is None:
            result = await await_in_task(awaitable, label=label, trusted=trusted)
        else:
            async with asyncio.timeout(timeout) as limit:
                result = await await_in_task(awaitable, label=label, trusted=trusted)
    except asyncio.CancelledError as error:
        if cancellation.requested:
            raise
        result = log_failure(error, label=label)
    except TimeoutError as error:
        is_timeout = timeout is not None and limit.expired()
        timeout_error = TimeoutError(f"no answer within {timeout:g} s") if is_timeout else None
        result = log_failure(timeout_error or error, label=label, cause=str(timeout_error or ""))
    except BaseException as error:  # as in `call_plugin`
        result = log_failure(error, label=label)
    if cancellation.requested:
        raise asyncio.CancelledError
    return result


async def await_in_task(awaitable: Awaitable[T], *, label: str, trusted: bool = False) -> T:
    """Await plugin code in a task of its own, and return or raise what it does; the caller can always be
    cancelled.

    Cancelling the caller cancels the task, and stops it by force after two seconds. Bundled plugins let
    cancellation through, so their code is awaited directly.
    """
    if trusted:
        return await awaitable
    task = asyncio.ensure_future(_capture_result(awaitable))
    task.set_name(label)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await force_stop(task, label=label)
        if not task.done():
            raise
        if asyncio.iscoroutine(awaitable):
            awaitable.close()  # it may not have started
    result = task.result()
    if result.error is not None:
        raise result.error
    return result.value  # type: ignore[return-value]  # there is one wherever there is no error


async def force_stop(task: asyncio.Task[Any], *, label: str, grace: float | None = None) -> None:
    """Wait `grace` seconds for a cancelled task, then stop it by force.

    Force means closing its coroutine where it waits: code that catches CancelledError does not catch that.
    """
    try:
        await asyncio.wait({task}, timeout=CANCEL_GRACE_SECONDS if grace is None else grace)
    finally:
        if not task.done():
            logger.warning("%s did not stop when it was cancelled, and was stopped by force", label)
            task.add_done_callback(_log_late_end)
            if (coroutine := task.get_coro()) is not None:
                with suppress(Exception):  # its cleanup code may raise
                    coroutine.close()
            task.cancel()


def _log_late_end(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of an abandoned task, so that asyncio does not report it as unhandled."""
    if not task.cancelled() and task.exception() is not None:
        logger.debug("%s ended late: %s", task.get_name(), task.exception())


def log_failure(error: BaseException, *, label: str, cause: str = "") -> Failure:
    """Log what plugin code raised, and return it as a Failure."""
    failure = Failure(cause, error) if cause else to_failure(error)
    logger.warning("%s failed: %s", label, failure.cause, exc_info=None if cause else error)
    return failure


def to_failure(error: BaseException) -> Failure:
    """Return the Failure of an exception; of a group of one, that of its member."""
    if isinstance(error, asyncio.CancelledError):
        return Failure("it cancelled itself", error)
    cause = error
    while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
        [cause] = cause.exceptions
    return Failure(f"{type(cause).__name__}: {cause}", cause)


@dataclass(frozen=True, slots=True)
class _TaskResult(Generic[T]):
    value: T | None = None
    error: BaseException | None = None


async def _capture_result(awaitable: Awaitable[T]) -> _TaskResult[T]:
    """Return the result or the exception: a task that raised SystemExit would end the process."""
    try:
        return _TaskResult(await awaitable)
    except BaseException as error:  # passed to the task's owner
        return _TaskResult(error=error)
