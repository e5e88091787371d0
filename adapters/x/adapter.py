"""The X adapter: one account for every character that has keys."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self
from uuid import UUID

from adapters.x.account import XAccount
from adapters.x.config import REQUIRED_VARIABLES
from adapters.x.incoming import PLATFORM
from adapters.x.outgoing import split_reply
from adapters.x.sending import Sleep
from bot import Clock, Content, SettingError, system_clock
from bot.platform import Adapter, AgentHandle, ConnectionStatus, Delivery, Feed, Undeliverable


class XAdapter(Adapter):
    """Polls mentions and sends posts; each character has an account of its own."""

    platform = PLATFORM

    def __init__(
        self, handles: Sequence[AgentHandle], *, clock: Clock = system_clock, sleep: Sleep = asyncio.sleep
    ) -> None:
        enabled = [handle for handle in handles if is_enabled(handle)]
        self._accounts = {handle.agent_id: XAccount(handle, clock=clock, sleep=sleep) for handle in enabled}
        # a server of the operator's, such as the emulator
        self.is_trusted_audience = not any(
            x_account.settings.is_default("x_api_base_url") for x_account in self._accounts.values()
        )
        counts = Counter(account.account_id for account in self._accounts.values())
        if duplicates := [name for name, count in counts.items() if count > 1]:
            raise SettingError(
                f"two characters have the same account on X ({duplicates[0]}): "
                "give each its own X_ACCESS_TOKEN"
            )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for account in self._accounts.values():
                await stack.enter_async_context(account)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def url(self) -> str:
        """The web addresses of the accounts."""
        return " ".join(f"https://x.com/i/user/{account.account_id}" for account in self._accounts.values())

    @property
    def connections(self) -> Sequence[ConnectionStatus]:
        """Return the connection status of each account."""
        return [account.status for account in self._accounts.values()]

    def account_of(self, agent_id: UUID) -> XAccount | None:
        """Return the account of a character."""
        return self._accounts.get(agent_id)

    def feed(self, agent_id: UUID) -> Feed | None:
        """Return the timeline of a character."""
        account = self._accounts.get(agent_id)
        return account.feed if account else None

    def split_content(self, content: Content) -> list[Content]:
        """Split a text into posts."""
        return split_reply(content)

    async def deliver(self, delivery: Delivery) -> str:
        """Send one part and return the post's id."""
        return await self._account_for(delivery).sender.deliver(delivery)

    async def reconcile(self, delivery: Delivery) -> str:
        """Search the timeline for a part of which it is unknown whether it arrived."""
        return await self._account_for(delivery).sender.reconcile(delivery)

    def _account_for(self, delivery: Delivery) -> XAccount:
        for account in self._accounts.values():
            if account.account_id == delivery.account:
                return account
        raise Undeliverable(f"no character in this process has the X account {delivery.account}")


def is_enabled(handle: AgentHandle) -> bool:
    """Return whether a character has all keys and lists X."""
    platforms = handle.character.adapters
    return all(name in handle.settings for name in REQUIRED_VARIABLES) and (
        not platforms or PLATFORM in platforms
    )


def open_x(handles: Sequence[AgentHandle]) -> XAdapter:
    """Return the adapter for all characters that have an account."""
    return XAdapter(handles)
