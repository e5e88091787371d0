"""The REST client: the library's at a configurable base URL, and checks of requests after refusals."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import discord
from discord.http import HTTPClient, Ratelimit, Route

from adapters.discord.config import DiscordSettings, Limits
from adapters.discord.errors import ErrorResponse, InvalidResponse, RequestsPaused
from bot import crash_point
from bot.platform import PlatformNetwork, SlidingWindow, find_network, read_bounded

INVALID_STATUSES = (401, 403, 429)
MAX_INVALID, INVALID_WINDOW_SECONDS = 1000, 600.0  # Discord bans an address after 10,000 in ten minutes


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
        if self._invalid.times and not self._invalid.count_spare(now):
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


def build_http(settings: DiscordSettings, limits: Limits, environment: Mapping[str, str]) -> DiscordHttp:
    """Return the REST client, with the operator's proxy and certificates."""
    base_url, guard = settings.discord_api_base_url, RequestGuard(time.monotonic, limits.max_response_bytes)
    return DiscordHttp(base_url, guard, limits, find_network(base_url, environment))
