"""The base of emulators: server, loopback guard, fault injection, event record and typing indicators."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from aiohttp import web
from aiohttp.typedefs import Middleware

from bot.http import allowed_hosts, is_cross_site, parse_host_header
from bot.testing.emulator_page import EmulatorPage, EmulatorView

LOOPBACK = "127.0.0.1"
MAX_UPLOAD_BYTES = 64 * 1024 * 1024
SHUTDOWN_TIMEOUT = 0.2
CHUNK = b" " * 65536
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def loopback_only(hosts: Iterable[str] = ()) -> Middleware:
    """Refuse requests whose host name is neither the loopback address nor one of `hosts`.

    This prevents DNS rebinding: a browser would treat a page of another site as same-origin if its name
    resolved to this machine. Cross-site requests are refused as well, and bodies that are not the JSON of the
    platform's API.
    """
    names = allowed_hosts(LOOPBACK, hosts)

    @web.middleware
    async def check_request(request: web.Request, handler: Handler) -> web.StreamResponse:
        if parse_host_header(request.headers.get("Host", "")) not in names:
            return web.Response(status=421, text="unknown host name")
        if is_cross_site(request.headers):
            return web.Response(status=403, text="cross-site requests are refused")
        try:
            return await handler(request)
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
            return web.Response(status=400, text="the body is not JSON, or nested too deeply")

    return check_request


@dataclass(slots=True)
class FaultResponse:
    """A fault for the next `times` calls that match `match`, whose meaning the platform defines.

    It responds with `status`, `body` and `headers`, or resets the connection if `status` is 0. With `is_late`
    the call is carried out first; with `is_endless` the body never ends; with `is_hanging` nothing is sent.
    """

    match: str
    status: int = 0
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    is_late: bool = False
    is_endless: bool = False
    is_hanging: bool = False

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Return the faulty response, or break the connection."""
        self.times -= 1
        if self.is_hanging:
            await asyncio.Event().wait()
        if self.is_endless:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            while True:
                await response.write(CHUNK)
        if not self.status:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        is_text = isinstance(self.body, str)
        body = self.body if is_text else json.dumps(self.body)
        content_type = "text/html" if is_text else "application/json"
        return web.Response(
            status=self.status, body=body.encode(), headers={"Content-Type": content_type, **self.headers}
        )


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

    async def wait_for_next(self) -> None:
        """Wait until an event is recorded."""
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


@dataclass(slots=True)
class ShownMessage:
    """A message of the bot `author`: its texts over time, its files by name, and whether it was deleted.

    `message` is what the platform stores or was sent of it; `notified` are the users that it notifies.
    """

    room: Any
    id: Any
    author: Any
    texts: list[str]
    message: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)
    thread: int | None = None
    nonce: str = ""
    notified: set[str] = field(default_factory=set)
    is_gone: bool = False

    @property
    def text(self) -> str:
        """The current text."""
        return self.texts[-1]


class MessageRecorder(EventRecorder):
    """Records the messages of bots as users see them, and counts events."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[ShownMessage] = []

    def texts(self, room: Any = None, thread: int | None = None) -> list[str]:
        """Return the current texts of the messages that were not deleted."""
        return [
            message.text
            for message in self.messages
            if not message.is_gone and room in (None, message.room) and thread in (None, message.thread)
        ]

    def find(self, room: Any, message_id: Any) -> ShownMessage | None:
        """Return a message of a bot; None if there is none."""
        return next((item for item in self.messages if (item.room, item.id) == (room, message_id)), None)

    async def wait_for_texts(self, count: int, room: Any = None) -> list[str]:
        """Wait until bots have sent `count` messages; return their texts."""
        await self.wait_until(lambda: len(self.texts(room)) >= count)
        return self.texts(room)


class EmulatorServer:
    """Serves an emulated platform on the loopback address while it is entered; `url` is its base URL.

    `hosts` are accepted beside the loopback names, for clients behind a proxy.
    """

    cancels_handlers: ClassVar = False  # whether a handler ends once its client has gone

    def __init__(self, *, port: int, hosts: Iterable[str]) -> None:
        self.url = ""
        self._port, self._hosts = port, hosts
        self._opened_page: EmulatorPage | None = None
        self._runner: web.AppRunner | None = None

    def open_page(self, view: EmulatorView, recorder: EventRecorder) -> EmulatorPage:
        """Serve a page beside the platform, and update it at every event of `recorder`; call it before entering."""
        self._opened_page = EmulatorPage(view)
        recorder.listeners.append(self._opened_page.changed)
        return self._opened_page

    def routes(self) -> Sequence[web.AbstractRouteDef]:
        """Return all routes of the platform; those of `open_page` are added."""
        raise NotImplementedError

    def endpoints(self) -> list[str]:
        """Return what the platform answers, each as in its documentation: by default "METHOD /path" of every route."""
        return [f"{route.method} {route.path}" for route in self.routes() if isinstance(route, web.RouteDef)]

    def middlewares(self) -> Sequence[Middleware]:
        """Return what handles each request after the check of its host."""
        return ()

    async def __aenter__(self) -> Self:
        app = web.Application(
            middlewares=[loopback_only(self._hosts), *self.middlewares()], client_max_size=MAX_UPLOAD_BYTES
        )
        app.add_routes([*self.routes(), *(self._opened_page.routes() if self._opened_page else ())])
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=self.cancels_handlers, shutdown_timeout=SHUTDOWN_TIMEOUT
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, self._port).start()
        self.url = f"http://{LOOPBACK}:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._opened_page is not None:
            await self._opened_page.close()
        await self.stop_tasks()
        if self._runner is not None:
            await self._runner.cleanup()

    async def stop_tasks(self) -> None:
        """End what would outlive the server, such as open connections."""
