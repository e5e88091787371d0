"""Who administers a group: asked of Telegram now and then, and believed for a while."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection

from telegram.error import TelegramError

from adapters.telegram.account import Account
from adapters.telegram.faults import UNREADABLE
from adapters.telegram.membership import roles_of
from adapters.telegram.places import Roles

MOST_CHATS = 10_000
MOST_AT_ONCE = 5
DEADLINE = 5.0


class Administrators:
    """Knows the roles in groups; where Telegram does not tell, everybody keeps the role they had."""

    def __init__(self, account: Account, steady: Callable[[], float], seconds: float) -> None:
        self._account = account
        self._steady, self._seconds = steady, seconds
        self._known: OrderedDict[int, tuple[float, Roles | None]] = OrderedDict()
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    def of(self, chat: int) -> Roles | None:
        """Give the roles that are known of a chat."""
        return self._known[chat][1] if chat in self._known else None

    def forget(self, chat: int) -> None:
        """Ask again before the next message: somebody's rights have changed."""
        self._known.pop(chat, None)

    async def learn(self, chats: Collection[int]) -> None:
        """Ask for those groups of which nothing, or nothing recent, is known."""
        asked = {one for one in chats if one < 0 and self._is_stale(one)}
        async with asyncio.TaskGroup() as group:
            for chat in asked:
                group.create_task(self._ask(chat))

    def _is_stale(self, chat: int) -> bool:
        known = self._known.get(chat)
        return known is None or self._steady() - known[0] > self._seconds

    async def _ask(self, chat: int) -> None:
        roles = self.of(chat)
        try:
            async with self._places:
                found = await self._account.get_chat_administrators(chat, read_timeout=DEADLINE)
            roles = roles_of(found)
        except (TelegramError, *UNREADABLE):
            pass  # a courtesy: nobody loses or gains anything by it
        self._known[chat] = (self._steady(), roles)
        while len(self._known) > MOST_CHATS:
            self._known.popitem(last=False)
