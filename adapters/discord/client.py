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
from adapters.discord.errors import ErrorResponse
from adapters.discord.rate_limits import RequestGuard

logger = logging.getLogger(__name__)


class FailFastBucket(Ratelimit):
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


class DiscordHttp(HTTPClient):
    """The library's client, which asks `base` instead of discord.com, and never waits or tries again."""

    def __init__(
        self,
        base_url: str,
        guard: RequestGuard,
        limits: Limits,
        *,
        certificates: ssl.SSLContext | bool,
        proxy: str | None,
    ) -> None:
        super().__init__(asyncio.get_running_loop(), proxy=proxy, http_trace=guard.build_trace())
        self._certificates = certificates
        self._guard = guard
        self._limits = limits
        self._api_url = base_url + urlsplit(Route.BASE).path
        self._blocked_until: dict[
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
        return self._buckets.setdefault(key, FailFastBucket(None))

    async def request(
        self,
        route: Route,
        *,
        files: Sequence[discord.File] | None = None,
        form: Iterable[dict[str, Any]] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Ask once; raises Answered, Unreadable, Paused, RateLimited or aiohttp's own errors."""
        self._guard.check()
        bucket = (route.key, route.major_parameters)
        self._check_bucket(bucket)
        route.url = self._api_url + route.url.removeprefix(self._api_url).removeprefix(Route.BASE)
        try:
            async with asyncio.timeout(self._limits.request_timeout):
                data = await super().request(route, files=files, form=form, **kwargs)
        except ErrorResponse as error:
            if error.status == 429:
                now = self.loop.time()
                self._blocked_until = {
                    key: until for key, until in self._blocked_until.items() if until > now
                }
                self._blocked_until[bucket] = now + error.retry_after
            raise
        # The library takes JSON for text where a proxy has added a charset to its type.
        return json.loads(data) if isinstance(data, str) and data else data

    def _check_bucket(self, bucket: tuple[str, str]) -> None:
        remaining = self._blocked_until.get(bucket, 0.0) - self.loop.time()
        if remaining > 0:
            raise discord.RateLimited(remaining)


@dataclass(frozen=True, slots=True)
class GatewaySession:
    """Discord's name for a session, where it goes on, and the last event that we have taken in."""

    id: str
    url: str
    seq: int

    def to_json(self) -> str:
        """Write it down."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | None) -> Self | None:
        """Read what was written down; None for what is none."""
        try:
            return cls(**json.loads(text)) if text else None
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class GatewayEvent:
    """Something that happened, as the library names it, and how far the gateway's session is read with it."""

    name: str
    args: tuple[Any, ...]
    session: GatewaySession | None = None


class DiscordClient(discord.Client):
    """Keeps the library's knowledge of servers and channels; connecting is another's work.

    `heard` is called with everything that happens, in its order.
    """

    def __init__(
        self,
        http: HTTPClient,
        settings: DiscordSettings,
        limits: Limits,
        *,
        on_event: Callable[[GatewayEvent], None],
        before_event: Callable[[str, Any], Coroutine[Any, Any, None]],
    ) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # nobody here speaks aloud
        self._http_client = http
        self._on_event = on_event
        super().__init__(
            intents=build_intents(settings),
            max_messages=None,
            chunk_guilds_at_startup=False,
            heartbeat_timeout=limits.heartbeat_timeout,
            guild_ready_timeout=limits.guild_ready_timeout,
            allowed_mentions=discord.AllowedMentions.none(),
        )
        self._hooks[BEFORE_EVENT] = before_event

    def _get_state(self, **options: Any) -> ConnectionState[Any]:
        self.http = self._http_client
        return super()._get_state(**options)

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Hand on what happened, while it is known how far the session is read with it."""
        super().dispatch(event, *args, **kwargs)
        self._on_event(GatewayEvent(event, args, session_of(self.ws)))

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Begin a session at once: its budget was looked at before."""


def build_intents(settings: DiscordSettings) -> discord.Intents:
    """Give what we want to be told: messages, signs on them, places, and people if that is asked for."""
    intents = discord.Intents.none()
    intents.guilds = intents.messages = intents.message_content = intents.reactions = True
    intents.members = settings.discord_members_intent
    return intents


def build_http(
    settings: DiscordSettings, guard: RequestGuard, limits: Limits, environment: Mapping[str, str]
) -> DiscordHttp:
    """Make the way to Discord's REST interface, through the operator's proxy where there is one."""
    base_url = settings.discord_api_base_url
    return DiscordHttp(
        base_url,
        guard,
        limits,
        certificates=_build_ssl_context(base_url, environment),
        proxy=_find_proxy(base_url, environment),
    )


def _build_ssl_context(base_url: str, environment: Mapping[str, str]) -> ssl.SSLContext | bool:
    if not base_url.startswith("https:"):
        return True  # none are needed, and reading them takes a moment
    return ssl.create_default_context(cafile=environment.get("SSL_CERT_FILE"))


def _find_proxy(base_url: str, environment: Mapping[str, str]) -> str | None:
    parts = urlsplit(base_url)
    proxy = environment.get(f"{parts.scheme}_proxy".upper()) or None
    is_bypassed = proxy_bypass_environment(parts.hostname or "", {"no": environment.get("NO_PROXY", "")})
    return None if is_bypassed else proxy


BEFORE_EVENT = "before_event"  # the hook that is awaited with each event before the library reads it
RESUMABLE_CLOSE = 4000  # a close code that keeps the session; 1000 and 1001 end it
CLOSE_TIMEOUT = 2.0


class GatewaySocket(DiscordWebSocket):
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
            async with asyncio.timeout(self._max_heartbeat_timeout + self._close_timeout):
                await super().poll_event()
        except TimeoutError:  # it did not even answer that we close it
            raise ReconnectWebSocket(self.shard_id) from None

    async def close(self, code: int = RESUMABLE_CLOSE) -> None:
        """Close, for at most a moment: whoever is gone cannot answer."""
        try:
            async with asyncio.timeout(self._close_timeout):
                await super().close(code)
        except TimeoutError:
            logger.debug("the gateway did not answer that it is closed")

    @property
    def _close_timeout(self) -> float:
        return min(CLOSE_TIMEOUT, self._max_heartbeat_timeout)


def session_of(socket: DiscordWebSocket | None) -> GatewaySession | None:
    """Give the session of a socket as far as it is read; None where there is none to go on with."""
    if socket is None or not socket.session_id or not socket.sequence:
        return None
    return GatewaySession(socket.session_id, str(socket.gateway), socket.sequence)
