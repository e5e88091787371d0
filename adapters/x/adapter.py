"""X as a platform: the accounts of all characters of the process."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self
from uuid import UUID

from adapters.x.account import Account
from adapters.x.config import NEEDS
from adapters.x.incoming import PLATFORM
from adapters.x.outgoing import parts
from adapters.x.sending import Pause
from bot import Clock, Content, SettingError, system_clock
from bot.platform import Adapter, Delivery, Door, Feed, Link, Undeliverable


class XAdapter(Adapter):
    """Brings mentions in and posts out; each character has an account of its own."""

    platform = PLATFORM

    def __init__(
        self, doors: Sequence[Door], *, clock: Clock = system_clock, pause: Pause = asyncio.sleep
    ) -> None:
        ours = [door for door in doors if has_account(door)]
        self._accounts = {door.agent_id: Account(door, clock=clock, pause=pause) for door in ours}
        # a server of the operator's, such as the emulator
        self.is_private = not any(one.settings.is_usual("x_api_base_url") for one in self._accounts.values())
        counted = Counter(account.name for account in self._accounts.values())
        if twice := [name for name, count in counted.items() if count > 1]:
            raise SettingError(
                f"two characters have the same account on X ({twice[0]}): give each its own X_ACCESS_TOKEN"
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
        """Where the accounts are to be seen."""
        return " ".join(f"https://x.com/i/user/{one.name}" for one in self._accounts.values())

    @property
    def links(self) -> Sequence[Link]:
        """Tell whether X answers each account."""
        return [account.link for account in self._accounts.values()]

    def account(self, agent_id: UUID) -> Account | None:
        """Find a character's account."""
        return self._accounts.get(agent_id)

    def feed(self, agent_id: UUID) -> Feed | None:
        """Give the timeline of a character."""
        account = self._accounts.get(agent_id)
        return account.feed if account else None

    def parts(self, content: Content) -> list[Content]:
        """Cut a text into posts."""
        return parts(content)

    async def deliver(self, delivery: Delivery) -> str:
        """Send one part, and give the post's id."""
        return await self._of(delivery).sender.deliver(delivery)

    async def reconcile(self, delivery: Delivery) -> str:
        """Look on the timeline for a part whose sending was unclear."""
        return await self._of(delivery).sender.reconcile(delivery)

    def _of(self, delivery: Delivery) -> Account:
        for account in self._accounts.values():
            if account.name == delivery.account:
                return account
        raise Undeliverable(f"no character here has the account {delivery.account} on X")


def has_account(door: Door) -> bool:
    """Tell whether a character has its keys, and is meant for X."""
    platforms = door.character.adapters
    return all(name in door.settings for name in NEEDS) and (not platforms or PLATFORM in platforms)


def open_x(doors: Sequence[Door]) -> XAdapter:
    """Make the adapter for all characters that have an account."""
    return XAdapter(doors)
