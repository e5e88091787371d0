"""aiohttp application: routes, static pages."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from adapters.web.api import Api, OutboxApi, build_file_operations, build_operations
from adapters.web.auth import Access, TokenAuth
from adapters.web.clients import ConnectionPool, GuessLimiter, TrustedProxies
from adapters.web.config import Limits
from adapters.web.files import FileApi
from adapters.web.json_io import JsonResponder
from adapters.web.messages import MessageService, MessageStreams
from adapters.web.middleware import Middleware, add_headers
from adapters.web.plugin_routes import PluginRoutes
from adapters.web.queries import AgentDirectory
from adapters.web.room_updates import RoomBroadcaster
from adapters.web.websocket import WebSocketServer
from adapters.web.world_settings import WorldSettingsApi
from bot.platform import AgentHandle, TaskSet

PAGES_FOLDER = Path(__file__).with_name("pages")
PAGES = {"/": "chat.html"}
CONTENT_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class WebApp:
    """The application: services, handlers and routes. `secrets` are removed from every response."""

    def __init__(
        self,
        handles: Sequence[AgentHandle],
        *,
        auth: TokenAuth,
        hosts: frozenset[str],
        proxies: TrustedProxies,
        secrets: Collection[str],
        limits: Limits,
    ) -> None:
        self.directory = AgentDirectory(handles)
        self.broadcaster = RoomBroadcaster()
        self._requests = TaskSet("a request", logs_failures=False)
        responder = JsonResponder(secrets)
        self._message_service = MessageService(self.broadcaster, self._requests)
        streams = MessageStreams(self._message_service, self.broadcaster, responder, limits.keep_alive_seconds)
        api = Api(self.directory, self._message_service, streams, responder, limits)
        outbox = OutboxApi(self.directory, self._requests, responder)
        files = FileApi(self.directory, auth, responder)
        world_settings = WorldSettingsApi(self.directory, self._requests, responder, limits)
        self._sockets = WebSocketServer(self.directory, self._message_service, self.broadcaster, responder, limits)
        plugins = PluginRoutes(self.directory, self._requests, responder, limits)
        self.connection_pool = ConnectionPool(limits, proxies)
        self._middleware = Middleware(
            responder,
            auth,
            hosts,
            guess_limiter=GuessLimiter(limits.max_guesses, limits.max_total_guesses),
            proxies=proxies,
            pool=self.connection_pool,
        )
        self.app = web.Application(
            client_max_size=limits.max_body_bytes,
            middlewares=[self._middleware.handle_errors, self._middleware.authorize],
        )
        self.app.on_response_prepare.append(add_headers)
        router = self.app.router
        bound_routes = [route for handle in self.directory for route in handle.routes]
        more = [*build_file_operations(files), *world_settings.operations()]
        for operation in build_operations(api, outbox, self._sockets.serve, more, bound_routes):
            add = router.add_get if operation.method == "GET" else router.add_post
            self._middleware.declare(add(operation.path, operation.handler), operation.access)
        for route in add_static_files(router):
            self._middleware.declare(route, Access.ANY)
        for route, access in plugins.register(router).items():
            self._middleware.declare(route, access)

    async def stop(self) -> None:
        """Close the WebSockets and cancel the background tasks."""
        await self._sockets.close()
        await self._requests.cancel()
        await self._message_service.stop()


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A static file; `etag` is a hash of its content."""

    body: bytes
    content_type: str
    etag: str

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Respond with the file, or with 304 if the client has it."""
        is_page = self.content_type == "text/html"
        caching = "no-store" if is_page else "private, no-cache"
        known_etags = request.if_none_match or ()
        if not is_page and any(etag.value == self.etag for etag in known_etags):
            response = web.Response(status=304)
        else:
            response = web.Response(body=self.body, content_type=self.content_type, charset="utf-8")
        if not is_page:
            response.etag = self.etag
        response.headers["Cache-Control"] = caching
        return response


def add_static_files(router: web.UrlDispatcher) -> list[web.AbstractRoute]:
    """Add routes for the pages, and for the other files under `/pages/`; return them."""
    routes: list[web.AbstractRoute] = []
    for address, name in PAGES.items():
        routes.append(router.add_get(address, _read_file(PAGES_FOLDER / name).serve))
    for path in sorted(PAGES_FOLDER.iterdir()):
        if path.suffix in CONTENT_TYPES and path.name not in PAGES.values():
            routes.append(router.add_get(f"/pages/{path.name}", _read_file(path).serve))
    return routes


def _read_file(path: Path) -> StaticFile:
    body = path.read_bytes()
    return StaticFile(body, CONTENT_TYPES[path.suffix], hashlib.sha256(body).hexdigest()[:16])
