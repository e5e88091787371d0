"""Discord's gateway through the library, made such that no event can end it."""

import asyncio
import json
import logging
from typing import Any

import aiohttp
from discord.errors import ConnectionClosed
from discord.gateway import DiscordWebSocket, ReconnectWebSocket

from adapters.discord.session import Session

logger = logging.getLogger(__name__)
BEFORE_EVENT = "before_event"  # the hook that is awaited with each event before the library reads it
GOING_ON = 4000  # a close code that keeps the session; 1000 and 1001 end it
GOODBYE = 2.0


class Gateway(DiscordWebSocket):
    """The library's socket, for an internet that loses connections and a platform that sends surprises."""

    async def received_message(self, msg: Any, /) -> None:
        """Have the library read a frame; one that it cannot read is noted and left out."""
        if isinstance(msg, bytes):
            msg = self._decompressor.decompress(msg)
            if msg is None:
                return
        try:
            event = json.loads(msg)
            if isinstance(event, dict) and event.get("t"):
                await self.call_hooks(BEFORE_EVENT, str(event["t"]), event.get("d"))
            await super().received_message(msg)
        except (ReconnectWebSocket, ConnectionClosed, aiohttp.ClientError, OSError):
            raise
        except Exception as error:  # of a stranger's making, perhaps: it costs this event, not the bot
            logger.warning("an event of Discord could not be read: %s", type(error).__name__)
            logger.debug("the event that could not be read", exc_info=True)

    async def poll_event(self) -> None:
        """Wait for the next frame; a connection on which nothing comes is given up, and gone on with anew."""
        try:
            async with asyncio.timeout(self._max_heartbeat_timeout + self._goodbye):
                await super().poll_event()
        except TimeoutError:  # it did not even answer that we close it
            raise ReconnectWebSocket(self.shard_id) from None

    async def close(self, code: int = GOING_ON) -> None:
        """Close, for at most a moment: whoever is gone cannot answer."""
        try:
            async with asyncio.timeout(self._goodbye):
                await super().close(code)
        except TimeoutError:
            logger.debug("the gateway did not answer that it is closed")

    @property
    def _goodbye(self) -> float:
        return min(GOODBYE, self._max_heartbeat_timeout)


def session_of(socket: DiscordWebSocket | None) -> Session | None:
    """Give the session of a socket as far as it is read; None where there is none to go on with."""
    if socket is None or not socket.session_id or not socket.sequence:
        return None
    return Session(socket.session_id, str(socket.gateway), socket.sequence)
