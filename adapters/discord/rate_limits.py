"""Request checks after refusals; identify budget."""

import json
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp

from adapters.discord.errors import Answered, Paused, Unreadable
from bot import reached

INVALID = (401, 403, 429)
MOST_INVALID, WINDOW = 1000, 600.0  # Discord bans an address after 10,000 in ten minutes


class Judge:
    """Raises what a refused request means; counts refusals, and lets nothing through after too many.

    The library would sleep and try again on its own; here that is for the outbox to decide, which keeps
    what it does. Other requests of a bucket that is used up fail at once as well, by the library's own books.
    """

    def __init__(self, clock: Callable[[], float], *, longest: int) -> None:
        self._clock = clock
        self._longest = longest
        self._invalid: deque[float] = deque(maxlen=MOST_INVALID)
        self._silent_until = 0.0

    def trace(self) -> aiohttp.TraceConfig:
        """Give what the client is to be built with."""
        trace = aiohttp.TraceConfig()
        trace.on_request_chunk_sent.append(self._written)
        trace.on_request_end.append(self._answered)
        return trace

    def check(self) -> None:
        """Raise where nothing is to be asked just now: a limit of the whole bot, or too many refusals."""
        now = self._clock()
        if now < self._silent_until:
            seconds = self._silent_until - now
            raise Answered(429, {"retry_after": seconds, "message": "the limit of the whole bot"})
        if len(self._invalid) == MOST_INVALID and now - self._invalid[0] < WINDOW:
            raise Paused(f"Discord has refused {MOST_INVALID} requests within ten minutes; nothing is asked")

    async def _written(self, session: aiohttp.ClientSession, context: SimpleNamespace, told: Any) -> None:
        if told.method == "POST" and told.url.path.endswith("/messages"):
            reached("send.post_write")

    async def _answered(
        self, session: aiohttp.ClientSession, context: SimpleNamespace, told: aiohttp.TraceRequestEndParams
    ) -> None:
        response = told.response
        if response.status == 101:  # the gateway's socket
            return
        try:
            data = await self._read(response)
            if response.status >= 400:
                self.refused(response, data)
        except BaseException:
            response.close()
            raise

    async def _read(self, response: aiohttp.ClientResponse) -> Any:
        """Read an answer, bounded; the library finds it already read."""
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > self._longest:
                raise Unreadable(f"an answer of more than {self._longest} bytes")
        response._body = bytes(body)
        if response.status == 204:
            return None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            if response.status < 400:
                raise Unreadable("an answer that is no JSON") from None
            return None

    def refused(self, response: aiohttp.ClientResponse, data: Any) -> None:
        """Count an answer that refuses, and raise what it means."""
        headers = response.headers
        error = Answered(response.status, data, headers)
        if response.status in INVALID and headers.get("X-RateLimit-Scope") != "shared":
            self._invalid.append(self._clock())
        is_global = (
            error.is_global or headers.get("X-RateLimit-Scope") == "global" or "X-RateLimit-Global" in headers
        )
        if response.status == 429 and is_global:
            self._silent_until = max(self._silent_until, self._clock() + error.retry_after)
        raise error


MOST_AN_HOUR, MOST_A_DAY = 50, 500
HOUR, DAY, REST = 3600.0, 86_400.0, 1800.0
RESERVE = 50  # of the thousand a day; a person may want to start the bot as well


class IdentifyBudget:
    """Says how long to wait before the next session is begun: after too many in a row, half an hour each."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun: deque[float] = deque(maxlen=MOST_A_DAY)

    def wait(self, left: int | None = None, reset_after: float = 0.0) -> float:
        """Give the seconds to wait; `left` and `reset_after` are Discord's own count, where it is known."""
        if left is not None and left <= RESERVE:
            return max(reset_after, 1.0)
        now = self._clock()
        if self._began(MOST_AN_HOUR, now - HOUR) or self._began(MOST_A_DAY, now - DAY):
            return max(0.0, self._begun[-1] + REST - now)
        return 0.0

    def spend(self) -> None:
        """Count a session."""
        self._begun.append(self._clock())

    def _began(self, count: int, since: float) -> bool:
        """Tell whether so many were begun since then."""
        return len(self._begun) >= count and self._begun[-count] > since
