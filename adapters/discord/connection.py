"""Staying connected to the gateway: go on with a session, begin a new one, or say why neither is possible."""

import asyncio
import logging
import random
from typing import Any

from discord.errors import ConnectionClosed
from discord.gateway import ReconnectWebSocket
from discord.http import Route
from yarl import URL

from adapters.discord.client import Client
from adapters.discord.config import DEVELOPERS, Limits
from adapters.discord.faults import GONE, Answered
from adapters.discord.gateway import Gateway, session_of
from adapters.discord.identifying import IdentifyBudget
from adapters.discord.session import Session

logger = logging.getLogger(__name__)
CONNECT_DEADLINE = 60.0
MOST_RESUMES = 5  # in a row without success; the place where a session goes on may be gone
BAD_TOKEN = (
    "Discord does not accept the token: set DISCORD_API_TOKEN to the one that "
    f"{DEVELOPERS} shows for your application under Bot, Reset Token"
)
FATAL = {
    4004: BAD_TOKEN,
    4010: "Discord refuses the shard: this version runs a bot on one connection only",
    4011: "Discord asks for sharding: the bot is in too many servers for the one connection that it has",
    4012: "Discord no longer speaks this version of its protocol: update discord.py",
    4013: "Discord does not know the intents that were asked for: update discord.py",
    4014: "Discord refuses the intents: open "
    f"{DEVELOPERS}, your application, Bot, Privileged Gateway Intents, and switch on Message Content Intent "
    "(and Server Members Intent where DISCORD_MEMBERS_INTENT is on)",
}


class Refused(Exception):
    """Discord will not have us, however often we try; the message says what to do."""


class Connection:
    """Keeps one client connected; `session` is what it takes to go on after the next drop."""

    def __init__(
        self, client: Client, budget: IdentifyBudget, limits: Limits, *, session: Session | None = None
    ) -> None:
        self.session = session
        self._client = client
        self._budget = budget
        self._limits = limits
        self._failures = 0

    def well(self) -> None:
        """Take note that the connection stands: the next drop is followed up at once."""
        self._failures = 0

    async def stay(self) -> None:
        """Connect again and again; raises Refused where that is of no use."""
        while True:
            socket: Gateway | None = None
            try:
                socket = await self._connect()
                while True:
                    await socket.poll_event()
            except ReconnectWebSocket as told:
                self._remember((socket or self.session) if told.resume else None)
            except ConnectionClosed as told:
                if told.code in FATAL:
                    raise Refused(FATAL[told.code]) from None
                self._remember(socket)
            except GONE as error:
                if isinstance(error, Answered) and error.status == 401:
                    raise Refused(BAD_TOKEN) from None
                logger.warning("no connection to Discord: %s", error or type(error).__name__)
                self._remember(socket or self.session)
            finally:
                if socket is not None:
                    await socket.close()
            await self._rest()

    def _remember(self, left: Gateway | Session | None) -> None:
        if isinstance(left, Gateway):
            left = session_of(left)
        self.session = left if self._failures < MOST_RESUMES else None

    async def _connect(self) -> Gateway:
        known = self.session
        if known is not None:
            how = {"session": known.id, "sequence": known.seq, "resume": True}
            return await self._opened(URL(known.url), how)
        told = await self._client.http.request(Route("GET", "/gateway/bot"))
        limit: dict[str, Any] = told.get("session_start_limit") or {}
        while wait := self._budget.wait(limit.get("remaining"), limit.get("reset_after", 0) / 1000):
            logger.error("too many sessions with Discord: the next begins in %.0f s at the earliest", wait)
            await self._limits.pause(wait)
            limit = {}
        self._budget.spend()
        return await self._opened(URL(told["url"]), {})

    async def _opened(self, url: URL, how: dict[str, Any]) -> Gateway:
        async with asyncio.timeout(CONNECT_DEADLINE):
            socket = await Gateway.from_client(self._client, gateway=url, **how)
        self._client.ws = socket
        return socket

    async def _rest(self) -> None:
        """Wait, for longer after every failure in a row."""
        longest = min(2.0 ** min(self._failures, 10), self._limits.longest_pause)
        self._failures += 1
        await self._limits.pause(random.uniform(longest / 2, longest))
