"""The sign that somebody is typing: shown from the first turn at work in a room to the last."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from bot.adapter.adapter import Adapter
from bot.domain.environment import Room

logger = logging.getLogger(__name__)
DEADLINE = 5.0


class Signs:
    """Counts who is at work in each room."""

    def __init__(self) -> None:
        self._at_work: Counter[UUID] = Counter()

    @asynccontextmanager
    async def shown(self, adapter: Adapter | None, room: Room) -> AsyncIterator[None]:
        """Show that the agent is at work in a room, as long as the block lasts."""
        if adapter is None or type(adapter).typing is Adapter.typing:
            yield
            return
        self._at_work[room.id] += 1
        try:
            if self._at_work[room.id] == 1:
                await _show(adapter, room, active=True)
            yield
        finally:
            self._at_work[room.id] -= 1
            if not self._at_work[room.id]:  # a turn that took this one over may still be writing
                del self._at_work[room.id]
                await _show(adapter, room, active=False)


async def _show(adapter: Adapter, room: Room, *, active: bool) -> None:
    try:
        async with asyncio.timeout(DEADLINE):
            await adapter.typing(room, active)
    except Exception:  # a typing sign is a courtesy: it never costs the answer
        logger.debug("no typing sign in %s", room.id, exc_info=True)
