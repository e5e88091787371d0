"""What an account remembers between two starts: short texts by name, kept as cursors beside the messages."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from adapters.x.incoming import PLATFORM
from bot import Receipt
from bot.platform import Arrival, Cursor, IntakeClosed
from bot.store import StoreUnavailable


class Keeper(Protocol):
    """What keeps cursors: the inbox."""

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        """Find one."""

    async def put_all(self, arrivals: Sequence[Arrival], cursor: Cursor | None = None) -> list[Receipt]:
        """Keep one, together with messages."""


class Notes:
    """The notes of one account."""

    def __init__(self, keeper: Keeper, account: str) -> None:
        self._inbox = keeper
        self._account = account

    async def read(self, name: str) -> str:
        """Find a note; blank where there is none."""
        return await self._inbox.cursor(PLATFORM, self._account, name) or ""

    def cursor(self, name: str, text: str) -> Cursor:
        """Give a note as it is kept together with messages."""
        return Cursor(PLATFORM, self._account, name, text)

    async def write(self, name: str, text: str) -> None:
        """Keep a note; raises as the inbox does."""
        await self._inbox.put_all([], self.cursor(name, text))

    async def jot(self, name: str, text: str) -> None:
        """Keep a note where that is possible just now: what it tells of has happened already."""
        with suppress(IntakeClosed, StoreUnavailable):
            await self.write(name, text)
