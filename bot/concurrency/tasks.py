"""`TaskSet`, `ShieldedTasks`, `Batcher`: who owns background tasks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")
FLUSH_DELAY_SECONDS = 0.25


class Batcher(Generic[T]):
    """Gathers things for a moment and has `handle` take them; leaving the context hands on the rest.

    Where `handle` fails they are lost, with a line in the log that says `what` they were.
    """

    def __init__(self, handle: Callable[[Sequence[T]], Awaitable[object]], *, label: str) -> None:
        self._handle = handle
        self._label = label
        self._items: list[T] = []
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._task is not None:
            await self._task

    def add(self, item: T) -> None:
        """Take one more."""
        self._items.append(item)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        while self._items:
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_DELAY_SECONDS):
                    await self._closing.wait()
            items, self._items = self._items, []
            try:
                await self._handle(items)
            except Exception as error:
                logger.info("%d %s are lost: %s", len(items), self._label, error)
        self._task = None


class ShieldedTasks:
    """Owns work that must not be broken off half way: wait for it through `asyncio.shield`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin on something."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self, timeout: float) -> None:
        """Wait for all that is under way, but no longer than this."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout)
