"""The one place where plugin code meets ours: what it raises, or how long it takes, stays with it."""

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """Plugin code that gave no result, and the cause in one line."""

    cause: str


async def contained(call: Awaitable[T], *, what: str, deadline: float) -> T | Failure:
    """Await plugin code for at most `deadline` seconds; whatever it raises becomes a Failure.

    Only a cancellation that comes from outside passes through. `what` names the code in the log.
    """
    try:
        async with asyncio.timeout(deadline) as limit:
            return await call
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        cause = "it cancelled itself"
        logger.warning("%s failed: %s", what, cause)
    except TimeoutError as error:
        cause = f"no answer within {deadline:g} s" if limit.expired() else f"TimeoutError: {error}"
        logger.warning("%s failed: %s", what, cause)
    except BaseException as error:  # a plugin may raise anything, SystemExit included; the process lives on
        cause = f"{type(error).__name__}: {error}"
        logger.warning("%s failed: %s", what, cause, exc_info=True)
    return Failure(cause)
