"""What plugins have left at work when everything else has ended: named, and stopped where it can be."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any

from bot.concurrency.isolation import let_go
from bot.text import shorten

logger = logging.getLogger(__name__)
GRACE = 0.2
MOST_NAMED = 400


@asynccontextmanager
async def swept() -> AsyncIterator[None]:
    """At the end of the block stop the tasks beside this one, and name what holds up the process's end."""
    try:
        yield
    finally:
        await _stop_tasks(asyncio.all_tasks() - {asyncio.current_task()})
        if threads := [one.name for one in threading.enumerate() if _holds_up(one)]:
            logger.warning("%d threads are left at work, and the end waits: %s", len(threads), _list(threads))


async def _stop_tasks(tasks: Collection[asyncio.Task[Any] | None]) -> None:
    late = {_named(task): task for task in tasks if task is not None}
    if late:
        logger.warning("%d tasks were left at work and are stopped: %s", len(late), _list(late))
    for task in late.values():
        task.cancel()
    await asyncio.gather(*(let_go(task, what=name, grace=GRACE) for name, task in late.items()))


def _named(task: asyncio.Task[Any]) -> str:
    coroutine = task.get_coro()
    code = getattr(coroutine, "cr_code", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{getattr(coroutine, '__qualname__', 'something')}{place} in {task.get_name()}"


def _holds_up(thread: threading.Thread) -> bool:
    """Tell whether the process lives as long as a thread; asyncio sees to those of its own."""
    is_asyncios = thread.name.startswith("asyncio_")
    return not (thread.daemon or is_asyncios or thread is threading.main_thread())


def _list(names: Iterable[str]) -> str:
    return shorten(", ".join(sorted(names)), MOST_NAMED)
