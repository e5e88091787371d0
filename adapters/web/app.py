"""aiohttp application: routes, static pages."""

import json
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

from aiohttp import web

from adapters.web.answers import AnswerService
from adapters.web.api import (
    AgentsApi,
    CareApi,
    CharacterApi,
    ConversationsApi,
    CostsApi,
    DeliveriesApi,
    DocumentsApi,
    DraftsApi,
    DutiesApi,
    FilesApi,
    KnowledgeApi,
    MessagesApi,
    OverviewApi,
    PeopleApi,
    ReceiptsApi,
    RoomsApi,
    SessionApi,
    SystemApi,
    TasksApi,
    WorldSettingsApi,
)
from adapters.web.auth import Access, TokenAuth
from adapters.web.config import Limits
from adapters.web.files import UploadStore
from adapters.web.json_io import SIGN_IN_PATH, JsonResponder, add_pages, add_static_files
from adapters.web.live import LiveUpdates, RoomBroadcaster
from adapters.web.messages import MessageService, MessageStreams, run_shielded
from adapters.web.metrics import PrometheusApi
from adapters.web.middleware import KeptAnswers, Middleware, add_headers
from adapters.web.openapi import SOCKET_PATH, Handler, Operation, OperationHandler, build_document, operations_of
from adapters.web.plugin_routes import PluginRoutes
from adapters.web.queries import AgentDirectory
from adapters.web.search import SearchApi
from adapters.web.websocket import WebSocketServer
from bot.platform import AgentHandle, BoundRoute, ConnectionPool, GuessLimiter, TaskSet, TrustedProxies


class WebApp:
    """The application: services, handlers and routes. `secrets` are removed from every response.

    Uploaded files are stored below `data_folder`.
    """

    def __init__(
        self,
        handles: Sequence[AgentHandle],
        *,
        auth: TokenAuth,
        hosts: frozenset[str],
        proxies: TrustedProxies,
        secrets: Collection[str],
        limits: Limits,
        data_folder: Path,
    ) -> None:
        self.directory = AgentDirectory(handles)
        self.broadcaster = RoomBroadcaster()
        self._requests = TaskSet("a request", logs_failures=False)
        self._responder = responder = JsonResponder(secrets)
        self.uploads = UploadStore(data_folder, limits)
        self._background = TaskSet("removing uploaded files")
        self._message_service = MessageService(self.broadcaster, self._requests, self.uploads, limits)
        streams = MessageStreams(self._message_service, self.broadcaster, responder, limits.keep_alive_seconds)
        guess_limiter = GuessLimiter(limits.max_guesses, limits.max_total_guesses)
        self._live = LiveUpdates(self.directory, responder, limits)
        answers = AnswerService(self.directory, self._message_service, self.broadcaster, self._requests)
        plugins = PluginRoutes(self.directory, self._requests, responder, limits)
        self._body_seconds = limits.body_seconds
        self._prometheus = PrometheusApi(self.directory)
        apis = [
            OverviewApi(self.directory, responder),
            SessionApi(self.directory, auth, guess_limiter, proxies, responder, limits),
            AgentsApi(self.directory, limits),
            MessagesApi(self.directory, self._message_service, streams, answers),
            ConversationsApi(self.directory, self._live.publish),
            RoomsApi(self.directory),
            KnowledgeApi(self.directory),
            PeopleApi(self.directory, responder),
            TasksApi(self.directory),
            ReceiptsApi(self.directory),
            CostsApi(self.directory, responder),
            CareApi(self.directory),
            DutiesApi(self.directory),
            DeliveriesApi(self.directory),
            DraftsApi(self.directory),
            SearchApi(self.directory),
            FilesApi(self.directory, auth, self.uploads, limits),
            DocumentsApi(self.directory, plugins),
            WorldSettingsApi(self.directory),
            CharacterApi(self.directory),
            SystemApi(self.directory, self._requests),
            self._prometheus,
        ]
        self._sockets = WebSocketServer(
            self.directory, self._message_service, self.broadcaster, responder, limits, self._live, answers
        )
        self.connection_pool = ConnectionPool(limits, proxies)
        self._middleware = Middleware(
            responder, auth, hosts, KeptAnswers(limits.body_seconds), guess_limiter, proxies, self.connection_pool
        )
        self.app = web.Application(
            client_max_size=limits.max_body_bytes,
            middlewares=[self._middleware.handle_errors, self._middleware.authorize],
        )
        self.app.on_response_prepare.append(add_headers)
        self._add_routes([operation for api in apis for operation in operations_of(api)], plugins)

    def _add_routes(self, operations: list[Operation], plugins: PluginRoutes) -> None:
        """Add the routes of the API, the pages and the plugins, each with what it needs."""
        router = self.app.router
        bound_routes = [route for handle in self.directory for route in handle.routes]
        for operation in _add_own_operations(operations, self._sockets.serve, bound_routes):
            handler = self._build_handler(operation)
            if operation.method == "GET":  # which brings HEAD
                route = router.add_get(operation.path, handler)
            else:
                route = router.add_route(operation.method, operation.path, handler)
            self._middleware.declare(route, operation.access)
            if operation.is_change and not operation.handles_key:
                self._middleware.keep_answers(route)
        for path, page in add_pages(router).items():
            self._middleware.declare_page(page, is_public=path == SIGN_IN_PATH)
        for file in add_static_files(router):  # the sign-in page needs them
            self._middleware.declare(file, Access.PUBLIC)
        for route, access in plugins.register(router).items():
            self._middleware.declare(route, access)

    def _build_handler(self, operation: Operation) -> Handler:
        """Return a handler that sends results as JSON; a change is finished also where the request is cancelled."""

        async def respond(request: web.Request) -> web.StreamResponse:
            answering = operation.answer(request, body_seconds=self._body_seconds)
            is_finished = operation.access is Access.CHANGE and operation.method != "GET"
            answer = await (run_shielded(self._requests, answering) if is_finished else answering)
            return answer if isinstance(answer, web.StreamResponse) else self._responder.respond(answer)

        return respond

    def start(self) -> None:
        """Start removing the uploaded files that no message has, and counting for `GET /metrics`."""
        self._prometheus.start()
        self._background.start(self.uploads.sweep_regularly(self.directory.find_stored))

    async def stop(self) -> None:
        """Close the WebSockets and cancel the background tasks."""
        await self._background.cancel()
        await self._sockets.close()
        await self._live.stop()
        await self._requests.cancel()
        await self._message_service.stop()


def _add_own_operations(
    operations: list[Operation], socket: OperationHandler, routes: Sequence[BoundRoute]
) -> list[Operation]:
    """Return the operations with those of the OpenAPI document, which describes all of them, and the WebSocket."""

    @cache
    def document() -> str:
        return json.dumps(build_document(complete, routes))

    async def show_openapi(request: web.Request) -> web.StreamResponse:
        """Return this description."""
        return web.Response(text=document(), content_type="application/json")

    complete = [
        *operations,
        Operation("GET", "/api/openapi.json", "openapi", Access.READ, show_openapi),
        Operation("GET", SOCKET_PATH, "socket", Access.ANY, socket),  # each frame needs its own access
    ]
    return complete
