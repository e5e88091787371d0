"""`TaskSet`, `ShieldedTasks`, `Batcher`: who owns background tasks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")
PAUSE = 0.25


class Gathering(Generic[T]):
    """Gathers things for a moment and has `handle` take them; leaving the context hands on the rest.

    Where `handle` fails they are lost, with a line in the log that says `what` they were.
    """

    def __init__(self, handle: Callable[[Sequence[T]], Awaitable[object]], *, what: str) -> None:
        self._handle = handle
        self._what = what
        self._things: list[T] = []
        self._is_over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        if self._task is not None:
            await self._task

    def add(self, thing: T) -> None:
        """Take one more."""
        self._things.append(thing)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._hand_on())

    async def _hand_on(self) -> None:
        while self._things:
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await self._is_over.wait()
            things, self._things = self._things, []
            try:
                await self._handle(things)
            except Exception as error:
                logger.info("%d %s are lost: %s", len(things), self._what, error)
        self._task = None


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
