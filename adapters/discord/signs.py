"""The sign that we are writing: Discord lets it fade after ten seconds, so it is renewed as long as we do."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from discord.http import Route

from adapters.discord.config import Limits

logger = logging.getLogger(__name__)


class Typing:
    """Shows the sign in the channels in which we are at work, by `ask`, which asks Discord once."""

    def __init__(self, ask: Callable[..., Awaitable[object]], limits: Limits) -> None:
        self._ask = ask
        self._limits = limits
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def show(self, channel: str, active: bool) -> None:
        """Begin to show it in a channel, or stop."""
        task = self._tasks.pop(channel, None)
        if task is not None:
            task.cancel()
        if active:
            self._tasks[channel] = asyncio.get_running_loop().create_task(self._keep_up(channel))

    async def stop(self) -> None:
        """Stop everywhere."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _keep_up(self, channel: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.longest_typing):
                while await self._sign(channel):
                    await self._limits.pause(self._limits.typing)

    async def _sign(self, channel: str) -> bool:
        try:
            await self._ask(Route("POST", "/channels/{channel_id}/typing", channel_id=channel))
        except Exception as error:  # a courtesy: the answer comes without it
            logger.debug("no typing sign in channel %s: %s", channel, error)
            return False
        return True
