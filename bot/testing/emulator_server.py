"""The HTTP server, the event record and the typing indicators that emulators share."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Self

from aiohttp import web
from aiohttp.typedefs import Middleware

from bot.testing.emulator import LOOPBACK, loopback_only

MAX_UPLOAD_BYTES = 64 * 1024 * 1024
SHUTDOWN_TIMEOUT = 0.2


class EventRecorder:
    """Counts events by name and wakes waiting tests at every event."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.listeners: list[Callable[[], None]] = []
        self._changed = asyncio.Event()

    def record(self, name: str) -> None:
        """Count an event, wake all waiting tests and call the listeners."""
        self.counts[name] += 1
        self._changed.set()
        self._changed = asyncio.Event()
        for listener in self.listeners:
            listener()

    async def wait_until(self, predicate: Callable[[], object], timeout: float = 60.0) -> None:
        """Wait until `predicate` is true, checked after every event. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while not predicate():
                await self._changed.wait()


class TypingIndicators:
    """Who is typing where, until a message of theirs arrives or `seconds` are over."""

    def __init__(self, seconds: float, on_change: Callable[[], None]) -> None:
        self._seconds, self._on_change = seconds, on_change
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def start(self, room: str, name: str) -> None:
        """Show a name as typing in a room."""
        self._cancel(room, name)
        loop = asyncio.get_running_loop()
        self._timers[room, name] = loop.call_later(self._seconds, self.stop, room, name)
        self._on_change()

    def stop(self, room: str, name: str) -> None:
        """Show it no longer, as after a message."""
        if self._cancel(room, name):
            self._on_change()

    def names(self, room: str) -> list[str]:
        """Return who types in a room."""
        return [name for place, name in self._timers if place == room]

    def _cancel(self, room: str, name: str) -> bool:
        timer = self._timers.pop((room, name), None)
        if timer is not None:
            timer.cancel()
        return timer is not None


class EmulatorServer:
    """Serves an emulated platform on the loopback address while it is entered; `url` is its base URL.

    `hosts` are accepted beside the loopback names, for clients behind a proxy.
    """

    cancels_handlers: ClassVar = False  # whether a handler ends once its client has gone

    def __init__(self, *, port: int, hosts: Iterable[str]) -> None:
        self.url = ""
        self._port, self._hosts = port, hosts
        self._runner: web.AppRunner | None = None

    def routes(self) -> Sequence[web.AbstractRouteDef]:
        """Return all routes of the platform and of its page."""
        raise NotImplementedError

    def middlewares(self) -> Sequence[Middleware]:
        """Return what handles each request after the check of its host."""
        return ()

    async def __aenter__(self) -> Self:
        app = web.Application(
            middlewares=[loopback_only(self._hosts), *self.middlewares()], client_max_size=MAX_UPLOAD_BYTES
        )
        app.add_routes(self.routes())
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=self.cancels_handlers, shutdown_timeout=SHUTDOWN_TIMEOUT
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, self._port).start()
        self.url = f"http://{LOOPBACK}:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop_tasks()
        if self._runner is not None:
            await self._runner.cleanup()

    async def stop_tasks(self) -> None:
        """End what would outlive the server, such as open connections."""
