"""Web adapter: a server with a page and an HTTP API, for all agents of the process."""

from collections.abc import Sequence
from typing import Self
from urllib.parse import quote
from uuid import UUID

from adapters.web.app import WebApp
from adapters.web.auth import TokenAuth, load_or_create_token
from adapters.web.config import PLATFORM, Limits, WebSettings
from adapters.web.incoming import is_conversation_name
from adapters.web.live import ControlRequested, TypingChanged
from adapters.web.middleware import build_refusal_response
from adapters.web.outgoing import build_sent_notice
from adapters.web.queries import load_message
from bot import CoreSettings, Room, Secret, SettingError
from bot.platform import (
    WILDCARD_HOSTS,
    AccessTokens,
    Adapter,
    AgentHandle,
    ConnectionStatus,
    Delivery,
    DeliveryKind,
    FetchError,
    HttpServer,
    TrustedProxies,
    allowed_hosts,
    filter_partial_text,
)

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
