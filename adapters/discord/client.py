"""Subclasses of discord.py: client, gateway socket, REST at a configurable base URL; `GatewaySession`."""

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed lacks it

import aiohttp
import discord
from discord.errors import ConnectionClosed
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from discord.http import HTTPClient, Ratelimit, Route
from discord.state import ConnectionState

from adapters.discord.config import DiscordSettings, Limits
from adapters.discord.errors import Answered
from adapters.discord.rate_limits import Judge

logger = logging.getLogger(__name__)


class Bucket(Ratelimit):
    """The library's books on one of Discord's buckets; where it is used up, asking fails at once."""

    async def acquire(self) -> None:
        """Take a place, or raise RateLimited with how long there is none."""
        if self.is_expired():
            self.reset()  # type: ignore[no-untyped-call]  # the library's own
        if self.remaining <= 0 and self.expires is not None:
            raise discord.RateLimited(self.expires - asyncio.get_running_loop().time())
        self.remaining -= 1
        self.outgoing += 1

    async def __aexit__(self, *_: object) -> None:
        self.outgoing -= 1


class Http(HTTPClient):
    """The library's client, which asks `base` instead of discord.com, and never waits or tries again."""

    def __init__(
        self,
        base: str,
        judge: Judge,
        limits: Limits,
        *,
        certificates: ssl.SSLContext | bool,
        proxy: str | None,
    ) -> None:
        super().__init__(asyncio.get_running_loop(), proxy=proxy, http_trace=judge.trace())
        self._certificates = certificates
        self._judge = judge
        self._limits = limits
        self._origin = base + urlsplit(Route.BASE).path
        self._closed: dict[
            tuple[str, str], float
        ] = {}  # by bucket: until when Discord wants to be left alone

    async def static_login(self, token: str) -> Any:
        """Begin anew with a token; the connections of an earlier try are closed."""
        await self.close()
        self.connector = aiohttp.TCPConnector(limit=0, ssl=self._certificates)
        return await super().static_login(token)

    def get_ratelimit(self, key: str) -> Ratelimit:
        """Give the books on a bucket."""
        self._try_clear_expired_ratelimits()
        return self._buckets.setdefault(key, Bucket(None))

    async def request(
        self,
        route: Route,
        *,
        files: Sequence[discord.File] | None = None,
        form: Iterable[dict[str, Any]] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Ask once; raises Answered, Unreadable, Paused, RateLimited or aiohttp's own errors."""
        self._judge.check()
        bucket = (route.key, route.major_parameters)
        self._check(bucket)
        route.url = self._origin + route.url.removeprefix(self._origin).removeprefix(Route.BASE)
        try:
            async with asyncio.timeout(self._limits.request):
                data = await super().request(route, files=files, form=form, **kwargs)
        except Answered as error:
            if error.status == 429:
                now = self.loop.time()
                self._closed = {one: until for one, until in self._closed.items() if until > now}
                self._closed[bucket] = now + error.retry_after
            raise
        # The library takes JSON for text where a proxy has added a charset to its type.
        return json.loads(data) if isinstance(data, str) and data else data

    def _check(self, bucket: tuple[str, str]) -> None:
        left = self._closed.get(bucket, 0.0) - self.loop.time()
        if left > 0:
            raise discord.RateLimited(left)


@dataclass(frozen=True, slots=True)
class Session:
    """Discord's name for a session, where it goes on, and the last event that we have taken in."""

    id: str
    url: str
    seq: int

    def written(self) -> str:
        """Write it down."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Read what was written down; None for what is none."""
        try:
            return cls(**json.loads(text)) if text else None
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class Heard:
    """Something that happened, as the library names it, and how far the gateway's session is read with it."""

    name: str
    args: tuple[Any, ...]
    session: Session | None = None


class Client(discord.Client):
    """Keeps the library's knowledge of servers and channels; connecting is another's work.

    `heard` is called with everything that happens, in its order.
    """

    def __init__(
        self,
        http: HTTPClient,
        settings: DiscordSettings,
        limits: Limits,
        *,
        heard: Callable[[Heard], None],
        before: Callable[[str, Any], Coroutine[Any, Any, None]],
    ) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # nobody here speaks aloud
        self._asks = http
        self._heard = heard
        super().__init__(
            intents=intents_of(settings),
            max_messages=None,
            chunk_guilds_at_startup=False,
            heartbeat_timeout=limits.heartbeat,
            guild_ready_timeout=limits.ready,
            allowed_mentions=discord.AllowedMentions.none(),
        )
        self._hooks[BEFORE_EVENT] = before

    def _get_state(self, **options: Any) -> ConnectionState[Any]:
        self.http = self._asks
        return super()._get_state(**options)

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Hand on what happened, while it is known how far the session is read with it."""
        super().dispatch(event, *args, **kwargs)
        self._heard(Heard(event, args, session_of(self.ws)))

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Begin a session at once: its budget was looked at before."""


def intents_of(settings: DiscordSettings) -> discord.Intents:
    """Give what we want to be told: messages, signs on them, places, and people if that is asked for."""
    intents = discord.Intents.none()
    intents.guilds = intents.messages = intents.message_content = intents.reactions = True
    intents.members = settings.discord_members_intent
    return intents


def http_of(settings: DiscordSettings, judge: Judge, limits: Limits, environment: Mapping[str, str]) -> Http:
    """Make the way to Discord's REST interface, through the operator's proxy where there is one."""
    base = settings.discord_api_base_url
    return Http(
        base, judge, limits, certificates=_certificates(base, environment), proxy=_proxy(base, environment)
    )


def _certificates(base: str, environment: Mapping[str, str]) -> ssl.SSLContext | bool:
    if not base.startswith("https:"):
        return True  # none are needed, and reading them takes a moment
    return ssl.create_default_context(cafile=environment.get("SSL_CERT_FILE"))


def _proxy(base: str, environment: Mapping[str, str]) -> str | None:
    parts = urlsplit(base)
    proxy = environment.get(f"{parts.scheme}_proxy".upper()) or None
    bypassed = proxy_bypass_environment(parts.hostname or "", {"no": environment.get("NO_PROXY", "")})
    return None if bypassed else proxy


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
