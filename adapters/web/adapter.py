"""The web as a platform: a server with a page and an API, for all agents of the process."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.parse import quote
from uuid import UUID

from adapters.web.app import Front
from adapters.web.auth import Lock, kept_token
from adapters.web.config import Limits, WebSettings
from adapters.web.incoming import PLATFORM
from adapters.web.queries import show_message
from adapters.web.room_updates import Spoken
from adapters.web.server import Server
from bot import CoreSettings, Room, SettingError
from bot.platform import ANY_ADDRESS, Adapter, Delivery, Door, Link, allowed_hosts, cleared_so_far

BETWEEN_LOOKS = 0.05


class WebAdapter(Adapter):
    """Serves the page and the API while it is entered; `url` is then the address to open."""

    platform = PLATFORM
    repeats_harmlessly = True
    is_private = True  # whoever holds the key answers for those it writes for

    def __init__(
        self, doors: Sequence[Door], settings: WebSettings, token: str, *, limits: Limits | None = None
    ) -> None:
        limits = limits or Limits()
        self._settings = settings
        self._token = token
        self._secrets = {token}.union(*(door.settings.secrets(WebSettings) for door in doors))
        self._front = Front(
            doors,
            lock=Lock(token),
            hosts=allowed_hosts(settings.server_host, settings.server_allowed_hosts),
            secrets=self._secrets,
            limits=limits,
        )
        self._server = Server(self._front.app, settings, limits)
        self._agents = {door.agent_id: door for door in doors}
        self._link = Link(PLATFORM, "the page")
        self.app = self._front.app
        self.port = settings.server_port

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        host = self._settings.server_host
        host = "127.0.0.1" if host in ANY_ADDRESS else host
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}/?token={quote(self._token, safe='')}"

    async def __aenter__(self) -> Self:
        self.port = await self._server.start()
        self._link.stands()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._front.stop()
        await self._server.stop()

    @property
    def links(self) -> Sequence[Link]:
        """Say that it is there."""
        return (self._link,)

    async def deliver(self, delivery: Delivery) -> str:
        """Show a reply to whoever is in the room; it is in the records for those who come later."""
        door = self._agents.get(UUID(delivery.account))
        message = await show_message(door, delivery.memory_id) if door else None
        self._front.hub.growth.end(delivery.room_id, delivery.memory_id)
        if message is not None:
            self._front.hub.tell(delivery.room_id, Spoken(message))
        return str(delivery.memory_id)

    def edits_every(self, room: Room) -> float | None:
        """Show replies as they are written, some words at a time."""
        return BETWEEN_LOOKS

    async def preview(self, delivery: Delivery) -> None:
        """Show what came to a reply since the last look to whoever is in the room."""
        hub, text = self._front.hub, cleared_so_far(delivery.content.text, self._secrets)
        grown = hub.growth.grown(delivery.room_id, delivery.memory_id, text, delivery.reply_to)
        hub.tell(delivery.room_id, grown)

    async def reconcile(self, delivery: Delivery) -> str:
        """Show a reply again: whoever has it already knows it by its id."""
        return await self.deliver(delivery)

    async def typing(self, room: Room, active: bool) -> None:
        """Show, or stop showing, that the agent is at work in a room."""
        self._front.hub.show_typing(room.id, active)


def open_web(doors: Sequence[Door]) -> WebAdapter:
    """Make the server for all agents.

    Raises SettingError where they disagree about it, or its token cannot be kept.
    """
    if not doors:
        raise SettingError("the web page has nobody to talk with: name a character")
    settings = doors[0].settings.load(WebSettings)
    if any(door.settings.load(WebSettings) != settings for door in doors):
        raise SettingError("the SERVER_… settings of two characters differ: set them in the environment")
    if settings.server_token is not None:
        return WebAdapter(doors, settings, settings.server_token.get_secret_value())
    folder = doors[0].settings.load(CoreSettings).bot_data_dir
    return WebAdapter(doors, settings, kept_token(folder))
