"""The one place where plugin code meets ours: what it raises, or how long it takes, stays with it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """Plugin code that gave no result, and the cause in one line."""

    cause: str


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
    return await contained(given, what=what, deadline=deadline) if isinstance(given, Awaitable) else given


def begun(call: Callable[[], Awaitable[T] | T], *, what: str) -> Awaitable[T] | T | Failure:
    """Call plugin code; gives what a plain function gives, or what is still to be awaited of an async one."""
    try:
        return call()
    except BaseException as error:  # as below
        logger.warning("%s failed: %s: %s", what, type(error).__name__, error, exc_info=True)
        return Failure(f"{type(error).__name__}: {error}")


async def contained(call: Awaitable[T], *, what: str, deadline: float | None) -> T | Failure:
    """Await plugin code for `deadline` seconds, if any, then cancel it; what it raises becomes a Failure.

    Only a cancellation that comes from outside passes through, also where the code has swallowed it.
    Code that goes on after its cancellation is waited for. `what` names the code in the log.
    """
    cancellation = Cancellation()
    result: T | Failure
    try:
        async with asyncio.timeout(deadline) as limit:
            result = await call
    except asyncio.CancelledError:
        if cancellation.is_asked_for:
            raise
        result = Failure("it cancelled itself")
        logger.warning("%s failed: %s", what, result.cause)
    except TimeoutError as error:
        result = Failure(f"no answer within {deadline:g} s" if limit.expired() else f"TimeoutError: {error}")
        logger.warning("%s failed: %s", what, result.cause)
    except BaseException as error:  # a plugin may raise anything, SystemExit included; the process lives on
        result = Failure(f"{type(error).__name__}: {error}")
        logger.warning("%s failed: %s", what, result.cause, exc_info=True)
    if cancellation.is_asked_for:
        raise asyncio.CancelledError
    return result
