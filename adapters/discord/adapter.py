"""The Discord adapter: an account for every character that has a token, and its shards, each a gateway connection.

`bot doctor` for Discord: the token, its intents, the guilds of the bot and its invitation link.

Requests are sent by the library's REST client at a configurable base URL, and checked after refusals.
"""

import adapters.discord.library  # noqa: F401  # before anything else asks for the library

# isort: split
import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit
from uuid import UUID

import aiohttp
import discord
from discord.errors import ConnectionClosed
from discord.gateway import ReconnectWebSocket
from discord.http import HTTPClient, Ratelimit, Route
from yarl import URL

import bot.platform as bp
from adapters.discord import errors, gateway
from adapters.discord.commands import CommandHandler, build_registration, locate
from adapters.discord.config import (
    DEVELOPER_PORTAL_URL,
    MAX_SHARDS,
    PLATFORM,
    DiscordSettings,
    Limits,
    find_trusted_origin,
    read_settings,
)
from adapters.discord.faces import FaceSender, Quotes, Webhooks
from adapters.discord.incoming import EntityMapper
from adapters.discord.outside import OutsideQuestions, menu_name
from adapters.discord.sending import MessageSender, ResponseSender, is_outside, is_response, split_reply, thread_name_of
from adapters.discord.sharding import SESSION_CURSOR, ShardAllocation, ShardId, ShardStatus
from bot import (
    ChannelType,
    Clock,
    ConfigError,
    Content,
    Entity,
    Room,
    SettingError,
    Settings,
    TemporaryError,
    World,
    crash_point,
    system_clock,
)
from bot.store import CheckReport, StoreUnavailable

INVALID_STATUSES = (401, 403, 429)
MAX_INVALID, INVALID_WINDOW_SECONDS = 1000, 600.0  # Discord bans an address after 10,000 in ten minutes


class RequestGuard:
    """Raises the error of a refused request, counts refusals, and blocks requests after too many.

    The library would sleep and retry; here the outbox decides that, because it persists deliveries.
    """

    def __init__(self, clock: Callable[[], float], max_response_bytes: int) -> None:
        self._clock = clock
        self._max_response_bytes = max_response_bytes
        self._invalid = bp.SlidingWindow(MAX_INVALID, INVALID_WINDOW_SECONDS)
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
            raise errors.ErrorResponse(429, {"retry_after": seconds, "message": "global rate limit"})
        if self._invalid.times and not self._invalid.count_spare(now):
            raise errors.RequestsPaused(
                f"Discord has refused {MAX_INVALID} requests within ten minutes; requests are suspended"
            )

    async def _on_body_sent(self, session: aiohttp.ClientSession, context: SimpleNamespace, params: Any) -> None:
        path = params.url.path
        if params.method == "POST" and (path.endswith("/messages") or "wait" in params.url.query):
            crash_point("send.post_write")
        if params.method == "POST" and path.endswith("/threads"):
            crash_point("thread.post_write")

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
        if (body := await bp.read_bounded(response, self._max_response_bytes)) is None:
            raise errors.InvalidResponse(f"a response of more than {self._max_response_bytes} bytes")
        response._body = body
        if response.status == 204:
            return None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            if response.status < 400:
                raise errors.InvalidResponse("a response that is not JSON") from None
            return None

    def reject(self, response: aiohttp.ClientResponse, data: Any) -> None:
        """Count a refused request and raise its error."""
        headers = response.headers
        error = errors.ErrorResponse(response.status, data, headers)
        if response.status in INVALID_STATUSES and headers.get("X-RateLimit-Scope") != "shared":
            self._invalid.reserve(self._clock(), self._clock())
        is_global = error.is_global or headers.get("X-RateLimit-Scope") == "global" or "X-RateLimit-Global" in headers
        if response.status == 429 and is_global:
            self._blocked_until = max(self._blocked_until, self._clock() + error.retry_after)
        raise error


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

    def __init__(self, base_url: str, guard: RequestGuard, limits: Limits, network: bp.PlatformNetwork) -> None:
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
        """Return the state of a bucket; with a new one, those that are not used any more are dropped."""
        if key not in self._buckets:
            self._try_clear_expired_ratelimits()
            self._buckets[key] = FailFastBucket(None)
        return self._buckets[key]

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
        except errors.ErrorResponse as error:
            if error.status == 429:
                now = self.loop.time()
                self._blocked_until = {key: until for key, until in self._blocked_until.items() if until > now}
                self._blocked_until[bucket] = now + error.retry_after
            raise
        # The library returns JSON as text if a proxy has added a charset to the content type.
        return json.loads(data) if isinstance(data, str) and data else data


def build_http(settings: DiscordSettings, limits: Limits, environment: Mapping[str, str]) -> DiscordHttp:
    """Return the REST client, with the operator's proxy and certificates."""
    base_url, guard = settings.discord_api_base_url, RequestGuard(time.monotonic, limits.max_response_bytes)
    return DiscordHttp(base_url, guard, limits, bp.find_network(base_url, environment))


logger = logging.getLogger(__name__)
REPEATS, MAX_REPEATS = bp.Backoff(0.5, 8.0), 6  # of a request of an interaction, within its fifteen minutes
CONTESTED_SECONDS = 600.0  # for which an account counts as used by another program
RETRIES = bp.Backoff(10.0, 3600.0, jitter=0.0)  # seconds until an account with an accepted token is tried again
STOP_TIMEOUT = 3.0
MAX_PROBED_ROOMS = 50
TOKEN = "DISCORD_API_TOKEN"
DRAFT_INTERVAL_SECONDS = 1.0  # between two edits of a streamed reply; Discord allows five edits in five seconds


class DiscordShard:
    """Keeps one shard of an account connected and stores its events; whether it brings them, `probe` finds out.

    Connections end regularly and are replaced at once; `status` reports a gap only if that fails. No connection is
    made, and no event read, while one of the queues of events is full.
    """

    def __init__(self, shard: ShardId, account: "DiscordAccount", status: ShardStatus) -> None:
        self.id, self.status = shard, status
        self._account, self._limits = account, account.limits
        self._is_prepared = False
        self._session: gateway.GatewaySession | None = None  # that the next connection resumes
        self._failures, self._backoff = 0, bp.Backoff(1.0, account.limits.max_retry_delay)
        self._identify_limiter = gateway.IdentifyLimiter(time.monotonic)
        self._queues = [gateway.EventQueue(account.limits.max_queued_events) for _ in account.faces]
        self.client = gateway.DiscordClient(account.http, account.settings, account.limits, shard)
        self.probe = gateway.GatewayProbe(
            account.send_request, self._list_rooms, status, account.clock, self.client.end_session
        )
        self.receivers = [
            gateway.EventReceiver(
                face.handle,
                self.client,
                queue,
                self.probe,
                face.mapper,
                account.settings,
                account.limits,
                shard=shard,
                clock=account.clock,
                on_message=account.note_message,
                on_own_message=account.check_own_message,
                on_interaction=lambda event: self._tasks.start(self._handle_interaction(event)),
                on_connected=self._on_connected if face is account.faces[0] else lambda name: None,
            )
            for face, queue in zip(account.faces, self._queues, strict=True)
        ]
        self.client.receivers = self.receivers
        self._tasks = bp.TaskSet("a task of a Discord shard")

    async def run(self) -> None:
        """Stay connected until cancelled; raise ConnectionRejected if Discord rejects that permanently."""
        for receiver in self.receivers:
            self._tasks.start(receiver.run())
        self._tasks.start(self.probe.run(self._limits.probe_seconds))
        while True:
            try:
                if not self._is_prepared:
                    await self.client.prepare(self._account.user, self._account.application_id)
                    self._is_prepared = True
                self._session = await self._read_session()
                await self._keep_connected()
            except gateway.ConnectionRejected:
                raise
            except Exception as error:  # an unreadable response, a store outage or a defect: all may pass
                name = self._account.handle.character.name
                logger.exception("the Discord account of %s failed and is retried later", name)
                self.status.failed(bp.DisconnectCause.FAULT, type(error).__name__)
            await self._limits.sleep(self._limits.max_retry_delay)

    async def stop(self) -> None:
        """End what `run` has started; events that were not stored come again when the session is resumed."""
        await self._tasks.cancel(STOP_TIMEOUT)
        self.status.close()

    async def _read_session(self) -> gateway.GatewaySession | None:
        """Return the session up to the last event that all characters have stored; None where there is no such."""
        name = self.id.cursor_name(SESSION_CURSOR)
        stored = [
            gateway.GatewaySession.from_json(await face.handle.cursor(PLATFORM, face.mapper.account, name))
            for face in self._account.faces
        ]
        sessions = [session for session in stored if session is not None]
        is_same = len(sessions) == len(stored) and len({session.id for session in sessions}) == 1
        return min(sessions, key=lambda session: session.seq) if is_same else None

    async def _handle_interaction(self, event: gateway.GatewayEvent) -> None:
        try:
            await self._account.handle_interaction(*event.args)
        except errors.REQUEST_ERRORS as error:  # the interaction may have expired, or its channel may be gone
            if isinstance(error, errors.ErrorResponse) and error.code == errors.ALREADY_ACKNOWLEDGED:
                logger.debug("an interaction on Discord came again: %s", error)
            else:
                logger.warning("an interaction on Discord was not answered: %s", error or type(error).__name__)
        self.client.enqueue(gateway.GatewayEvent(gateway.POSITION, (), event.session))

    def _on_connected(self, event_name: str) -> None:
        if event_name == gateway.RESUMED and not self.client.guilds:  # at the start: nothing announces them
            self._tasks.start(self.client.guild_fetcher.fetch_all(self.client, self.id))
        self.probe.reset()
        self._failures = 0  # the next connection is made without delay
        self.status.connected()
        self._account.note_connected()

    async def _list_rooms(self) -> list[Room]:
        """Return the rooms whose events this shard brings, those active last first."""
        mapper, conversations = self._account.mapper, self._account.handle.conversations
        rooms = await conversations.rooms()
        rooms = [room for room in rooms if (room.platform, room.account) == (PLATFORM, mapper.account)]
        if self.id.count == 1:
            return rooms
        own = []
        for room in rooms[:MAX_PROBED_ROOMS]:
            world = None if room.type is ChannelType.DM else await conversations.world(room.world_id)
            guild_id = int(world.external_id) if world is not None and world.external_id.isdecimal() else 0
            if self.id.has_guild(guild_id):
                own.append(room)
        return own

    async def _keep_connected(self) -> None:
        """Connect again and again; raise gateway.ConnectionRejected if that is pointless."""
        while True:
            socket: gateway.GatewaySocket | None = None
            try:
                socket = await self._connect()
                async with asyncio.timeout(self._limits.first_event_timeout) as self.client.deadline:
                    while True:
                        await socket.poll_event()
            except gateway.QueueFull:
                self._save_session(socket or self._session)
                self.status.disconnected()
                self._failures = 0  # closed by this side
            except ReconnectWebSocket as closing:
                self._save_session((socket or self._session) if closing.resume else None)
                self._report_disconnect("the gateway ends every connection")
            except ConnectionClosed as closing:
                is_refusal = closing.code in gateway.FATAL_CLOSE_CODES
                if is_refusal and (
                    closing.code != gateway.AUTHENTICATION_FAILED or await self._account.token_check.confirm()
                ):
                    raise gateway.build_rejection(closing.code) from None
                self._save_session(None if is_refusal else socket)
                self._report_disconnect(f"the gateway closes every connection (code {closing.code})")
            except errors.REQUEST_ERRORS as error:
                if errors.is_token_refused(error) and await self._account.token_check.confirm():
                    raise gateway.ConnectionRejected(gateway.INVALID_TOKEN_MESSAGE) from None
                self._save_session(None if self.client.is_session_over else socket or self._session)
                self._report_disconnect(
                    error or type(error).__name__, errors.disconnect_cause_of(error), was_connected=socket is not None
                )
            finally:
                self.client.deadline, self.client.is_session_over = None, False
                if socket is not None:
                    await socket.close()
            self._failures += 1
            await self._limits.sleep(self._backoff.delay(self._failures))

    def _report_disconnect(
        self, reason: object, cause: bp.DisconnectCause = bp.DisconnectCause.PLATFORM, *, was_connected: bool = True
    ) -> None:
        """Report an ended connection; the first one after a working connection is no failure yet."""
        if was_connected and not self._failures:
            self.status.disconnected()
        else:
            self.status.failed(cause, reason)

    def _save_session(self, source: gateway.GatewaySocket | gateway.GatewaySession | None) -> None:
        if isinstance(source, gateway.GatewaySocket):
            source = gateway.session_of(source)
        self._session = source if self._failures < gateway.MAX_RESUMES else None

    async def _connect(self) -> gateway.GatewaySocket:
        for queue in self._queues:
            await queue.wait_for_room()
        session = self._session
        if session is not None:
            options = {"session": session.id, "sequence": session.seq, "resume": True}
            return await self._open_socket(URL(session.url), options)
        has_waited = False
        while True:
            async with self._account.identify_queue.turn(self.id.number):
                gateway_info = await self.client.http.request(Route("GET", "/gateway/bot"))
                limit: dict[str, Any] = {} if has_waited else gateway_info.get("session_start_limit") or {}
                wait = self._identify_limiter.wait_seconds(limit.get("remaining"), limit.get("reset_after", 0) / 1000)
                if not wait:
                    self._identify_limiter.record()
                    return await self._open_socket(URL(gateway_info["url"]), {})
            logger.error("too many Discord sessions were started: the next one starts in %.0f s", wait)
            self.status.failed(bp.DisconnectCause.LIMITED, "too many sessions were started")
            await self._limits.sleep(wait)
            has_waited = True

    async def _open_socket(self, url: URL, options: dict[str, Any]) -> gateway.GatewaySocket:
        async with asyncio.timeout(gateway.CONNECT_TIMEOUT):
            socket = await gateway.GatewaySocket.from_client(
                self.client, gateway=url, shard_id=self.client.shard_id, **options
            )
        self.client.ws = socket
        return socket


@dataclass(frozen=True, slots=True)
class Face:
    """A character of an account: its handle, its ids, and what sends its messages."""

    handle: bp.AgentHandle
    mapper: EntityMapper
    commands: CommandHandler
    sender: MessageSender | FaceSender


class DiscordAccount(bp.Account):
    """One bot account: logs in and stays connected until it is closed.

    `faces` are its characters, one or several that share it; `handle` and `mapper` are those of the first.
    `problem` is why Discord rejects it; then nothing else is sent, and it is tried again with growing pauses.
    """

    def __init__(
        self, handles: Sequence[bp.AgentHandle], settings: DiscordSettings, limits: Limits, clock: Clock
    ) -> None:
        self.handle = handle = handles[0]
        self.problem = ""
        self.is_connected = asyncio.Event()
        self.settings, self.limits, self.clock = settings, limits, clock
        self.trusted_origin = find_trusted_origin(handle.settings)
        self.http = build_http(settings, limits, handle.settings.network_environment())
        self.user: Any = {}
        self.application_id = 0
        self.status = bp.ConnectionStatus(PLATFORM, handle.character.name, clock, agent_id=handle.agent_id)
        self.token_check = bp.TokenCheck(
            self.status,
            self._is_token_accepted,
            gateway.INVALID_TOKEN_MESSAGE,
            bp.TimeSource(now=clock, sleep=limits.sleep),
        )
        self.message_sender = MessageSender(self.send_request, clock)
        self._response_sender = ResponseSender(self.send_request, clock)
        self._typing_indicator = bp.TypingIndicator(self._show_typing, limits.sleep, interval=limits.typing_interval)
        self.identify_queue = gateway.IdentifyQueue(limits, lambda: handle.connection_leases)
        self._outside = OutsideQuestions(handle, self.send_request, clock, limits.sleep, lambda: self.application_id)
        self._cast = bp.Cast(PLATFORM, handles, locate, clock) if len(handles) > 1 else None
        self._quotes, self._webhooks = Quotes(self.message_sender), Webhooks(self.send_request)
        self.faces = [self._build_face(handle) for handle in handles]
        self._senders = {face.mapper.account: face.sender for face in self.faces}
        self.note_message = [self.message_sender.note, *([self._quotes.note] if self._cast is not None else [])]
        self.mapper, self.keys = self.faces[0].mapper, tuple(self._senders)
        self._allocation = ShardAllocation(handle, self.mapper.account, settings.discord_shard_count)
        self._statuses: set[ShardStatus] = set()
        self.shards: dict[ShardId, DiscordShard] = {}
        self._running: dict[ShardId, asyncio.Task[None]] = {}
        self._unreleased: set[ShardId] = set()  # ended here, with a lease that is still to be released
        self._tasks = bp.TaskSet("a task of a Discord account")
        self._is_logged_in = asyncio.Event()
        self._rejection = asyncio.get_running_loop().create_future()
        self._rejections, self._retry_at = 0, clock()
        self._contested_at = clock()

    @property
    def is_elsewhere(self) -> bool:
        """Whether other processes connect all shards of the account."""
        return self._allocation.is_shared and not self.shards and not self.problem

    async def open(self) -> None:
        """Start connecting in the background; without receiving, log in only."""
        self._tasks.start(self._run())

    async def close(self) -> None:
        """Disconnect with a close code that lets the next start resume the sessions."""
        await self._typing_indicator.stop()
        await self.token_check.close()
        await self._outside.stop()
        await self._tasks.cancel(STOP_TIMEOUT)
        await self.identify_queue.stop()
        await self.http.close()

    async def deliver(self, delivery: bp.Delivery) -> str:
        """Send a part and return its message id."""
        await self._wait_until_logged_in()
        if is_outside(delivery):
            return await self._outside.deliver(delivery)
        if is_response(delivery):
            return await self._response_sender.deliver(delivery)
        return await self._senders[delivery.account].deliver(delivery, self.mapper.bot_id)

    async def edit(self, delivery: bp.Delivery) -> str:
        """Edit or delete the message that a part replaces."""
        await self._wait_until_logged_in()
        if is_outside(delivery):
            return await self._outside.edit(delivery)
        return await self._senders[delivery.account].edit(delivery, self.mapper.bot_id)

    async def react(self, delivery: bp.Delivery) -> str:
        """Set or remove a reaction."""
        await self._wait_until_logged_in()
        return await self.message_sender.react(delivery)

    async def open_thread(self, delivery: bp.Delivery) -> str:
        """Open a thread at a message."""
        await self._wait_until_logged_in()
        return await self.message_sender.open_thread(delivery)

    def find_reactions(self, channel_id: int) -> bp.ReactionSet:
        """Return all emoji, and those of the server of a channel that its members can use without a role."""
        channels = (shard.client.get_channel(channel_id) for shard in self.shards.values())
        guild: discord.Guild | None = next((getattr(item, "guild", None) for item in channels if item), None)
        emojis = guild.emojis if guild is not None else ()
        return bp.ReactionSet(custom={item.name: str(item) for item in emojis if item.available and not item.roles})

    async def reconcile(self, delivery: bp.Delivery) -> str:
        """Resolve a part of which it is unknown whether it arrived."""
        try:
            await self._wait_until_logged_in()
        except bp.NotSent as error:
            raise bp.DeliveryUnknown(str(error), retry_after=error.retry_after) from error
        if is_outside(delivery):
            return await self._outside.reconcile(delivery)
        if is_response(delivery):
            return await self._response_sender.reconcile(delivery)
        return await self._senders[delivery.account].reconcile(delivery, self.mapper.bot_id)

    def _build_face(self, handle: bp.AgentHandle) -> Face:
        mapper, sender = EntityMapper(handle.agent_id), self.message_sender
        mapper.cast = self._cast
        commands = CommandHandler(handle, mapper, self.settings, self._send_repeatedly, self._outside)
        if self._cast is None:
            return Face(handle, mapper, commands, sender)
        return Face(handle, mapper, commands, FaceSender(handle, self._cast, self._webhooks, sender, self._quotes))

    async def handle_interaction(self, interaction: discord.Interaction[Any]) -> None:
        """Pass a command to the first character, a button to the one whose message has it."""
        first, message = self.faces[0], interaction.message
        pressed = first.mapper.face_of(message) if message is not None else None
        face = next((face for face in self.faces if face.handle is pressed), first)
        await face.commands.handle(interaction)
        for other in self.faces:
            if other is not face:
                await other.commands.repeat(interaction)

    async def open_direct(self, user_id: str, mapper: EntityMapper) -> tuple[World, Room]:
        """Return the direct channel with a user and its world, opened if there is none; raises as `deliver`."""
        await self._wait_until_logged_in()
        route = Route("POST", "/users/@me/channels")
        try:
            channel = await self.send_request(route, json={"recipient_id": user_id})
        except errors.REQUEST_ERRORS as error:
            raise errors.to_delivery_error(error) from error
        channel_id = int(channel["id"])
        names = (user.get("global_name") or user.get("username") for user in channel.get("recipients") or ())
        room = mapper.to_room(discord.Object(channel_id))
        room = replace(room, type=ChannelType.DM, name=str(next(names, "")))
        return mapper.world_of(None, None, channel_id), room

    def show_typing(self, channel_id: str, active: bool) -> None:
        """Show or hide the typing indicator in a channel."""
        if self._is_logged_in.is_set() and not self.problem and channel_id.isdecimal():
            self._typing_indicator.show(channel_id, active)

    async def _show_typing(self, channel_id: str) -> bool:
        try:
            await self.send_request(Route("POST", "/channels/{channel_id}/typing", channel_id=channel_id))
        except errors.REQUEST_ERRORS as error:  # the indicator is optional
            logger.debug("no typing indicator in channel %s: %s", channel_id, error)
            return False
        return True

    async def _wait_until_logged_in(self) -> None:
        """Wait for the login; raise NotSent after `request_timeout` or if the account was rejected."""
        try:
            async with asyncio.timeout(self.limits.request_timeout):
                await self._is_logged_in.wait()
        except TimeoutError:
            raise bp.NotSent("not logged in with Discord yet") from None
        if self.token_check.is_refused:
            raise bp.NotSent(self.token_check.problem, retry_after=self.token_check.retry_after)
        if self.problem:
            wait = (self._retry_at - self.clock()).total_seconds()
            raise bp.NotSent(self.problem, retry_after=max(wait, 0.0) + 1.0)

    async def send_request(self, route: Route, **kwargs: Any) -> Any:
        """Send one request; if Discord refuses the token, and confirms that, the account stops."""
        try:
            return await self.http.request(route, **kwargs)
        except errors.REQUEST_ERRORS as error:
            if errors.is_token_refused(error, route) and not self.problem and await self.token_check.confirm():
                self._stop_with(gateway.ConnectionRejected(gateway.INVALID_TOKEN_MESSAGE))
            raise

    async def _send_repeatedly(self, route: Route, **kwargs: Any) -> Any:
        """Send one request of an interaction; again, a few times, where that cannot be seen twice."""
        failures = 0
        while True:
            try:
                return await self.send_request(route, **kwargs)
            except errors.REQUEST_ERRORS as error:
                outcome, failures = errors.to_delivery_error(error), failures + 1
                is_repeatable = isinstance(outcome, bp.NotSent) or (
                    isinstance(outcome, bp.DeliveryUnknown) and route.method != "POST"
                )
                if not is_repeatable or failures > MAX_REPEATS or self.problem:
                    raise
                retry_after = getattr(outcome, "retry_after", None) or 0.0
            await self.limits.sleep(REPEATS.delay(failures, retry_after=retry_after))

    async def _is_token_accepted(self) -> bool | None:
        try:
            await self.http.request(Route("GET", "/users/@me"))
        except errors.REQUEST_ERRORS as error:
            return False if errors.is_token_refused(error) else None
        return True

    async def _run(self) -> None:
        refusal: gateway.ShardingRequired | None = None
        while True:
            delay, self._rejection = self.limits.max_retry_delay, asyncio.get_running_loop().create_future()
            try:
                if self.problem or not self._is_logged_in.is_set():
                    await self._log_in()
                if not self.is_receiving:
                    self._mark_connected()
                    raise await self._rejection
                if not self._allocation.count:
                    await self._allocation.choose_count(await self._fetch_recommended_count())
                if refusal is not None:
                    await self._raise_shard_count(refusal)
                    refusal = None
                await self._run_shards()
            except gateway.ShardingRequired as error:
                refusal = error
                continue
            except gateway.ConnectionRejected as error:
                self._stop_with(error)
                if self.token_check.is_refused:
                    await self.token_check.wait_accepted()
                    continue
                self._rejections += 1
                delay = RETRIES.delay(self._rejections)
                self._retry_at = self.clock() + timedelta(seconds=delay)
            except Exception as error:  # an unreadable response, a store outage or a defect: all may pass
                logger.exception("the Discord account of %s failed and is retried later", self.handle.character.name)
                self.status.failed(bp.DisconnectCause.FAULT, type(error).__name__)
            await self.limits.sleep(delay)

    async def _raise_shard_count(self, refusal: gateway.ShardingRequired) -> None:
        """Use the number of shards that Discord recommends; raise ConnectionRejected if it is no larger."""
        if not await self._allocation.raise_count(await self._fetch_recommended_count()):
            raise gateway.ConnectionRejected(str(refusal), refusal.cause)

    async def _run_shards(self) -> None:
        """Run the shards that this process connects; raise what ends one of them."""
        try:
            while True:
                with suppress(StoreUnavailable):
                    await self._connect_own(set(await self._allocation.find_own()))
                is_shared = self._allocation.is_shared or not self._running
                ended, _ = await asyncio.wait(
                    [self._rejection, *self._running.values()],
                    timeout=self.limits.lease_interval if is_shared else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if self._rejection.done():
                    raise self._rejection.result()
                for task in ended:
                    task.result()
        finally:
            await asyncio.gather(*(self._stop_shard(shard) for shard in list(self._running)))

    async def _connect_own(self, own: Collection[ShardId]) -> None:
        """Connect shards, and leave the others to other processes."""
        for shard in [shard for shard in self._running if shard not in own]:
            logger.warning("%s: %s of Discord is left to another process", self.handle.character.name, shard)
            self._unreleased.add(shard)
            await self._stop_shard(shard)
        self._unreleased.difference_update(own)
        for shard in list(self._unreleased):
            await self._allocation.release(shard)
            self._unreleased.discard(shard)
        for shard in sorted(set(own) - self._running.keys()):
            status = ShardStatus(shard, self.status, self._statuses)
            self.shards[shard] = DiscordShard(shard, self, status)
            self._running[shard] = asyncio.create_task(self.shards[shard].run())

    async def _stop_shard(self, shard: ShardId) -> None:
        task = self._running.pop(shard)
        task.cancel()
        await asyncio.gather(asyncio.wait([task]), self.shards.pop(shard).stop())

    async def _log_in(self) -> None:
        token = self.settings.discord_api_token
        self.user = await self._request(lambda: self.http.static_login(token.get_secret_value() if token else ""))
        application = await self._request(self.http.application_info)
        self.application_id = self._webhooks.application_id = int(application["id"])
        for face in self.faces:
            face.mapper.bot_id, face.mapper.application_id = int(self.user["id"]), self.application_id
        self.status.account = f"@{self.user['username']}"
        self._is_logged_in.set()
        self._tasks.start(self._register_commands())

    async def _register_commands(self) -> None:
        """Register the commands; try again while Discord cannot be reached or its answer may change."""
        menu = menu_name(self.handle.character.name) if self.settings.discord_user_install else ""
        account_commands = self._cast.specs if self._cast is not None else ()
        commands = build_registration([*self.handle.commands, *account_commands], menu)
        backoff, is_logged = bp.Backoff(5.0, 600.0), False
        for failures in count(1):
            try:
                await self.http.bulk_upsert_global_commands(self.application_id, commands)
                return
            except errors.REQUEST_ERRORS as error:
                if not is_logged:
                    logger.warning("Discord did not register the commands: %s", error)
                is_logged = True
                if self.problem or (isinstance(error, errors.ErrorResponse) and error.is_final):
                    return
            await self.limits.sleep(backoff.delay(failures))

    async def _fetch_recommended_count(self) -> int:
        """Return how many shards Discord recommends for the bot; note how many sessions may start at the same time."""
        info = await self._request(lambda: self.http.request(Route("GET", "/gateway/bot")))
        limit = info.get("session_start_limit") or {}
        self.identify_queue.max_concurrency = max(int(limit.get("max_concurrency") or 1), 1)
        count = max(int(info.get("shards") or 1), 1)
        if count > MAX_SHARDS:
            raise errors.InvalidResponse(f"the response recommends {count} shards")
        return count

    async def _request(self, send: Callable[[], Awaitable[Any]]) -> Any:
        """Send a request again until Discord answers it; raise ConnectionRejected if the token is invalid."""
        backoff, failures = bp.Backoff(1.0, self.limits.max_retry_delay), 0
        while True:
            try:
                return await send()
            except errors.REQUEST_ERRORS as error:
                if errors.is_token_refused(error) and await self.token_check.confirm():
                    raise gateway.ConnectionRejected(gateway.INVALID_TOKEN_MESSAGE) from None
                failures += 1
                self.status.failed(errors.disconnect_cause_of(error), error or type(error).__name__)
            await self.limits.sleep(backoff.delay(failures))

    def _stop_with(self, rejection: gateway.ConnectionRejected) -> None:
        """Send nothing more until Discord accepts the account again."""
        if not self._rejection.done():
            self._rejection.set_result(rejection)
        self.problem = str(rejection)
        self._is_logged_in.set()  # releases those who wait for the login
        self.is_connected.set()
        self.status.stopped(rejection.cause, rejection)

    def _mark_connected(self) -> None:
        if self.problem:
            self.problem, self._rejections = "", 0
        self.status.accepted()

    def check_own_message(self, nonce: str, channel_id: int) -> None:
        """Find out, in the background, whether this account has sent a message of its own that it received."""
        if not self.message_sender.has_sent(nonce):
            self._tasks.start(self._report_foreign_message(nonce, channel_id))

    async def _report_foreign_message(self, nonce: str, channel_id: int) -> None:
        """Report another program that writes as the bot; processes that share the store know what each has sent."""
        try:
            if await self.handle.conversations.delivery(nonce) is not None:
                return
        except StoreUnavailable:
            return
        self._contested_at = contested_at = self.clock()
        self.status.failed(
            bp.DisconnectCause.CONTESTED,
            f"another program uses the token of {self.status.account} and has written in channel {channel_id}, so that "
            "people may be answered twice: stop it, or give each an application of its own",
        )
        await self.limits.sleep(CONTESTED_SECONDS)
        if self._contested_at == contested_at and self.status.snapshot.cause is bp.DisconnectCause.CONTESTED:
            self.status.connected()

    def note_connected(self) -> None:
        """Record that a shard is connected; the account is once all its shards are."""
        if not all(shard.status.is_connected for shard in self.shards.values()):
            return
        self._mark_connected()
        if self.is_connected.is_set():
            return
        servers = sum(len(shard.client.guilds) for shard in self.shards.values())
        details = f"servers: {servers}" if servers else "its session was resumed"
        logger.info("connected to Discord as %s (%s)", self.status.account, details)
        self.is_connected.set()


class DiscordAdapter(bp.AccountAdapter[DiscordAccount]):
    """Connects every character that has a token; accounts are independent of each other.

    Characters with the same token share its account.
    """

    platform = PLATFORM
    can_edit = True
    shows_choices: ClassVar[bool] = True
    sends_response_files: ClassVar[bool] = True
    hides_responses: ClassVar[bool] = True
    voice_type: ClassVar[str] = "audio/mpeg"

    def __init__(
        self, handles: Sequence[bp.AgentHandle], *, limits: Limits | None = None, clock: Clock = system_clock
    ) -> None:
        groups = bp.group_accounts(handles, PLATFORM, (TOKEN,), lambda handle: handle.settings.require(TOKEN)).values()
        limits = limits or Limits()
        super().__init__(DiscordAccount(group, read_settings(group[0].settings), limits, clock) for group in groups)
        # servers of the operator's
        self.is_trusted_audience = all(account.trusted_origin for account in self.accounts)

    @property
    def connections(self) -> Sequence[bp.ConnectionStatus]:
        """Return the gateway connection status of each account that this process connects."""
        return [account.status for account in self.accounts if not account.is_elsewhere]

    def split_content(self, content: Content) -> list[Content]:
        """Split a reply into messages."""
        return split_reply(content)

    def render_notice(self, text: str) -> str:
        """Return the line in small letters."""
        return f"-# {text}"

    async def deliver(self, delivery: bp.Delivery) -> str:
        """Send one part, with its own id as nonce."""
        return await self.account_for(delivery).deliver(delivery)

    async def edit(self, delivery: bp.Delivery) -> str:
        """Edit or delete the message that a part replaces."""
        return await self.account_for(delivery).edit(delivery)

    def find_reactions(self, room: Room) -> bp.ReactionSet | None:
        """Return the emoji of Discord and of the server."""
        account = self._accounts.get(room.account)
        return account.find_reactions(int(room.external_id)) if account and room.external_id.isdecimal() else None

    async def react(self, delivery: bp.Delivery) -> str:
        """Set or remove a reaction."""
        return await self.account_for(delivery).react(delivery)

    def can_open_thread(self, room: Room) -> bool:
        """Return whether a room is a channel whose messages can have threads; threads and posts of forums have none."""
        return (
            room.type is ChannelType.GROUP
            and self._accounts.get(room.account) is not None
            and room.external_id.isdecimal()
        )

    async def open_thread(self, delivery: bp.Delivery, *, is_repeat: bool = False) -> str:
        """Open a thread at a message, or return the one that it has."""
        return await self.account_for(delivery).open_thread(delivery)

    def build_thread(self, delivery: bp.Delivery, room: Room) -> Room:
        """Return the room of a thread that was opened in a channel."""
        return replace(
            room,
            id=EntityMapper(UUID(room.account)).room_id(delivery.external_id),
            type=ChannelType.THREAD,
            external_id=delivery.external_id,
            name=thread_name_of(delivery),
            parent_id=room.id,
        )

    def thread_message_id(self, room: Room) -> str:
        """Return the id of the thread, which is also that of the message at which it was opened."""
        return room.external_id

    def trusted_origin(self, account: str) -> str:
        """Return the origin of the server with Discord's API that the operator has set for an account."""
        discord_account = self._accounts.get(account)
        return discord_account.trusted_origin if discord_account is not None else ""

    def stream_interval(self, room: Room) -> float | None:
        """Return the seconds between two edits of a streamed reply; the answer to a question from outside is whole."""
        return DRAFT_INTERVAL_SECONDS if room.external_id.isdecimal() else None

    async def reconcile(self, delivery: bp.Delivery) -> str:
        """Resend an unclear part while Discord remembers its nonce; after that, search the channel for it."""
        return await self.account_for(delivery).reconcile(delivery)

    async def open_direct(self, agent_id: UUID, person: Entity) -> tuple[World, Room] | None:
        """Return the direct channel with a user, opened if there is none; None without an account of the agent."""
        account = self._accounts.get(str(agent_id))
        if account is None or not person.external_id.isdecimal():
            return None
        return await account.open_direct(person.external_id, EntityMapper(agent_id))

    async def set_typing(self, room: Room, active: bool) -> None:
        """Show or hide the typing indicator in a room."""
        account = self._accounts.get(room.account)
        if account is not None:
            account.show_typing(room.external_id, active)

    def account_for(self, delivery: bp.Delivery) -> DiscordAccount:
        """Return the account that a delivery names. Raises NotSent if this process has none."""
        if (account := self._accounts.get(delivery.account)) is None:
            raise bp.NotSent("the character has no Discord account in this process")
        return account


def open_discord(handles: Sequence[bp.AgentHandle]) -> DiscordAdapter:
    """Return the adapter for the characters that have a token and list Discord.

    Raises ConfigError if none has, or if two characters share a token without DISCORD_FACES.
    """
    groups = bp.share_accounts(
        handles,
        PLATFORM,
        (TOKEN,),
        lambda handle: handle.settings.require(TOKEN),
        lambda handle: read_settings(handle.settings).discord_faces is not None,
    )
    if not groups:
        raise ConfigError("DISCORD_API_TOKEN is not set: set it in .env, the environment or the character's secrets")
    return DiscordAdapter([handle for group in groups for handle in group])


REQUIRED_PERMISSIONS = discord.Permissions(
    view_channel=True,
    send_messages=True,
    send_messages_in_threads=True,
    read_message_history=True,
    embed_links=True,
    attach_files=True,
)
MAX_GUILDS = 20
VisibleGuild = tuple[str, set[str]]  # name; ids of the guild, its channels and its threads


async def check(settings: Settings, read_cursor: bp.CursorReader) -> CheckReport:
    """Check token, intents and guilds without connecting; raise SettingError or TemporaryError."""
    limits, discord_settings, environment = Limits(), read_settings(settings), settings.network_environment()
    http = build_http(discord_settings, limits, environment)
    token = discord_settings.discord_api_token
    try:
        user = await http.static_login(token.get_secret_value() if token else "")
        application = await http.request(Route("GET", "/oauth2/applications/@me"))
        guilds = await _fetch_guilds(http)
    except errors.REQUEST_ERRORS as error:
        if errors.is_token_refused(error):
            raise SettingError(gateway.INVALID_TOKEN_MESSAGE) from None
        cause = bp.describe_client_error(error) if isinstance(error, aiohttp.ClientError) else str(error)
        raise TemporaryError(f"{discord_settings.discord_api_base_url}: {cause or type(error).__name__}") from error
    finally:
        await http.close()
    problems = [
        *_intent_problems(application, discord_settings),
        *_install_problems(application, discord_settings),
        *_guild_problems(guilds, discord_settings),
    ]
    guild_texts = [f"{name} ({len(visible_ids) - 1} channels)" for name, visible_ids in guilds]
    facts: dict[str, str | int] = {
        "servers": ", ".join(guild_texts) or "none",
        "permissions": find_permissions(discord_settings).value,
        "invitation": invite_link(str(application.get("id")), find_permissions(discord_settings)),
    }
    if discord_settings.discord_user_install:
        facts["for people to install"] = install_link(str(application.get("id")))
    return CheckReport(f"discord: {user.get('username')}", True, problems=tuple(problems), facts=facts)


def find_permissions(settings: DiscordSettings) -> discord.Permissions:
    """Return the fewest permissions that the bot needs."""
    shared = discord.Permissions(manage_webhooks=True) if settings.discord_faces else discord.Permissions.none()
    return REQUIRED_PERMISSIONS | shared


def invite_link(application_id: str, permissions: discord.Permissions = REQUIRED_PERMISSIONS) -> str:
    """Return the URL with which the owner of a guild adds the bot, with the permissions it needs."""
    query = {"client_id": application_id, "scope": "bot applications.commands", "permissions": permissions.value}
    return f"https://discord.com/oauth2/authorize?{urlencode(query)}"


def install_link(application_id: str) -> str:
    """Return the URL with which a person installs the bot for themselves."""
    query = {"client_id": application_id, "scope": "applications.commands", "integration_type": 1}
    return f"https://discord.com/oauth2/authorize?{urlencode(query)}"


def _install_problems(application: Mapping[str, Any], settings: DiscordSettings) -> Iterator[str]:
    if settings.discord_user_install and "1" not in (application.get("integration_types_config") or {}):
        page = f"{DEVELOPER_PORTAL_URL}, your application, Installation"
        yield f"DISCORD_USER_INSTALL is on, and User Install is off: switch it on at {page}"


def _intent_problems(application: Mapping[str, Any], settings: DiscordSettings) -> Iterator[str]:
    flags = discord.ApplicationFlags._from_value(int(application.get("flags") or 0))
    required = {"Message Content Intent": flags.gateway_message_content or flags.gateway_message_content_limited}
    if settings.discord_members_intent:
        required["Server Members Intent"] = flags.gateway_guild_members or flags.gateway_guild_members_limited
    portal_page = f"{DEVELOPER_PORTAL_URL}, your application, Bot, Privileged Gateway Intents"
    for intent, is_enabled in required.items():
        if not is_enabled:
            yield f"{intent} is off: switch it on at {portal_page}"


def _guild_problems(guilds: Sequence[VisibleGuild], settings: DiscordSettings) -> Iterator[str]:
    if not guilds and not settings.discord_user_install:
        yield "the bot is in no server yet: open the invitation link and choose one"
    if not guilds:
        return
    visible_ids = set[str]().union(*(ids for _, ids in guilds))
    for name in ("channel_ids", "discord_listen_channel_ids"):
        for missing in sorted(set(getattr(settings, name)) - visible_ids):
            yield f"{name.upper()} contains {missing}, which the bot cannot see: correct it"


async def _fetch_guilds(http: DiscordHttp) -> list[VisibleGuild]:
    """Return the guilds that the bot is in, each with the ids that a variable may name."""
    guilds: list[VisibleGuild] = []
    for guild in (await http.request(Route("GET", "/users/@me/guilds")))[:MAX_GUILDS]:
        path_ids = {"guild_id": guild["id"]}
        channels = await http.request(Route("GET", "/guilds/{guild_id}/channels", **path_ids))
        active_threads = await http.request(Route("GET", "/guilds/{guild_id}/threads/active", **path_ids))
        visible_ids = {str(item["id"]) for item in (guild, *channels, *active_threads.get("threads", ()))}
        guilds.append((str(guild["name"]), visible_ids))
    return guilds
