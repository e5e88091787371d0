"""Counters of network traffic that tests can wait for."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count

from aiohttp import web
from aiohttp.typedefs import Handler

ASKED = "updates asked for"
GLANCE = 0.05  # seconds between two looks at the database


@web.middleware
async def unhurt(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer requests of a process that is killed before it reads the response."""
    try:
        return await handler(request)
    except ConnectionError:
        return web.Response(status=400)


class Wire:
    """Counts events by name; `strike` is called at each, before its request is answered."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.strike: Callable[[str], None] = lambda name: None
        self._next: asyncio.Event = asyncio.Event()

    @property
    def total(self) -> int:
        """How many events there have been."""
        return self.seen.total()

    @property
    def done(self) -> int:
        """How many events there have been, requests for updates excluded."""
        return self.total - self.seen[ASKED]

    def note(self, name: str) -> None:
        """Count an event and wake those who wait for one."""
        self.seen[name] += 1
        self._next.set()
        self._next = asyncio.Event()
        self.strike(name)

    async def until(self, is_so: Callable[[], bool], *, seconds: float, what: str) -> None:
        """Wait until a condition holds, checking it at every event. Raises TimeoutError."""
        async with _named(seconds, what):
            while not is_so():
                with suppress(TimeoutError):
                    async with asyncio.timeout(GLANCE):
                        await self._next.wait()

    async def until_seen(self, is_so: Callable[[], bool], *, seconds: float, what: str) -> None:
        """Wait as `until` does, checking a slow condition at intervals only."""
        async with _named(seconds, what):
            for _ in count():
                if is_so():
                    return
                await asyncio.sleep(GLANCE)


@asynccontextmanager
async def _named(seconds: float, what: str) -> AsyncIterator[None]:
    """Limit a wait; the error names what was waited for."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimeoutError(f"after {seconds:g} s still not: {what}") from None
