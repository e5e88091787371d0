"""Request checks after refusals; identify budget."""

import json
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp

from adapters.discord.errors import ErrorResponse, InvalidResponse, RequestsPaused
from bot import crash_point

INVALID_STATUSES = (401, 403, 429)
MAX_INVALID, INVALID_WINDOW_SECONDS = 1000, 600.0  # Discord bans an address after 10,000 in ten minutes


class RequestGuard:
    """Raises what a refused request means; counts refusals, and lets nothing through after too many.

    The library would sleep and try again on its own; here that is for the outbox to decide, which keeps
    what it does. Other requests of a bucket that is used up fail at once as well, by the library's own books.
    """

    def __init__(self, clock: Callable[[], float], *, max_response_bytes: int) -> None:
        self._clock = clock
        self._max_response_bytes = max_response_bytes
        self._invalid: deque[float] = deque(maxlen=MAX_INVALID)
        self._blocked_until = 0.0

    def build_trace(self) -> aiohttp.TraceConfig:
        """Give what the client is to be built with."""
        trace = aiohttp.TraceConfig()
        trace.on_request_chunk_sent.append(self._on_body_sent)
        trace.on_request_end.append(self._on_response)
        return trace

    def check(self) -> None:
        """Raise where nothing is to be asked just now: a limit of the whole bot, or too many refusals."""
        now = self._clock()
        if now < self._blocked_until:
            seconds = self._blocked_until - now
            raise ErrorResponse(429, {"retry_after": seconds, "message": "the limit of the whole bot"})
        if len(self._invalid) == MAX_INVALID and now - self._invalid[0] < INVALID_WINDOW_SECONDS:
            raise RequestsPaused(
                f"Discord has refused {MAX_INVALID} requests within ten minutes; nothing is asked"
            )

    async def _on_body_sent(
        self, session: aiohttp.ClientSession, context: SimpleNamespace, params: Any
    ) -> None:
        if params.method == "POST" and params.url.path.endswith("/messages"):
            crash_point("send.post_write")

    async def _on_response(
        self, session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestEndParams
    ) -> None:
        response = params.response
        if response.status == 101:  # the gateway's socket
            return
        try:
            data = await self._read_response(response)
            if response.status >= 400:
                self.reject(response, data)
        except BaseException:
            response.close()
            raise

    async def _read_response(self, response: aiohttp.ClientResponse) -> Any:
        """Read an answer, bounded; the library finds it already read."""
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > self._max_response_bytes:
                raise InvalidResponse(f"an answer of more than {self._max_response_bytes} bytes")
        response._body = bytes(body)
        if response.status == 204:
            return None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            if response.status < 400:
                raise InvalidResponse("an answer that is no JSON") from None
            return None

    def reject(self, response: aiohttp.ClientResponse, data: Any) -> None:
        """Count an answer that refuses, and raise what it means."""
        headers = response.headers
        error = ErrorResponse(response.status, data, headers)
        if response.status in INVALID_STATUSES and headers.get("X-RateLimit-Scope") != "shared":
            self._invalid.append(self._clock())
        is_global = (
            error.is_global or headers.get("X-RateLimit-Scope") == "global" or "X-RateLimit-Global" in headers
        )
        if response.status == 429 and is_global:
            self._blocked_until = max(self._blocked_until, self._clock() + error.retry_after)
        raise error


MAX_PER_HOUR, MAX_PER_DAY = 50, 500
HOUR, DAY, DELAY_SECONDS = 3600.0, 86_400.0, 1800.0
DAILY_RESERVE = 50  # of the thousand a day; a person may want to start the bot as well


class IdentifyLimiter:
    """Says how long to wait before the next session is begun: after too many in a row, half an hour each."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started_at: deque[float] = deque(maxlen=MAX_PER_DAY)

    def wait_seconds(self, remaining: int | None = None, reset_after: float = 0.0) -> float:
        """Give the seconds to wait; `left` and `reset_after` are Discord's own count, where it is known."""
        if remaining is not None and remaining <= DAILY_RESERVE:
            return max(reset_after, 1.0)
        now = self._clock()
        if self._started_since(MAX_PER_HOUR, now - HOUR) or self._started_since(MAX_PER_DAY, now - DAY):
            return max(0.0, self._started_at[-1] + DELAY_SECONDS - now)
        return 0.0

    def record(self) -> None:
        """Count a session."""
        self._started_at.append(self._clock())

    def _started_since(self, count: int, since: float) -> bool:
        """Tell whether so many were begun since then."""
        return len(self._started_at) >= count and self._started_at[-count] > since
