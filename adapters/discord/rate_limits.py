"""Checks of requests after refusals, and the order and limit of new gateway sessions."""

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import aiohttp

from adapters.discord.config import Limits
from adapters.discord.errors import ErrorResponse, InvalidResponse, RequestsPaused
from bot import crash_point
from bot.platform import TaskSet
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

    def __init__(self, clock: Callable[[], float], *, max_response_bytes: int) -> None:
        self._clock = clock
        self._max_response_bytes = max_response_bytes
        self._invalid: deque[float] = deque(maxlen=MAX_INVALID)
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
        if len(self._invalid) == MAX_INVALID and now - self._invalid[0] < INVALID_WINDOW_SECONDS:
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
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > self._max_response_bytes:
                raise InvalidResponse(f"a response of more than {self._max_response_bytes} bytes")
        response._body = bytes(body)
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
            self._invalid.append(self._clock())
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
        self._started_at: deque[float] = deque(maxlen=MAX_PER_DAY)

    def wait_seconds(self, remaining: int | None = None, reset_after: float = 0.0) -> float:
        """Return the seconds until the next session may start; the parameters come from Discord."""
        if remaining is not None and remaining <= DAILY_RESERVE:
            return max(reset_after, 1.0)
        now = self._clock()
        if self._started_since(MAX_PER_HOUR, now - HOUR) or self._started_since(MAX_PER_DAY, now - DAY):
            return max(0.0, self._started_at[-1] + DELAY_SECONDS - now)
        return 0.0

    def record(self) -> None:
        """Count a new session."""
        self._started_at.append(self._clock())

    def _started_since(self, count: int, since: float) -> bool:
        """Return whether `count` sessions have started since then."""
        return len(self._started_at) >= count and self._started_at[-count] > since
