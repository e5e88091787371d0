"""Web adapter: a server with a page and an HTTP API, for all agents of the process."""

import json
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Self
from urllib.parse import quote
from uuid import UUID

from aiohttp import web

from adapters.web import agents_api, files_api, overview_api, people_api, receipts_api, rooms_api
from adapters.web.auth import Access, TokenAuth, load_or_create_token
from adapters.web.config import PLATFORM, Limits, WebSettings
from adapters.web.files import UploadStore
from adapters.web.incoming import is_conversation_name
from adapters.web.json_io import SIGN_IN_PATH, JsonResponder, add_pages, add_static_files
from adapters.web.live import ControlRequested, LiveUpdates, RoomBroadcaster, TypingChanged
from adapters.web.messages import AnswerService, MessageService, MessageStreams, run_shielded
from adapters.web.middleware import KeptAnswers, Middleware, add_headers, build_refusal_response
from adapters.web.openapi import SOCKET_PATH, Handler, Operation, OperationHandler, build_document, operations_of
from adapters.web.outgoing import build_sent_notice
from adapters.web.plugin_routes import PluginRoutes
from adapters.web.queries import AgentDirectory, load_message
from adapters.web.websocket import WebSocketServer
from bot import CoreSettings, Room, Secret, SettingError
from bot.platform import (
    WILDCARD_HOSTS,
    AccessTokens,
    Adapter,
    AgentHandle,
    BoundRoute,
    ConnectionPool,
    ConnectionStatus,
    Delivery,
    DeliveryKind,
    FetchError,
    GuessLimiter,
    HttpServer,
    TaskSet,
    TrustedProxies,
    allowed_hosts,
    filter_partial_text,
)


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
        self._prometheus = overview_api.PrometheusApi(self.directory)
        apis = [
            overview_api.OverviewApi(self.directory, responder),
            agents_api.SessionApi(self.directory, auth, guess_limiter, proxies, responder, limits),
            agents_api.AgentsApi(self.directory, limits),
            rooms_api.MessagesApi(self.directory, self._message_service, streams, answers),
            rooms_api.ConversationsApi(self.directory, self._live.publish),
            rooms_api.RoomsApi(self.directory),
            people_api.KnowledgeApi(self.directory),
            people_api.PeopleApi(self.directory, responder),
            agents_api.TasksApi(self.directory),
            receipts_api.ReceiptsApi(self.directory),
            overview_api.CostsApi(self.directory, responder),
            people_api.CareApi(self.directory),
            people_api.DutiesApi(self.directory),
            receipts_api.DeliveriesApi(self.directory),
            receipts_api.DraftsApi(self.directory),
            rooms_api.SearchApi(self.directory),
            files_api.FilesApi(self.directory, auth, self.uploads, limits),
            files_api.DocumentsApi(self.directory, plugins),
            agents_api.WorldSettingsApi(self.directory),
            agents_api.CharacterApi(self.directory),
            agents_api.SystemApi(self.directory, self._requests),
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


STREAM_INTERVAL = 0.05


class WebAdapter(Adapter):
    """Serves the page and the API while it is entered; `url` is the address to open."""

    platform = PLATFORM
    voice_type = "audio/mpeg"
    supports_idempotent_send = True
    is_trusted_audience = True  # only holders of the token can write
    serves_clients = True
    sends_response_files = True
    hides_responses = True
    can_edit = True
    shows_versions = True

    def __init__(
        self,
        handles: Sequence[AgentHandle],
        settings: WebSettings,
        token: str,
        *,
        access_tokens: AccessTokens | None = None,
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits()
        self._settings = settings
        self._token = token
        self._secrets = {token}.union(*(handle.settings.secrets(WebSettings) for handle in handles))
        self._web_app = WebApp(
            handles,
            auth=TokenAuth(token, access_tokens, metrics_token=_read_secret(settings.metrics_token)),
            hosts=allowed_hosts(settings.server_host, settings.server_allowed_hosts),
            proxies=TrustedProxies(settings.server_trusted_proxies),
            secrets=self._secrets,
            limits=limits,
            data_folder=next((item.settings.load(CoreSettings) for item in handles), CoreSettings()).bot_data_dir,
        )
        self._server = HttpServer(
            self._web_app.app,
            self._web_app.connection_pool,
            host=settings.server_host,
            port=settings.server_port,
            settings_prefix="SERVER",
            build_refusal=build_refusal_response,
            cancels_handlers=True,
        )
        self._handles = {handle.agent_id: handle for handle in handles}
        self._status = ConnectionStatus(PLATFORM, "the page")
        self.app = self._web_app.app
        self.port = settings.server_port

    @property
    def url(self) -> str:
        """The address of the page, with the token."""
        host = self._settings.server_host
        host = "127.0.0.1" if host in WILDCARD_HOSTS else host
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}/?token={quote(self._token, safe='')}"

    async def __aenter__(self) -> Self:
        self.port = await self._server.start()
        self._web_app.start()
        self._status.connected()
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._web_app.stop()
        finally:  # also if cancelled
            await self._server.stop()

    @property
    def connections(self) -> Sequence[ConnectionStatus]:
        """The connection status of the server."""
        return (self._status,)

    async def deliver(self, delivery: Delivery) -> str:
        """Publish a reply to the clients in the room; later clients read it from the store."""
        broadcaster = self._web_app.broadcaster
        if delivery.kind is DeliveryKind.NOTICE:
            self._publish_notice(delivery)
            return str(delivery.memory_id)
        if broadcaster.has_listeners(delivery.room_id):
            handle = self._handles.get(UUID(delivery.account))
            message = await load_message(handle, delivery.memory_id) if handle else None
            broadcaster.drafts.end(delivery.room_id, delivery.memory_id)
            if message is not None:
                broadcaster.publish(delivery.room_id, message)
        else:
            broadcaster.drafts.end(delivery.room_id, delivery.memory_id)
        return str(delivery.memory_id)

    def _publish_notice(self, delivery: Delivery) -> None:
        if (handle := self._handles.get(UUID(delivery.account))) is not None:
            self._web_app.broadcaster.publish(delivery.room_id, build_sent_notice(delivery, handle))

    async def edit(self, delivery: Delivery) -> str:
        """Publish a new version of a reply to the clients in the room."""
        return await self.deliver(delivery)

    async def download(self, url: str) -> bytes | None:
        """Return an uploaded file; None for other URLs. Raises FetchError if it was removed."""
        try:
            return await self._web_app.uploads.read(url)
        except OSError:
            raise FetchError("the uploaded file is no longer stored") from None

    def shows_greeting(self, room: Room) -> bool:
        """Return whether a room is a conversation of the page."""
        return is_conversation_name(room.external_id)

    def stream_interval(self, room: Room) -> float | None:
        """Return the interval between updates of a streamed reply."""
        return STREAM_INTERVAL

    async def preview(self, delivery: Delivery) -> None:
        """Publish the new text of a streamed reply to the clients in the room."""
        broadcaster, text = (self._web_app.broadcaster, filter_partial_text(delivery.content.text, self._secrets))
        delta = broadcaster.drafts.update(delivery.room_id, delivery.memory_id, text, delivery.reply_to)
        broadcaster.publish(delivery.room_id, delta)

    async def reconcile(self, delivery: Delivery) -> str:
        """Publish a reply again; clients recognise it by its id."""
        return await self.deliver(delivery)

    async def show_model_busy(self, room: Room) -> None:
        """Publish that the model is busy and called again."""
        self._web_app.broadcaster.publish(room.id, TypingChanged(True, is_model_busy=True))

    async def show_control(self, room_id: UUID, action: str, target: str) -> None:
        """Publish what the agent asks the pages that show a room to do."""
        self._web_app.broadcaster.publish(room_id, ControlRequested(action, target))

    async def set_typing(self, room: Room, active: bool) -> None:
        """Publish whether the agent is typing in a room."""
        self._web_app.broadcaster.set_typing(room.id, active)


def open_web(handles: Sequence[AgentHandle]) -> WebAdapter:
    """Return the adapter for all agents.

    Raises SettingError if their server settings differ, or the token cannot be stored.
    """
    if not handles:
        raise SettingError("the web page needs a character: name one")
    settings = handles[0].settings.load(WebSettings)
    if any(handle.settings.load(WebSettings) != settings for handle in handles):
        raise SettingError("the SERVER_… settings of two characters differ: set them in the environment")
    folder = handles[0].settings.load(CoreSettings).bot_data_dir
    token = _read_secret(settings.server_token) or load_or_create_token(folder)
    return WebAdapter(handles, settings, token, access_tokens=AccessTokens(folder))


def _read_secret(secret: Secret | None) -> str:
    return "" if secret is None else secret.get_secret_value()
