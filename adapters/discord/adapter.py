"""The Discord adapter: one account for every character that has a token."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar, Self
from uuid import UUID

import adapters.discord.library  # noqa: F401  # before anything else asks for the library
from adapters.discord.account import DiscordAccount
from adapters.discord.config import PLATFORM, Limits, read_settings
from adapters.discord.outgoing import split_reply
from bot import Clock, ConfigError, Content, Entity, Room, World, system_clock
from bot.platform import Adapter, AgentHandle, ConnectionStatus, Delivery, NotSent, select_accounts

TOKEN = "DISCORD_API_TOKEN"
DRAFT_INTERVAL_SECONDS = 1.0  # between two edits of a streamed reply; Discord allows five edits in five seconds


class DiscordAdapter(Adapter):
    """Connects every character that has a token; accounts are independent of each other."""

    platform = PLATFORM
    can_edit = True
    shows_choices: ClassVar[bool] = True
    sends_response_files: ClassVar[bool] = True
    hides_responses: ClassVar[bool] = True
    voice_type: ClassVar[str] = "audio/mpeg"

    def __init__(
        self, handles: Sequence[AgentHandle], *, limits: Limits | None = None, clock: Clock = system_clock
    ) -> None:
        self._handles = tuple(handles)
        self._limits = limits or Limits()
        self._clock = clock
        self.accounts: dict[str, DiscordAccount] = {}

    async def __aenter__(self) -> Self:
        for handle in self._handles:
            settings = read_settings(handle.settings)
            account = DiscordAccount(handle, settings, self._limits, self._clock)
            self.accounts[str(handle.agent_id)] = account
            self.is_trusted_audience = not settings.is_default("discord_api_base_url")  # a server of the operator's
            account.start(is_receiving=self.is_receiving)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*(account.stop() for account in self.accounts.values()))

    @property
    def connections(self) -> Sequence[ConnectionStatus]:
        """Return the gateway connection status of each account that this process connects."""
        return [account.status for account in self.accounts.values() if not account.is_elsewhere]

    def split_content(self, content: Content) -> list[Content]:
        """Split a reply into messages."""
        return split_reply(content)

    async def deliver(self, delivery: Delivery) -> str:
        """Send one part, with its own id as nonce."""
        return await self._account_of(delivery).deliver(delivery)

    async def edit(self, delivery: Delivery) -> str:
        """Edit or delete the message that a part replaces."""
        return await self._account_of(delivery).edit(delivery)

    def trusted_origin(self, account: str) -> str:
        """Return the origin of the server with Discord's API that the operator has set for an account."""
        discord_account = self.accounts.get(account)
        return discord_account.trusted_origin if discord_account is not None else ""

    def stream_interval(self, room: Room) -> float | None:
        """Return the seconds between two edits of a streamed reply."""
        return DRAFT_INTERVAL_SECONDS

    async def reconcile(self, delivery: Delivery) -> str:
        """Resend an unclear part while Discord remembers its nonce; after that, search the channel for it."""
        return await self._account_of(delivery).reconcile(delivery)

    async def open_direct(self, agent_id: UUID, person: Entity) -> tuple[World, Room] | None:
        """Return the direct channel with a user, opened if there is none; None without an account of the agent."""
        account = self.accounts.get(str(agent_id))
        if account is None or not person.external_id.isdecimal():
            return None
        return await account.open_direct(person.external_id)

    async def set_typing(self, room: Room, active: bool) -> None:
        """Show or hide the typing indicator in a room."""
        account = self.accounts.get(room.account)
        if account is not None:
            account.show_typing(room.external_id, active)

    def _account_of(self, delivery: Delivery) -> DiscordAccount:
        account = self.accounts.get(delivery.account)
        if account is None:
            raise NotSent("the character has no Discord account in this process")
        return account


def open_discord(handles: Sequence[AgentHandle]) -> DiscordAdapter:
    """Return the adapter for the characters that have a token and list Discord.

    Raises ConfigError if none has, or if two characters share a token.
    """
    owners = select_accounts(handles, PLATFORM, (TOKEN,), lambda handle: handle.settings.require(TOKEN))
    if not owners:
        raise ConfigError("DISCORD_API_TOKEN is not set: set it in .env, the environment or the character's secrets")
    return DiscordAdapter(tuple(owners.values()))
