"""The one place where plugin code meets ours: what it raises, or how long it takes, stays with it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)
GRACE = 2.0  # for whoever is told to stop
COMING_ALONG = "plugins."  # the package of the plugins that are part of this distribution


@dataclass(frozen=True, slots=True)
class Failure:
    """Plugin code that gave no result: the cause in one line, and what was raised if anything was."""

    cause: str
    error: BaseException | None = field(default=None, compare=False, repr=False)


class Cancellation:
    """Tells a cancellation of the current task that comes from outside from one that its own code raised."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._before = self._count()

    @property
    def is_asked_for(self) -> bool:
        """Whether somebody has asked this task to stop since this was made."""
        return self._count() > self._before

    def _count(self) -> int:
        return self._task.cancelling() if self._task is not None else 0


async def asked(call: Callable[[], Awaitable[T] | T], *, what: str, deadline: float | None) -> T | Failure:
    """Call plugin code that may be a plain function or an asynchronous one; a plain one costs no waiting."""
    given = begun(call, what=what)
    if isinstance(given, bool) or not isinstance(given, Awaitable):
        return given
    return await contained(given, what=what, deadline=deadline)


def begun(call: Callable[[], Awaitable[T] | T], *, what: str) -> Awaitable[T] | T | Failure:
    """Call plugin code; gives what a plain function gives, or what is still to be awaited of an async one."""
    try:
        return call()
    except BaseException as error:  # as below
        return failed(error, what=what)


async def contained(call: Awaitable[T], *, what: str, deadline: float | None) -> T | Failure:
    """Await plugin code for `deadline` seconds, if any, then stop it; what it raises becomes a Failure.

    Only a cancellation that comes from outside passes through, also where the code has swallowed it.
    Code that goes on for two seconds after that is ended by force. `what` names the code in the log.
    """
    cancellation = Cancellation()
    result: T | Failure
    try:
        if deadline is None:
            result = await released(call, what=what)
        else:
            async with asyncio.timeout(deadline) as limit:
                result = await released(call, what=what)
    except asyncio.CancelledError as error:
        if cancellation.is_asked_for:
            raise
        result = failed(error, what=what)
    except TimeoutError as error:
        is_late = deadline is not None and limit.expired()
        late = TimeoutError(f"no answer within {deadline:g} s") if is_late else None
        result = failed(late or error, what=what, cause=str(late or ""))
    except BaseException as error:  # a plugin may raise anything, SystemExit included; the process lives on
        result = failed(error, what=what)
    if cancellation.is_asked_for:
        raise asyncio.CancelledError
    return result


async def released(call: Awaitable[T], *, what: str) -> T:
    """Await plugin code and give or raise what it does; whoever awaits it can always be stopped.

    The code runs in a task of its own, which is stopped with this one, and by force where it does not stop
    within two seconds. What comes along with us lets cancellations pass, and is awaited as it is.
    """
    if _comes_along(call):
        return await call
    task = asyncio.ensure_future(_ended(call))
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await let_go(task, what=what)
        if not task.done():
            raise
        if asyncio.iscoroutine(call):
            call.close()  # it may never have begun
    ended = task.result()
    if ended.error is not None:
        raise ended.error
    return ended.given  # type: ignore[return-value]  # there is one wherever there is no error


def _comes_along(call: Awaitable[Any]) -> bool:
    frame = getattr(call, "cr_frame", None)  # of a coroutine that has not begun
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(COMING_ALONG)


async def let_go(task: asyncio.Task[Any], *, what: str, grace: float | None = None) -> None:
    """Wait a moment for a task that was told to stop; one that does not is ended by force.

    Its coroutine is closed where it waits: what catches cancellations does not catch that.
    """
    try:
        await asyncio.wait({task}, timeout=GRACE if grace is None else grace)
    finally:
        if not task.done():
            logger.warning("%s did not stop when it was told to, and is ended by force", what)
            task.add_done_callback(_note)
            if (coroutine := task.get_coro()) is not None:
                with suppress(Exception):  # it may answer that, too, with whatever it likes
                    coroutine.close()
            task.cancel()


def _note(task: asyncio.Task[Any]) -> None:
    """Look at how a task ended, so that nobody is told it was forgotten: it was let go."""
    if not task.cancelled() and task.exception() is not None:
        logger.debug("%s has ended: %s", task.get_name(), task.exception())


def failed(error: BaseException, *, what: str, cause: str = "") -> Failure:
    """Log what plugin code has raised, and make a Failure of it."""
    failure = Failure(cause, error) if cause else failure_of(error)
    logger.warning("%s failed: %s", what, failure.cause, exc_info=None if cause else error)
    return failure


def failure_of(error: BaseException) -> Failure:
    """Make a Failure of what plugin code has raised."""
    if isinstance(error, asyncio.CancelledError):
        return Failure("it cancelled itself", error)
    cause = error
    while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
        [cause] = cause.exceptions
    return Failure(f"{type(cause).__name__}: {cause}", error)


@dataclass(frozen=True, slots=True)
class _Ended(Generic[T]):
    given: T | None = None
    error: BaseException | None = None


async def _ended(call: Awaitable[T]) -> _Ended[T]:
    """Await a call to its end, whatever that is: a task that raised SystemExit would end the process."""
    try:
        return _Ended(await call)
    except BaseException as error:
        return _Ended(error=error)
