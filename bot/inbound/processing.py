"""What an outage of the store has cut short: gone back to, in order, once things can be kept again."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from bot.errors import StoreUnavailable
from bot.store.ledger import StoreHealth

logger = logging.getLogger(__name__)
POLL_SECONDS = 0.5


class DeferredRetries:
    """Receipts to come back to; where `come_back` meets the next outage, they wait on."""

    def __init__(self, health: StoreHealth, retry: Callable[[UUID], Coroutine[Any, Any, None]]) -> None:
        self._health = health
        self._retry = retry
        self._ids: dict[UUID, None] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, receipt_id: UUID) -> None:
        """Note a receipt."""
        self._ids[receipt_id] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._on_done)

    def stop(self) -> None:
        """Leave what is left to the next start."""
        self._ids.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._ids:
            await asyncio.sleep(POLL_SECONDS)
            while self._ids and self._health.problem is None:
                receipt_id = next(iter(self._ids))
                try:
                    await self._retry(receipt_id)
                except StoreUnavailable:
                    break
                self._ids.pop(receipt_id, None)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%d messages stay open until the next start", len(self._ids), exc_info=error)
            self._ids.clear()
