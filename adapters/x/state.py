"""What an account remembers between two starts: short texts by name, kept as cursors beside the messages."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from adapters.x.incoming import PLATFORM
from bot import Receipt
from bot.platform import InboundMessage, InboxClosed, StreamCursor
from bot.store import StoreUnavailable


class CursorStore(Protocol):
    """What keeps cursors: the inbox."""

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        """Find one."""

    async def submit_all(
        self, messages: Sequence[InboundMessage], cursor: StreamCursor | None = None
    ) -> list[Receipt]:
        """Keep one, together with messages."""


class AccountState:
    """The notes of one account."""

    def __init__(self, store: CursorStore, account: str) -> None:
        self._inbox = store
        self._account = account

    async def read(self, name: str) -> str:
        """Find a note; blank where there is none."""
        return await self._inbox.cursor(PLATFORM, self._account, name) or ""

    def cursor(self, name: str, text: str) -> StreamCursor:
        """Give a note as it is kept together with messages."""
        return StreamCursor(PLATFORM, self._account, name, text)

    async def write(self, name: str, text: str) -> None:
        """Keep a note; raises as the inbox does."""
        await self._inbox.submit_all([], self.cursor(name, text))

    async def write_later(self, name: str, text: str) -> None:
        """Keep a note where that is possible just now: what it tells of has happened already."""
        with suppress(InboxClosed, StoreUnavailable):
            await self.write(name, text)
