"""The "is typing…" status, shown from the first active turn in a room to the last."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
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
        self._shown: dict[UUID, tuple[Adapter, Room]] = {}

    @asynccontextmanager
    async def show(self, adapter: Adapter | None, room: Room) -> AsyncIterator[None]:
        """Show that the agent is at work in a room, as long as the block lasts."""
        if adapter is None or type(adapter).set_typing is Adapter.set_typing:
            yield
            return
        self._active_turns[room.id] += 1
        try:
            if self._active_turns[room.id] == 1:
                self._shown[room.id] = (adapter, room)
                await _call(adapter.set_typing(room, True), room)
            yield
        finally:
            self._active_turns[room.id] -= 1
            if not self._active_turns[room.id]:  # a turn that took this one over may still be writing
                del self._active_turns[room.id]
                self._shown.pop(room.id, None)
                await _call(adapter.set_typing(room, False), room)

    async def show_model_busy(self, room_id: UUID) -> None:
        """Show that the model is called again, in a room where the agent is typing."""
        if room_id in self._shown:
            adapter, room = self._shown[room_id]
            await _call(adapter.show_model_busy(room), room)


async def _call(call: Awaitable[None], room: Room) -> None:
    try:
        async with asyncio.timeout(TYPING_TIMEOUT):
            await call
    except Exception:  # a typing sign is a courtesy: it never costs the answer
        logger.debug("no typing sign in %s", room.id, exc_info=True)
