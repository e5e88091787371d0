"""Telegram as a platform: a bot for each character of the process."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from telegram.error import TelegramError

from adapters.telegram.account import Presence
from adapters.telegram.client import Connector
from adapters.telegram.config import Limits, Moments, read_settings
from adapters.telegram.entities import PLATFORM, Target
from adapters.telegram.errors import said
from adapters.telegram.outgoing import parts
from adapters.telegram.webhook import Webhook, WebhookServer
from bot import ConfigError, Content, FetchError, Room
from bot.platform import Adapter, Delivery, Door, Link, Undeliverable

PRIVATE_LOOKS, GROUP_LOOKS = 1.0, 3.0


class TelegramAdapter(Adapter):
    """Connects the bots while it is entered."""

    platform = PLATFORM
    can_edit = True
    shows_choices = True

    def __init__(
        self,
        doors: Sequence[Door],
        *,
        limits: Limits | None = None,
        moments: Moments | None = None,
        connector: Connector | None = None,
    ) -> None:
        limits, moments = limits or Limits(), moments or Moments()
        self._settings = [read_settings(door.settings) for door in doors]
        # a server of the operator's, such as the emulator
        self.is_private = not any(one.is_usual("telegram_api_base_url") for one in self._settings)
        self._presences = {
            settings.account: Presence(door, settings, limits, moments, connector)
            for door, settings in zip(doors, self._settings, strict=True)
        }
        self._server: WebhookServer | None = None

    @property
    def webhook_port(self) -> int:
        """The port on which deliveries are taken; 0 where none are."""
        return self._server.port if self._server is not None else 0

    async def __aenter__(self) -> Self:
        hooked = next((one for one in self._settings if one.telegram_webhook_url), None)
        if hooked is not None:  # first: it is the one thing that may fail
            prefix = urlsplit(hooked.telegram_webhook_url or "").path
            self._server = WebhookServer(self._hook, hooked, prefix)
            await self._server.start()
        for presence in self._presences.values():
            await presence.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            await self._server.stop()
        await asyncio.gather(*(presence.close() for presence in self._presences.values()))

    @property
    def links(self) -> Sequence[Link]:
        """Tell whether each bot's updates come."""
        return [presence.link for presence in self._presences.values()]

    def parts(self, content: Content) -> list[Content]:
        """Cut a reply into messages."""
        return parts(content)

    def edits_every(self, room: Room) -> float | None:
        """Tell how often a message may change: in groups twenty times a minute, all in all."""
        return GROUP_LOOKS if Target.read(room.external_id).is_group else PRIVATE_LOOKS

    async def deliver(self, delivery: Delivery) -> str:
        """Send one part."""
        presence = self._presence(delivery)
        return self._remembered(delivery, presence, await presence.mouth.deliver(delivery))

    async def edit(self, delivery: Delivery) -> str:
        """Change one, or take it away."""
        return await self._presence(delivery).mouth.edit(delivery)

    async def reconcile(self, delivery: Delivery) -> str:
        """Send it once more with a mark, or hold it, as TELEGRAM_UNCLEAR says."""
        presence = self._presence(delivery)
        return self._remembered(delivery, presence, await presence.mouth.reconcile(delivery))

    async def download(self, url: str) -> bytes | None:
        """Read a file that somebody has sent, by the bot that was sent it."""
        account, _, file_id = url.removeprefix(f"{PLATFORM}:").partition("/")
        presence = self._presences.get(account)
        if presence is None or not url.startswith(f"{PLATFORM}:"):
            return None
        try:
            return await presence.account.download(file_id)
        except TelegramError as error:
            raise FetchError(said(error)) from None

    async def typing(self, room: Room, active: bool) -> None:
        """Show, or stop showing, that the agent is at work in a room."""
        presence = self._presences.get(room.account)
        if presence is None:
            return
        target = presence.sender.place(Target.read(room.external_id))
        if active:
            presence.typing.show(target)
        else:
            await presence.typing.hide(target)

    def _hook(self, number: str) -> Webhook | None:
        presence = self._presences.get(number)
        return presence.webhook if presence is not None else None

    def _presence(self, delivery: Delivery) -> Presence:
        presence = self._presences.get(delivery.account)
        if presence is None:
            raise Undeliverable(f"the bot {delivery.account} is not connected: its token is not set here")
        return presence

    def _remembered(self, delivery: Delivery, presence: Presence, message_id: str) -> str:
        target = Target.read(delivery.target)
        presence.remember(target.chat, message_id, target.thread)
        return message_id


def open_telegram(doors: Sequence[Door]) -> TelegramAdapter:
    """Make the adapter for every character that has a token; raises ConfigError where two have the same."""
    wanted = [door for door in doors if _is_meant(door)]
    owners: dict[str, Door] = {}
    for door in wanted:
        account = read_settings(door.settings).account
        if account in owners:
            raise ConfigError(
                f"{owners[account].character.name} and {door.character.name} have the same "
                "TELEGRAM_BOT_TOKEN: give each character one of its own, in its file's secrets"
            )
        owners[account] = door
    if not owners:
        raise ConfigError("no character has a TELEGRAM_BOT_TOKEN: BotFather gives one")
    hooks = {_listening(door) for door in wanted} - {None}
    if len(hooks) > 1:
        raise ConfigError(
            "the TELEGRAM_WEBHOOK_… settings of two characters differ: set them in the environment"
        )
    return TelegramAdapter(wanted)


def _is_meant(door: Door) -> bool:
    adapters = door.character.adapters
    return "TELEGRAM_BOT_TOKEN" in door.settings and (not adapters or PLATFORM in adapters)


def _listening(door: Door) -> tuple[str, int, str] | None:
    settings = read_settings(door.settings)
    if settings.telegram_webhook_url is None:
        return None
    path = urlsplit(settings.telegram_webhook_url).path
    return settings.telegram_webhook_host, settings.telegram_webhook_port, path
