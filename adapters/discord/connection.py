"""Staying connected to the gateway: go on with a session, begin a new one, or say why neither is possible."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from discord.errors import ConnectionClosed
from discord.gateway import ReconnectWebSocket
from discord.http import Route
from yarl import URL

from adapters.discord.client import Client, Gateway, Session, session_of
from adapters.discord.config import DEVELOPERS, Limits
from adapters.discord.errors import GONE, Answered, cause_of_gap
from adapters.discord.rate_limits import IdentifyBudget
from adapters.discord.receiving import Overfull
from bot.platform import Cause, Link

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
    """Keeps one client connected; `session` is what it takes to go on after the next drop.

    Connections end, and the next one stands at once: `link` is told of a gap only where it does not.
    None is made before `may_read` returns.
    """

    def __init__(
        self,
        client: Client,
        budget: IdentifyBudget,
        limits: Limits,
        link: Link,
        *,
        may_read: Callable[[], Awaitable[None]],
        session: Session | None = None,
    ) -> None:
        self.session = session
        self._client = client
        self._budget = budget
        self._limits = limits
        self._link = link
        self._may_read = may_read
        self._failures = 0

    def well(self) -> None:
        """Take note that the connection stands: the next drop is followed up at once."""
        self._failures = 0
        self._link.stands()

    async def stay(self) -> None:
        """Connect again and again; raises Refused where that is of no use."""
        while True:
            socket: Gateway | None = None
            try:
                socket = await self._connect()
                while True:
                    await socket.poll_event()
            except Overfull:
                self._remember(socket or self.session)
                self._link.drops()
                self._failures = 0  # it is we who have ended it
            except ReconnectWebSocket as told:
                self._remember((socket or self.session) if told.resume else None)
                self._dropped("the gateway ends every connection")
            except ConnectionClosed as told:
                if told.code in FATAL:
                    raise Refused(FATAL[told.code]) from None
                self._remember(socket)
                self._dropped(f"the gateway closes every connection (code {told.code})")
            except GONE as error:
                if isinstance(error, Answered) and error.status == 401:
                    raise Refused(BAD_TOKEN) from None
                self._remember(socket or self.session)
                self._dropped(error or type(error).__name__, cause_of_gap(error), is_made=socket is not None)
            finally:
                if socket is not None:
                    await socket.close()
            await self._rest()

    def _dropped(self, why: object, cause: Cause = Cause.PLATFORM, *, is_made: bool = True) -> None:
        """Tell of a connection that has ended: of the first after one that stood, only that it has."""
        if is_made and not self._failures:
            self._link.drops()
        else:
            self._link.fails(cause, why)

    def _remember(self, left: Gateway | Session | None) -> None:
        if isinstance(left, Gateway):
            left = session_of(left)
        self.session = left if self._failures < MOST_RESUMES else None

    async def _connect(self) -> Gateway:
        await self._may_read()
        known = self.session
        if known is not None:
            how = {"session": known.id, "sequence": known.seq, "resume": True}
            return await self._opened(URL(known.url), how)
        told = await self._client.http.request(Route("GET", "/gateway/bot"))
        limit: dict[str, Any] = told.get("session_start_limit") or {}
        while wait := self._budget.wait(limit.get("remaining"), limit.get("reset_after", 0) / 1000):
            logger.error("too many sessions with Discord: the next begins in %.0f s at the earliest", wait)
            self._link.fails(Cause.LIMITED, "too many sessions were begun")
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
