"""Discord as a platform: an account for every character that has a token."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import ClassVar, Self

import adapters.discord.library  # noqa: F401  # before anything else asks for the library
from adapters.discord.account import Account
from adapters.discord.config import Limits, read_settings
from adapters.discord.entities import PLATFORM
from adapters.discord.outgoing import parts
from bot import Clock, ConfigError, Content, Room, system_clock
from bot.platform import Adapter, Delivery, Door, Link, NotSent

LOOKS = 1.0  # seconds between two looks at a reply that is being written; Discord takes five edits in five


class DiscordAdapter(Adapter):
    """Connects every character that has a token; what one of them suffers does not concern the others."""

    platform = PLATFORM
    can_edit = True
    shows_choices: ClassVar[bool] = True

    def __init__(
        self, doors: Sequence[Door], *, limits: Limits | None = None, clock: Clock = system_clock
    ) -> None:
        self._doors = tuple(doors)
        self._limits = limits or Limits()
        self._clock = clock
        self.accounts: dict[str, Account] = {}

    async def __aenter__(self) -> Self:
        for door in self._doors:
            settings = read_settings(door.settings)
            account = Account(door, settings, self._limits, self._clock)
            self.accounts[str(door.agent_id)] = account
            self.is_private = not settings.is_usual("discord_api_base_url")  # a server of the operator's
            account.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(account.stop() for account in self.accounts.values()))

    @property
    def links(self) -> Sequence[Link]:
        """Tell how each account is connected to the gateway."""
        return [account.link for account in self.accounts.values()]

    def parts(self, content: Content) -> list[Content]:
        """Cut a reply into messages."""
        return parts(content)

    async def deliver(self, delivery: Delivery) -> str:
        """Send one part, under its own id as nonce."""
        return await self._account(delivery).deliver(delivery)

    async def edit(self, delivery: Delivery) -> str:
        """Put a part in the place of what was said, or take that away."""
        return await self._account(delivery).edit(delivery)

    def edits_every(self, room: Room) -> float | None:
        """Show a reply while it is written, once a second."""
        return LOOKS

    async def reconcile(self, delivery: Delivery) -> str:
        """Send an unclear part once more as long as its nonce is known, later look for it in the channel."""
        return await self._account(delivery).reconcile(delivery)

    async def typing(self, room: Room, active: bool) -> None:
        """Show, or stop showing, that the character is writing."""
        account = self.accounts.get(room.account)
        if account is not None:
            await account.typing(room.external_id, active)

    def _account(self, delivery: Delivery) -> Account:
        account = self.accounts.get(delivery.account)
        if account is None:
            raise NotSent("the character is not on Discord in this process")
        return account


def open_discord(doors: Sequence[Door]) -> DiscordAdapter:
    """Make the adapter for those characters that have a token and want Discord.

    Raises ConfigError where two of them have the same token: one account cannot be two people.
    """
    present = [door for door in doors if _wants(door)]
    owners: dict[str, str] = {}
    for door in present:
        token = door.settings.require("DISCORD_API_TOKEN")
        if token in owners:
            raise ConfigError(
                f"{owners[token]} and {door.character.name} have the same DISCORD_API_TOKEN: give each "
                "a token of its own in its file's secrets, or other `adapters` in the file of one"
            )
        owners[token] = door.character.name
    if not present:
        raise ConfigError("DISCORD_API_TOKEN is not set: put it in .env, the environment or the secrets")
    return DiscordAdapter(present)


def _wants(door: Door) -> bool:
    adapters = door.character.adapters
    return "DISCORD_API_TOKEN" in door.settings and (not adapters or PLATFORM in adapters)
