"""Typing signs: one fades after five seconds, so it is shown anew as long as the work goes on."""

import asyncio

from telegram.error import TelegramError

from adapters.telegram.account import Account
from adapters.telegram.floods import Floods
from adapters.telegram.moments import Moments
from adapters.telegram.places import Target

DEADLINE = 4.0


class TypingSigns:
    """Shows them for one bot, and leaves them out where messages need the room."""

    def __init__(self, account: Account, floods: Floods, moments: Moments, seconds: float) -> None:
        self._account, self._floods = account, floods
        self._moments, self._seconds = moments, seconds
        self._shown: dict[Target, asyncio.Task[None]] = {}

    def show(self, target: Target) -> None:
        """Begin to show that the bot is writing."""
        if target not in self._shown:
            self._shown[target] = asyncio.get_running_loop().create_task(self._renew(target))

    async def hide(self, target: Target) -> None:
        """Show it no more."""
        task = self._shown.pop(target, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def stop(self) -> None:
        """Show none any more."""
        for target in list(self._shown):
            await self.hide(target)

    async def _renew(self, target: Target) -> None:
        while True:
            if self._floods.spare(target.chat):
                try:
                    await self._account.send_chat_action(
                        target.chat, "typing", message_thread_id=target.thread, read_timeout=DEADLINE
                    )
                except TelegramError:
                    return  # a courtesy: the next answer tries again
            await self._moments.pause(self._seconds)
