"""The "is typing…" status, shown from the first active turn in a room to the last."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from bot.adapter.adapter import Adapter
from bot.domain.environment import Room

logger = logging.getLogger(__name__)
TYPING_TIMEOUT = 5.0


class TypingIndicator:
    """Counts who is at work in each room."""

    def __init__(self) -> None:
        self._active_turns: Counter[UUID] = Counter()

    @asynccontextmanager
    async def show(self, adapter: Adapter | None, room: Room) -> AsyncIterator[None]:
        """Show that the agent is at work in a room, as long as the block lasts."""
        if adapter is None or type(adapter).set_typing is Adapter.set_typing:
            yield
            return
        self._active_turns[room.id] += 1
        try:
            if self._active_turns[room.id] == 1:
                await _set_typing(adapter, room, active=True)
            yield
        finally:
            self._active_turns[room.id] -= 1
            if not self._active_turns[room.id]:  # a turn that took this one over may still be writing
                del self._active_turns[room.id]
                await _set_typing(adapter, room, active=False)


async def _set_typing(adapter: Adapter, room: Room, *, active: bool) -> None:
    try:
        async with asyncio.timeout(TYPING_TIMEOUT):
            await adapter.set_typing(room, active)
    except Exception:  # a typing sign is a courtesy: it never costs the answer
        logger.debug("no typing sign in %s", room.id, exc_info=True)
