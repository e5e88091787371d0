"""The gateway: its session, the library's client and socket, the queue of events, and the connection of a shard.

New sessions are limited in their number and order. Guilds that Discord announces only at the start of a session are
fetched. A probe finds out whether the gateway brings what is written: a socket that lives may still bring nothing.
"""

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import discord
from discord.errors import ConnectionClosed
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from discord.http import HTTPClient, Route
from discord.state import ConnectionState
from yarl import URL

from adapters.discord.config import DEVELOPER_PORTAL_URL, DiscordSettings, Limits
from adapters.discord.errors import REQUEST_ERRORS, disconnect_cause_of, is_token_refused
from adapters.discord.receiving import POSITION, UNREADABLE, EventQueue, GatewayEvent, GatewaySession, QueueFull
from adapters.discord.sharding import ShardId, ShardStatus
from bot.platform import Backoff, BoundedDict, DisconnectCause, SlidingWindow, TaskSet
from bot.store import LeaseSharing, StoreUnavailable

MAX_PER_HOUR, MAX_PER_DAY = 50, 500
HOUR, DAY, DELAY_SECONDS = 3600.0, 86_400.0, 1800.0
DAILY_RESERVE = 50  # of the thousand a day; people may want to start the bot too
GUILD_EVENTS = frozenset({"GUILD_CREATE", "GUILD_UPDATE", "GUILD_DELETE"})
MAX_FAILED_GUILDS, MAX_FETCHED_GUILDS = 1000, 100
RETRY_SECONDS = 60.0  # seconds until an unknown guild is requested again
logger = logging.getLogger(__name__)
BEFORE_EVENT = "before_event"  # hook awaited with each event before the library reads it
AFTER_EVENT = "after_event"  # hook awaited with each event and, where it could not be read, the error
FRAME_EVENT = "socket_event_type"  # the library's report of each frame, before it reads it
RESUMABLE_CLOSE = 4000  # close code that keeps the session; 1000 and 1001 end it
CLOSE_TIMEOUT = 2.0


class DiscordClient(discord.Client):
    """The library's client of one shard, which caches its guilds and channels; `GatewayConnection` connects it.

    `on_event` is called with every event, in order, and returns whether it takes it: with one of the name UNREADABLE
    where the library failed (its argument is the error), and with one of the name POSITION after each event of the
    gateway of which nothing was taken. `before_event` is awaited before the library reads an event. Who uses the client
    sets both.
    """

    def __init__(self, http: HTTPClient, settings: DiscordSettings, limits: Limits, shard: ShardId) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # voice is not used
        self._http_client = http
        self.on_event: Callable[[GatewayEvent], bool] = lambda event: False
        self.before_event: Callable[[str, Any], Coroutine[Any, Any, None]] = lambda name, data: asyncio.sleep(0)
        self._raw_event: Any = None
        self._is_taken = False
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
        if event != FRAME_EVENT:
            self._is_taken |= self.on_event(GatewayEvent(event, args, session_of(self.ws), self._raw_event))

    async def _begin_event(self, event: Any) -> None:
        await self.before_event(str(event["t"]), event.get("d"))
        self._raw_event, self._is_taken = event, False

    async def _end_event(self, event: Any, error: Exception | None) -> None:
        self._raw_event = None
        if error is not None:
            self.on_event(GatewayEvent(UNREADABLE, (error,), session_of(self.ws), event))
        elif not self._is_taken:
            self.on_event(GatewayEvent(POSITION, (), session_of(self.ws)))

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Do not wait before identifying: `IdentifyLimiter` was asked before."""


def build_intents(settings: DiscordSettings) -> discord.Intents:
    """Return the gateway intents: guilds, messages, reactions, typing in private and, if switched on, members."""
    intents = discord.Intents.none()
    intents.guilds = intents.messages = intents.message_content = intents.reactions = True
    intents.dm_typing = True
    intents.members = settings.discord_members_intent
    return intents


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


class GuildFetcher:
    """Fetches unknown guilds into the library's cache before their first event is read."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._retry_at = BoundedDict[int, float](MAX_FAILED_GUILDS)  # by guild id: monotonic seconds

    async def ensure_guild(self, client: discord.Client, event: str, data: Any) -> None:
        """Fetch the guild of an event if it is unknown; if that fails, the event is read without it."""
        raw_guild_id = data.get("id" if event in GUILD_EVENTS else "guild_id") if isinstance(data, dict) else None
        if event == "GUILD_CREATE" or not str(raw_guild_id or "").isdigit():
            return
        guild_id = int(str(raw_guild_id))
        if client.get_guild(guild_id) is not None:
            return
        if event == "GUILD_DELETE":  # the library discards it otherwise
            client._connection._add_guild_from_data(
                {"id": guild_id, "unavailable": True}  # type: ignore[typeddict-item]  # as the library does itself
            )
            return
        await self._fetch(client, guild_id)

    async def fetch_all(self, client: discord.Client, shard: ShardId) -> None:
        """Fetch a shard's unknown guilds, at most MAX_FETCHED_GUILDS; others are fetched with their first event."""
        try:
            guilds = await client.http.request(Route("GET", "/users/@me/guilds"))
        except REQUEST_ERRORS as error:
            logger.warning("the servers of the bot could not be listed: %s", error)
            return
        guild_ids = [int(guild["id"]) for guild in guilds if shard.has_guild(int(guild["id"]))]
        for guild_id in guild_ids[:MAX_FETCHED_GUILDS]:
            if client.get_guild(guild_id) is None:
                await self._fetch(client, guild_id)

    async def _fetch(self, client: discord.Client, guild_id: int) -> None:
        if self._clock() < self._retry_at.get(guild_id, 0.0):
            return
        try:
            guild = await self._fetch_guild(client, guild_id)
        except REQUEST_ERRORS as error:
            logger.warning("server %s is unknown and could not be fetched: %s", guild_id, error)
            self._retry_at[guild_id] = self._clock() + RETRY_SECONDS
            return
        if client.get_guild(guild_id) is None:  # it may have been announced meanwhile
            client._connection.parse_guild_create(guild)

    async def _fetch_guild(self, client: discord.Client, guild_id: int) -> Any:
        guild = await client.http.request(Route("GET", "/guilds/{guild_id}", guild_id=guild_id))
        channels = await client.http.request(Route("GET", "/guilds/{guild_id}/channels", guild_id=guild_id))
        active_threads = await client.http.request(Route("GET", "/guilds/{guild_id}/threads/active", guild_id=guild_id))
        return {**guild, "channels": channels, "threads": active_threads.get("threads", []), "unavailable": False}


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


CONNECT_TIMEOUT = 60.0
MAX_RESUMES = 5  # in a row without success; the server that holds the session may be gone
INVALID_TOKEN_MESSAGE = (
    "Discord does not accept the token: set DISCORD_API_TOKEN to the one that "
    f"{DEVELOPER_PORTAL_URL} shows for your application under Bot, Reset Token"
)
AUTHENTICATION_FAILED, SHARDING_REQUIRED = 4004, 4011
FATAL_CLOSE_CODES = {
    AUTHENTICATION_FAILED: INVALID_TOKEN_MESSAGE,
    4010: "Discord refuses the shard: unset DISCORD_SHARD_COUNT, so that Discord's recommendation is used",
    SHARDING_REQUIRED: "Discord requires sharding: the bot is in too many servers for its connections; unset "
    "DISCORD_SHARD_COUNT, so that Discord's recommendation is used",
    4012: "Discord no longer supports this API version: update discord.py",
    4013: "Discord does not know the requested intents: update discord.py",
    4014: "Discord refuses the intents: open "
    f"{DEVELOPER_PORTAL_URL}, your application, Bot, Privileged Gateway Intents, and switch on "
    "Message Content Intent (and Server Members Intent where DISCORD_MEMBERS_INTENT is on)",
}


class ConnectionRejected(Exception):
    """Discord rejects the account until its operator changes what the message names."""

    def __init__(self, problem: str, cause: DisconnectCause = DisconnectCause.REFUSED) -> None:
        super().__init__(problem)
        self.cause = cause


class ShardingRequired(ConnectionRejected):
    """The bot is in too many servers for its number of connections."""


class GatewayConnection:
    """Keeps one client connected; `session` is what the next connection resumes.

    Connections end regularly and are replaced at once; `status` reports a gap only if that fails.
    No connection is made, and no event read, while the `queue` of events is full. `note_unavailable` is told which
    guilds were unavailable before the session was resumed.
    """

    def __init__(
        self,
        client: DiscordClient,
        identify_queue: IdentifyQueue,
        limits: Limits,
        status: ShardStatus,
        *,
        shard: ShardId,
        queue: EventQueue,
        is_token_refused: Callable[[], Awaitable[bool]],
        note_unavailable: Callable[[int], None],
    ) -> None:
        self.session: GatewaySession | None = None
        self._client = client
        self._identify_limiter, self._identify_queue = IdentifyLimiter(time.monotonic), identify_queue
        self._shard = shard
        self._limits = limits
        self._status = status
        self._queue, self._is_token_refused = queue, is_token_refused
        self._note_unavailable = note_unavailable
        self.guild_fetcher = GuildFetcher(time.monotonic)
        client.before_event = self._before_event
        self._failures = 0
        self._is_session_over = False
        self._deadline: asyncio.Timeout | None = None  # of the connection: for its first event
        self._backoff = Backoff(1.0, limits.max_retry_delay)

    def mark_connected(self) -> None:
        """Record that the connection works: the next one is made without delay."""
        self._failures = 0
        self._status.connected()

    async def _before_event(self, name: str, data: Any) -> None:
        self._set_deadline(None)  # the connection brings events
        await self._queue.require_room(self._limits.queue_full_timeout)
        await self.guild_fetcher.ensure_guild(self._client, name, data)
        if name == "GUILD_CREATE" and data.get("unavailable") is False:
            guild_id = int(data["id"])
            if self._client.get_guild(guild_id) is None:
                self._note_unavailable(guild_id)  # since before the session was resumed

    def end_session(self) -> None:
        """Replace the connection, which does not bring what is written, by one with a new session."""
        self._is_session_over = self._set_deadline(asyncio.get_running_loop().time())

    def _set_deadline(self, at: float | None) -> bool:
        """Set when the connection ends, by the loop's time; return False if there is none, or it ends already."""
        if self._deadline is None or self._deadline.expired() or self._is_session_over:
            return False
        self._deadline.reschedule(at)
        return True

    async def run(self) -> None:
        """Connect again and again; raise ConnectionRejected if that is pointless."""
        while True:
            socket: GatewaySocket | None = None
            try:
                socket = await self._connect()
                async with asyncio.timeout(self._limits.first_event_timeout) as self._deadline:
                    while True:
                        await socket.poll_event()
            except QueueFull:
                self._save_session(socket or self.session)
                self._status.disconnected()
                self._failures = 0  # closed by this side
            except ReconnectWebSocket as closing:
                self._save_session((socket or self.session) if closing.resume else None)
                self._report_disconnect("the gateway ends every connection")
            except ConnectionClosed as closing:
                is_refusal = closing.code in FATAL_CLOSE_CODES
                if is_refusal and (closing.code != AUTHENTICATION_FAILED or await self._is_token_refused()):
                    raise _build_rejection(closing.code) from None
                self._save_session(None if is_refusal else socket)
                self._report_disconnect(f"the gateway closes every connection (code {closing.code})")
            except REQUEST_ERRORS as error:
                if is_token_refused(error) and await self._is_token_refused():
                    raise ConnectionRejected(INVALID_TOKEN_MESSAGE) from None
                self._save_session(None if self._is_session_over else socket or self.session)
                self._report_disconnect(
                    error or type(error).__name__, disconnect_cause_of(error), was_connected=socket is not None
                )
            finally:
                self._deadline, self._is_session_over = None, False
                if socket is not None:
                    await socket.close()
            self._failures += 1
            await self._limits.sleep(self._backoff.delay(self._failures))

    def _report_disconnect(
        self, reason: object, cause: DisconnectCause = DisconnectCause.PLATFORM, *, was_connected: bool = True
    ) -> None:
        """Report an ended connection; the first one after a working connection is no failure yet."""
        if was_connected and not self._failures:
            self._status.disconnected()
        else:
            self._status.failed(cause, reason)

    def _save_session(self, source: GatewaySocket | GatewaySession | None) -> None:
        if isinstance(source, GatewaySocket):
            source = session_of(source)
        self.session = source if self._failures < MAX_RESUMES else None

    async def _connect(self) -> GatewaySocket:
        await self._queue.wait_for_room()
        session = self.session
        if session is not None:
            options = {"session": session.id, "sequence": session.seq, "resume": True}
            return await self._open_socket(URL(session.url), options)
        has_waited = False
        while True:
            async with self._identify_queue.turn(self._shard.number):
                gateway_info = await self._client.http.request(Route("GET", "/gateway/bot"))
                limit: dict[str, Any] = {} if has_waited else gateway_info.get("session_start_limit") or {}
                wait = self._identify_limiter.wait_seconds(limit.get("remaining"), limit.get("reset_after", 0) / 1000)
                if not wait:
                    self._identify_limiter.record()
                    return await self._open_socket(URL(gateway_info["url"]), {})
            logger.error("too many Discord sessions were started: the next one starts in %.0f s", wait)
            self._status.failed(DisconnectCause.LIMITED, "too many sessions were started")
            await self._limits.sleep(wait)
            has_waited = True

    async def _open_socket(self, url: URL, options: dict[str, Any]) -> GatewaySocket:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            socket = await GatewaySocket.from_client(
                self._client, gateway=url, shard_id=self._client.shard_id, **options
            )
        self._client.ws = socket
        return socket


def _build_rejection(code: int) -> ConnectionRejected:
    kind = ShardingRequired if code == SHARDING_REQUIRED else ConnectionRejected
    return kind(
        FATAL_CLOSE_CODES[code], DisconnectCause.REFUSED if code == AUTHENTICATION_FAILED else DisconnectCause.FORBIDDEN
    )
