"""Subclasses of discord.py: client, gateway socket, REST at a configurable base URL; `GatewaySession`.

Checks of requests after refusals, and the order and limit of new gateway sessions.
"""

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
import discord
from discord.errors import ConnectionClosed
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from discord.http import HTTPClient, Ratelimit, Route
from discord.state import ConnectionState

from adapters.discord.config import DiscordSettings, Limits
from adapters.discord.errors import ErrorResponse, InvalidResponse, RequestsPaused
from adapters.discord.sharding import ShardId
from bot import crash_point
from bot.platform import PlatformNetwork, SlidingWindow, TaskSet, find_network, read_bounded
from bot.store import LeaseSharing, StoreUnavailable

INVALID_STATUSES = (401, 403, 429)
MAX_INVALID, INVALID_WINDOW_SECONDS = 1000, 600.0  # Discord bans an address after 10,000 in ten minutes
MAX_PER_HOUR, MAX_PER_DAY = 50, 500
HOUR, DAY, DELAY_SECONDS = 3600.0, 86_400.0, 1800.0
DAILY_RESERVE = 50  # of the thousand a day; people may want to start the bot too


class RequestGuard:
    """Raises the error of a refused request, counts refusals, and blocks requests after too many.

    The library would sleep and retry; here the outbox decides that, because it persists deliveries.
    """

    def __init__(self, clock: Callable[[], float], max_response_bytes: int) -> None:
        self._clock = clock
        self._max_response_bytes = max_response_bytes
        self._invalid = SlidingWindow(MAX_INVALID, INVALID_WINDOW_SECONDS)
        self._blocked_until = 0.0

    def build_trace(self) -> aiohttp.TraceConfig:
        """Return the aiohttp trace configuration of the client."""
        trace = aiohttp.TraceConfig()
        trace.on_request_chunk_sent.append(self._on_body_sent)
        trace.on_request_end.append(self._on_response)
        return trace

    def check(self) -> None:
        """Raise if no request may be sent now: a global rate limit, or too many refusals."""
        now = self._clock()
        if now < self._blocked_until:
            seconds = self._blocked_until - now
            raise ErrorResponse(429, {"retry_after": seconds, "message": "global rate limit"})
        if not self._invalid.count_spare(now):
            raise RequestsPaused(
                f"Discord has refused {MAX_INVALID} requests within ten minutes; requests are suspended"
            )

    async def _on_body_sent(self, session: aiohttp.ClientSession, context: SimpleNamespace, params: Any) -> None:
        if params.method == "POST" and params.url.path.endswith("/messages"):
            crash_point("send.post_write")

    async def _on_response(
        self, session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestEndParams
    ) -> None:
        response = params.response
        if response.status == 101:  # the gateway's websocket
            return
        with ExitStack() as stack:
            stack.callback(response.close)
            data = await self._read_response(response)
            if response.status >= 400:
                self.reject(response, data)
            stack.pop_all()

    async def _read_response(self, response: aiohttp.ClientResponse) -> Any:
        """Read a bounded response body; the library finds it already read."""
        if (body := await read_bounded(response, self._max_response_bytes)) is None:
            raise InvalidResponse(f"a response of more than {self._max_response_bytes} bytes")
        response._body = body
        if response.status == 204:
            return None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            if response.status < 400:
                raise InvalidResponse("a response that is not JSON") from None
            return None

    def reject(self, response: aiohttp.ClientResponse, data: Any) -> None:
        """Count a refused request and raise its error."""
        headers = response.headers
        error = ErrorResponse(response.status, data, headers)
        if response.status in INVALID_STATUSES and headers.get("X-RateLimit-Scope") != "shared":
            self._invalid.reserve(self._clock(), self._clock())
        is_global = error.is_global or headers.get("X-RateLimit-Scope") == "global" or "X-RateLimit-Global" in headers
        if response.status == 429 and is_global:
            self._blocked_until = max(self._blocked_until, self._clock() + error.retry_after)
        raise error


class IdentifyQueue:
    """Starts the gateway sessions of an account one after the other, some seconds apart, as Discord demands.

    The shards are in groups, whose sessions may start at the same time; `max_concurrency` is their number, as Discord
    tells it. Processes that share an account take turns by leases.
    """

    def __init__(self, limits: Limits, find_leases: Callable[[], LeaseSharing | None]) -> None:
        self._limits, self._find_leases = limits, find_leases
        self.max_concurrency = 1
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._releases = TaskSet("ending a turn to start a session")

    @asynccontextmanager
    async def turn(self, shard_number: int) -> AsyncIterator[None]:
        """Wait until the session of a shard may start; it starts inside."""
        group = shard_number % self.max_concurrency
        await self._locks[group].acquire()
        try:
            await self._take_lease(group)
            yield
        finally:
            self._releases.start(self._release(group))

    async def stop(self) -> None:
        """End the waiting after the last sessions."""
        await self._releases.cancel()

    async def _take_lease(self, group: int) -> None:
        leases = self._find_leases()
        while leases is not None:
            with suppress(StoreUnavailable):
                if await leases.hold_lease(_lease_name(group)):
                    return
            await asyncio.sleep(self._limits.lease_interval)

    async def _release(self, group: int) -> None:
        try:
            await self._limits.sleep(self._limits.identify_interval)
            if (leases := self._find_leases()) is not None:
                with suppress(StoreUnavailable):  # then it ends with the process
                    await leases.release_lease(_lease_name(group))
        finally:
            self._locks[group].release()


def _lease_name(group: int) -> str:
    return f"start of a Discord session {group}"


class IdentifyLimiter:
    """Limits new gateway sessions: after many in an hour or a day, one per half hour."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows = [SlidingWindow(MAX_PER_HOUR, HOUR), SlidingWindow(MAX_PER_DAY, DAY)]

    def wait_seconds(self, remaining: int | None = None, reset_after: float = 0.0) -> float:
        """Return the seconds until the next session may start; the parameters come from Discord."""
        if remaining is not None and remaining <= DAILY_RESERVE:
            return max(reset_after, 1.0)
        now = self._clock()
        if all(window.count_spare(now) > 0 for window in self._windows):
            return 0.0
        return max(0.0, self._windows[0].times[-1] + DELAY_SECONDS - now)

    def record(self) -> None:
        """Count a new session."""
        for window in self._windows:
            window.reserve(self._clock(), self._clock())


logger = logging.getLogger(__name__)
BEFORE_EVENT = "before_event"  # hook awaited with each event before the library reads it
AFTER_EVENT = "after_event"  # hook awaited with each event and, where it could not be read, the error
UNREADABLE, POSITION = "unreadable", "position"  # events beside those of the library
INTERACTION = "INTERACTION_CREATE"
RESUMABLE_CLOSE = 4000  # close code that keeps the session; 1000 and 1001 end it
CLOSE_TIMEOUT = 2.0


class FailFastBucket(Ratelimit):
    """The library's state of one rate-limit bucket; an exhausted bucket fails at once instead of waiting."""

    async def acquire(self) -> None:
        """Use one request of the bucket; raise RateLimited with the remaining seconds if it is exhausted."""
        if self.is_expired():
            self.reset()  # type: ignore[no-untyped-call]  # the library's own
        if self.remaining <= 0 and self.expires is not None:
            raise discord.RateLimited(self.expires - asyncio.get_running_loop().time())
        self.remaining -= 1
        self.outgoing += 1

    async def __aexit__(self, *_: object) -> None:
        self.outgoing -= 1


class DiscordHttp(HTTPClient):
    """The library's REST client with a configurable base URL; it never waits and never retries."""

    def __init__(self, base_url: str, guard: RequestGuard, limits: Limits, network: PlatformNetwork) -> None:
        super().__init__(asyncio.get_running_loop(), proxy=network.proxy, http_trace=guard.build_trace())
        self._certificates = network.certificates
        self._guard = guard
        self._limits = limits
        self._api_url = base_url + urlsplit(Route.BASE).path
        self._blocked_until: dict[tuple[str, str], float] = {}  # by bucket: loop time

    async def static_login(self, token: str) -> Any:
        """Log in with a token; connections of an earlier attempt are closed."""
        await self.close()
        self.connector = aiohttp.TCPConnector(limit=0, ssl=self._certificates)
        return await super().static_login(token)

    def get_ratelimit(self, key: str) -> Ratelimit:
        """Return the state of a bucket."""
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
        """Send one request.

        Raises ErrorResponse, InvalidResponse, RequestsPaused, RateLimited or an error of aiohttp.
        """
        self._guard.check()
        bucket = (route.key, route.major_parameters)
        remaining = self._blocked_until.get(bucket, 0.0) - self.loop.time()
        if remaining > 0:
            raise discord.RateLimited(remaining)
        route.url = self._api_url + route.url.removeprefix(self._api_url).removeprefix(Route.BASE)
        try:
            async with asyncio.timeout(self._limits.request_timeout):
                data = await super().request(route, files=files, form=form, **kwargs)
        except ErrorResponse as error:
            if error.status == 429:
                now = self.loop.time()
                self._blocked_until = {key: until for key, until in self._blocked_until.items() if until > now}
                self._blocked_until[bucket] = now + error.retry_after
            raise
        # The library returns JSON as text if a proxy has added a charset to the content type.
        return json.loads(data) if isinstance(data, str) and data else data


@dataclass(frozen=True, slots=True)
class GatewaySession:
    """A gateway session that can be resumed: its id, its URL and the last event that was stored."""

    id: str
    url: str
    seq: int

    def to_json(self) -> str:
        """Return the session as JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | None) -> Self | None:
        """Parse the text of `to_json`; return None for an empty or invalid text."""
        try:
            return cls(**json.loads(text)) if text else None
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class GatewayEvent:
    """One event as the library names it, the session up to it, and what Discord sent."""

    name: str
    args: tuple[Any, ...]
    session: GatewaySession | None = None
    raw: Any = None


class DiscordClient(discord.Client):
    """The library's client of one shard, which caches its guilds and channels; `GatewayConnection` connects it.

    `on_event` is called with every event, in order: with one of the name UNREADABLE where the library failed
    (its argument is the error), and with one of the name POSITION after each event of the gateway.
    """

    def __init__(
        self,
        http: HTTPClient,
        settings: DiscordSettings,
        limits: Limits,
        *,
        on_event: Callable[[GatewayEvent], None],
        before_event: Callable[[str, Any], Coroutine[Any, Any, None]],
        shard: ShardId,
    ) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # voice is not used
        self._http_client = http
        self._on_event = on_event
        self._before_event = before_event
        self._raw_event: Any = None
        super().__init__(
            intents=build_intents(settings),
            shard_id=shard.number if shard.count > 1 else None,
            shard_count=shard.count if shard.count > 1 else None,
            max_messages=None,
            chunk_guilds_at_startup=False,
            heartbeat_timeout=limits.heartbeat_timeout,
            guild_ready_timeout=limits.guild_ready_timeout,
            allowed_mentions=discord.AllowedMentions.none(),
        )
        self._hooks[BEFORE_EVENT] = self._begin_event
        self._hooks[AFTER_EVENT] = self._end_event

    async def prepare(self, user: Any, application_id: int) -> None:
        """Do what the library's login does after its requests: `user` is the bot as Discord describes it."""
        await self._async_setup_hook()
        self._connection.user = discord.ClientUser(state=self._connection, data=user)
        self._connection.application_id = application_id

    def _get_state(self, **options: Any) -> ConnectionState[Any]:
        self.http = self._http_client
        return super()._get_state(**options)

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Pass an event on together with the session up to it."""
        super().dispatch(event, *args, **kwargs)
        self._on_event(GatewayEvent(event, args, session_of(self.ws), self._raw_event))

    async def _begin_event(self, event: Any) -> None:
        await self._before_event(str(event["t"]), event.get("d"))
        self._raw_event = event

    async def _end_event(self, event: Any, error: Exception | None) -> None:
        self._raw_event = None
        if error is not None:
            self._on_event(GatewayEvent(UNREADABLE, (error,), session_of(self.ws), event))
        elif event["t"] != INTERACTION:  # it is passed once it is answered
            self._on_event(GatewayEvent(POSITION, (), session_of(self.ws)))

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Do not wait before identifying: `IdentifyLimiter` was asked before."""


def build_intents(settings: DiscordSettings) -> discord.Intents:
    """Return the gateway intents: guilds, messages, reactions, typing in private and, if switched on, members."""
    intents = discord.Intents.none()
    intents.guilds = intents.messages = intents.message_content = intents.reactions = True
    intents.dm_typing = True
    intents.members = settings.discord_members_intent
    return intents


def build_http(settings: DiscordSettings, limits: Limits, environment: Mapping[str, str]) -> DiscordHttp:
    """Return the REST client, with the operator's proxy and certificates."""
    base_url, guard = settings.discord_api_base_url, RequestGuard(time.monotonic, limits.max_response_bytes)
    return DiscordHttp(base_url, guard, limits, find_network(base_url, environment))


class GatewaySocket(DiscordWebSocket):
    """The library's gateway socket, with time limits, and tolerant of events that cannot be read."""

    async def received_message(self, msg: Any, /) -> None:
        """Pass a frame to the library; an event that it cannot read costs no other."""
        if isinstance(msg, bytes):
            msg = self._decompressor.decompress(msg)
            if msg is None:
                return
        event, failure = None, None
        try:
            frame = json.loads(msg)
            if isinstance(frame, dict) and frame.get("t"):
                event = frame
                await self.call_hooks(BEFORE_EVENT, event)
            await super().received_message(msg)
        except (ReconnectWebSocket, ConnectionClosed, aiohttp.ClientError, OSError):
            raise
        except Exception as error:  # possibly caused by a user's input: it costs this event only
            failure = error
            logger.debug("a frame of Discord could not be read", exc_info=True)
        if event is not None:
            await self.call_hooks(AFTER_EVENT, event, failure)

    async def send_heartbeat(self, data: Any) -> None:
        """Send a heartbeat.

        The library notes its time only after sending, from another thread: by then a near server has answered,
        and the latency would be counted from the heartbeat before.
        """
        if self._keep_alive is not None:
            self._keep_alive._last_send = time.perf_counter()
        await super().send_heartbeat(data)

    async def poll_event(self) -> None:
        """Wait for the next frame; raise ReconnectWebSocket if nothing arrives for too long."""
        try:
            async with asyncio.timeout(self._max_heartbeat_timeout + self._close_timeout):
                await super().poll_event()
        except TimeoutError:  # closing the socket timed out as well
            raise ReconnectWebSocket(self.shard_id) from None

    async def close(self, code: int = RESUMABLE_CLOSE) -> None:
        """Close the socket, waiting at most CLOSE_TIMEOUT seconds for the answer."""
        try:
            async with asyncio.timeout(self._close_timeout):
                await super().close(code)
        except TimeoutError:
            logger.debug("the gateway did not confirm that the connection is closed")

    @property
    def _close_timeout(self) -> float:
        return min(CLOSE_TIMEOUT, self._max_heartbeat_timeout)


def session_of(socket: DiscordWebSocket | None) -> GatewaySession | None:
    """Return the session of a socket up to the last event; None if there is none to resume."""
    if socket is None or not socket.session_id or not socket.sequence:
        return None
    return GatewaySession(socket.session_id, str(socket.gateway), socket.sequence)
