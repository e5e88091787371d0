"""`TaskSet` and `Batcher`: background tasks and who owns them."""

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
    """Collects items for a quarter of a second, then passes them to `handle`; the end of the context flushes.

    If `handle` fails, the items are lost, and the log names them by `label`.
    """

    def __init__(self, handle: Callable[[Sequence[T]], Awaitable[object]], *, label: str) -> None:
        self._handle = handle
        self._label = label
        self._items: list[T] = []
        self._handling = asyncio.Lock()
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
        """Add an item to the next batch."""
        self._items.append(item)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._flush_later())

    async def flush(self) -> None:
        """Pass on at once what was collected; wait for what is being passed on.

        It is passed on even if the caller is cancelled.
        """
        await asyncio.shield(asyncio.get_running_loop().create_task(self._pass_on()))

    async def _pass_on(self) -> None:
        async with self._handling:
            items, self._items = self._items, []
            if not items:
                return
            try:
                await self._handle(items)
            except Exception as error:  # items are lost rather than retried; later batches still run
                logger.info("%d %s are lost: %s", len(items), self._label, error)

    async def _flush_later(self) -> None:
        while self._items:
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_DELAY_SECONDS):
                    await self._closing.wait()
            await self._pass_on()
        self._task = None


class TaskSet:
    """Background tasks of one owner, who waits for them or cancels them before it ends.

    A task that fails is logged once with `label`, unless `logs_failures` is off because the caller awaits it.
    """

    def __init__(self, label: str, *, logs_failures: bool = True) -> None:
        self._label = label
        self._logs_failures = logs_failures
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a coroutine as a task and keep a reference until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def wait(self, timeout: float | None = None) -> int:
        """Wait at most `timeout` seconds for the tasks to end; return how many are still running."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout)
        return len(self._tasks)

    async def cancel(self, timeout: float | None = None) -> int:
        """Cancel all tasks and wait at most `timeout` seconds; return how many are still running."""
        for task in self._tasks:
            task.cancel()
        return await self.wait(timeout)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._logs_failures:
            logger.error("%s failed: %s", self._label, error, exc_info=error)
