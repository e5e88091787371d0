"""The gateway connection: resume a session, start a new one, or report why neither is possible."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from discord.errors import ConnectionClosed
from discord.gateway import ReconnectWebSocket
from discord.http import Route
from yarl import URL

from adapters.discord.client import (
    DiscordClient,
    GatewaySession,
    GatewaySocket,
    IdentifyLimiter,
    IdentifyQueue,
    session_of,
)
from adapters.discord.config import DEVELOPER_PORTAL_URL, Limits
from adapters.discord.errors import REQUEST_ERRORS, disconnect_cause_of, is_token_refused
from adapters.discord.receiving import QueueFull
from adapters.discord.sharding import ShardId, ShardStatus
from bot.platform import Backoff, DisconnectCause

logger = logging.getLogger(__name__)
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
    No connection is made before `wait_for_room` returns.
    """

    def __init__(
        self,
        client: DiscordClient,
        identify_queue: IdentifyQueue,
        limits: Limits,
        status: ShardStatus,
        *,
        shard: ShardId,
        wait_for_room: Callable[[], Awaitable[None]],
        is_token_refused: Callable[[], Awaitable[bool]],
    ) -> None:
        self.session: GatewaySession | None = None
        self._client = client
        self._identify_limiter, self._identify_queue = IdentifyLimiter(time.monotonic), identify_queue
        self._shard = shard
        self._limits = limits
        self._status = status
        self._wait_for_room, self._is_token_refused = wait_for_room, is_token_refused
        self._failures = 0
        self._is_session_over = False
        self._deadline: asyncio.Timeout | None = None  # of the connection: for its first event
        self._backoff = Backoff(1.0, limits.max_retry_delay)

    def mark_connected(self) -> None:
        """Record that the connection works: the next one is made without delay."""
        self._failures = 0
        self._status.connected()

    def note_event(self) -> None:
        """Record that the connection brings events."""
        self._set_deadline(None)

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
        await self._wait_for_room()
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
