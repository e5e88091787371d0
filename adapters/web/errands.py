"""Work that is finished even where whoever asked for it has gone: it belongs to the server."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Errands:
    """Owns tasks that outlive the request that began them, and ends them with the server."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, errand: Coroutine[Any, Any, T]) -> T:
        """Await something that a lost connection must not cut in half."""
        return await asyncio.shield(self._begin(errand))

    def start(self, errand: Coroutine[Any, Any, None]) -> None:
        """Begin something that nobody waits for."""
        self._begin(errand).add_done_callback(_note_failure)

    async def stop(self) -> None:
        """End what is still under way."""
        late = set(self._tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _begin(self, errand: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(errand)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _note_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("something begun for a client failed", exc_info=error)
