"""Small values of one account, stored as cursors so that they survive a restart."""

from contextlib import suppress

from adapters.x.incoming import PLATFORM
from bot import TemporaryError
from bot.platform import AgentHandle, CursorReader, InboxClosed, StreamCursor
from bot.store import StoreUnavailable


class AccountState:
    """The stored values of one account; without a handle they can only be read."""

    def __init__(self, read_cursor: CursorReader, account: str, handle: AgentHandle | None = None) -> None:
        self._read_cursor, self._account, self._handle = read_cursor, account, handle

    async def read(self, name: str) -> str:
        """Return a value; empty if there is none."""
        return await self._read_cursor(PLATFORM, self._account, name) or ""

    def cursor(self, name: str, text: str) -> StreamCursor:
        """Return a value as the cursor that is stored together with messages."""
        return StreamCursor(PLATFORM, self._account, name, text)

    async def write(self, name: str, text: str) -> None:
        """Store a value; raises as the inbox does."""
        if self._handle is None:
            raise TemporaryError("a check stores nothing")
        await self._handle.submit_all([], self.cursor(name, text))

    async def write_later(self, name: str, text: str) -> None:
        """Store a value if the store is available: what it records has happened already."""
        with suppress(InboxClosed, StoreUnavailable):
            await self.write(name, text)
