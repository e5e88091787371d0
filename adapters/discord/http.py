"""Discord's REST interface through the library, at a base of our own choosing, one try a request."""

import asyncio
import json
import ssl
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import discord
from discord.http import HTTPClient, Ratelimit, Route

from adapters.discord.config import Limits
from adapters.discord.faults import Answered
from adapters.discord.judging import Judge


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
