"""Small values of one account, stored as cursors so that they survive a restart."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from adapters.x.incoming import PLATFORM
from bot import Receipt
from bot.platform import InboundMessage, InboxClosed, StreamCursor
from bot.store import StoreUnavailable


class CursorStore(Protocol):
    """The part of the inbox that stores cursors."""

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        """Return a cursor."""

    async def submit_all(self, messages: Sequence[InboundMessage], cursor: StreamCursor | None = None) -> list[Receipt]:
        """Store a cursor, together with messages."""


class AccountState:
    """The stored values of one account."""

    def __init__(self, store: CursorStore, account: str) -> None:
        self._store = store
        self._account = account

    async def read(self, name: str) -> str:
        """Return a value; empty if there is none."""
        return await self._store.cursor(PLATFORM, self._account, name) or ""

    def cursor(self, name: str, text: str) -> StreamCursor:
        """Return a value as the cursor that is stored together with messages."""
        return StreamCursor(PLATFORM, self._account, name, text)

    async def write(self, name: str, text: str) -> None:
        """Store a value; raises as the inbox does."""
        await self._store.submit_all([], self.cursor(name, text))

    async def write_later(self, name: str, text: str) -> None:
        """Store a value if the store is available: what it records has happened already."""
        with suppress(InboxClosed, StoreUnavailable):
            await self.write(name, text)
