"""Deletes memories of the kinds that plugins declare once their time is over."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self

from bot.concurrency.clock import Clock
from bot.concurrency.isolation import run_isolated
from bot.domain.memory import MemoryKind
from bot.store.protocols import MemoryStore

logger = logging.getLogger(__name__)
INTERVAL_SECONDS = 3600.0
PAUSE_SECONDS = 0.05  # between two pages, so that other work of the store comes first
PAGE_SIZE = 500


class MemoryRetention:
    """Deletes expired memories of one agent, when it starts and every hour; entered and left by its runtime.

    `lifetimes` say how long memories of each kind are stored; without any there is nothing to do.
    """

    def __init__(
        self,
        memories: MemoryStore,
        lifetimes: Mapping[MemoryKind, timedelta],
        clock: Clock,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._memories = memories
        self._lifetimes = lifetimes
        self._clock = clock
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._lifetimes:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def delete_expired(self) -> int:
        """Delete what has expired, a page at a time; return how many memories it was."""
        count = 0
        for kind, lifetime in self._lifetimes.items():
            before = self._clock() - lifetime
            while ids := await self._memories.expired(kind, before, PAGE_SIZE):
                count += await self._memories.remove(ids)
                await self._sleep(PAUSE_SECONDS)
        return count

    async def _run(self) -> None:
        while True:
            count = await run_isolated(self.delete_expired(), label="deleting expired memories", timeout=None)
            if count:
                logger.debug("deleted expired memories: %s", count)
            await self._sleep(INTERVAL_SECONDS)
