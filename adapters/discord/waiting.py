"""What has happened and is not taken in yet: bounded, for while nothing can be kept the gateway tells on."""

import asyncio
import logging
from collections.abc import Sequence

from discord.gateway import ReconnectWebSocket

from adapters.discord.client import Heard

logger = logging.getLogger(__name__)


class Overfull(ReconnectWebSocket):
    """So much waits that the connection is ended; it is to be gone on with once there is room."""


class Waiting:
    """Lines up what was heard, in its order.

    Once so much waits it is full, until all of it is taken in. Nothing more is to be read then: what is
    not read comes again when the session is gone on with, or is fetched.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._heard: asyncio.Queue[Heard] = asyncio.Queue()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._taken = 0
        self._is_told = False

    def __len__(self) -> int:
        return self._heard.qsize() + self._taken

    def add(self, heard: Heard) -> None:
        """Line up something; also where it is full: that much had been read by then."""
        self._heard.put_nowait(heard)
        if len(self) >= self._most:
            self._has_room.clear()

    async def next(self, most: int) -> Sequence[Heard]:
        """Wait for something, and take what stands behind it as well, so many at most."""
        taken = [await self._heard.get()]
        while len(taken) < most and not self._heard.empty():
            taken.append(self._heard.get_nowait())
        self._taken = len(taken)
        return taken

    def kept(self) -> None:
        """Note that what was taken last has been kept."""
        self._taken = 0
        if len(self):
            return
        self._has_room.set()
        if self._is_told:
            self._is_told = False
            logger.warning("what waited of Discord is kept: it is read on")

    async def admit(self, seconds: float) -> None:
        """Wait for room before more is read; raises Overfull where in so many seconds there is none."""
        try:
            async with asyncio.timeout(seconds):
                await self._has_room.wait()
        except TimeoutError:
            if not self._is_told:
                self._is_told = True
                logger.warning(
                    "%d things that happened on Discord cannot be kept: no more is read until they are",
                    len(self),
                )
            raise Overfull(None) from None

    async def until_room(self) -> None:
        """Wait until there is room again."""
        await self._has_room.wait()
