"""Work that is carried to its end, also where whoever waits for it is stopped."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Unbroken:
    """Owns work that must not be broken off half way: wait for it through `asyncio.shield`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin on something."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self, seconds: float) -> None:
        """Wait for all that is under way, but no longer than this."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
