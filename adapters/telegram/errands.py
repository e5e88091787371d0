"""What people ask the bot itself: a command or the press of a button, and what they are shown."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakValueDictionary

from telegram.error import TelegramError

from adapters.telegram.account import Account
from adapters.telegram.cutting import pieces
from adapters.telegram.markup import Formatted
from adapters.telegram.menu import as_typed
from adapters.telegram.mouth import Mouth
from adapters.telegram.outgoing import LONGEST_TEXT, MARKS
from adapters.telegram.places import Target
from adapters.telegram.updates import Ordered, Press
from adapters.telegram.wire import watched_as
from bot import Content, Door, Shown

LONGEST_ALERT = 200
ERRAND = "errand"  # its kill-points


class Errands:
    """Runs them for one bot, and says what comes of it."""

    def __init__(self, door: Door, account: Account, mouth: Mouth) -> None:
        self._door, self._account, self._mouth = door, account, mouth
        self._turns: WeakValueDictionary[Target, asyncio.Lock] = WeakValueDictionary()

    async def answer(self, item: Ordered | Press, carried_out: Callable[[], None]) -> None:
        """Carry out what was asked for, tell that it is, and show what came of it.

        Once this returns, or fails, Telegram need not tell it again.
        """
        if isinstance(item, Ordered):
            shown = self._as_typed(await self._door.command(item.asked))
            carried_out()
            await self._show(Target.read(item.asked.room.external_id), item.message_id, shown)
            return
        shown = Shown()
        if item.pressed is not None:
            shown = self._as_typed(await self._door.chosen(item.pressed))
        carried_out()
        is_short = len(shown.text) <= LONGEST_ALERT and not shown.choices
        try:
            with watched_as(ERRAND):
                await self._account.answer_callback_query(
                    item.query_id, text=shown.text if is_short else None
                )
        except TelegramError:
            is_short = False  # too late for an alert: a message says it
        if item.pressed is not None and not is_short:
            await self._show(Target.read(item.pressed.room.external_id), item.message_id, shown)

    def _as_typed(self, shown: Shown) -> Shown:
        return replace(shown, text=as_typed(shown.text, self._door.commands))

    async def _show(self, target: Target, message_id: int, shown: Shown) -> None:
        if not shown.text:
            return
        texts = [one.text for one in pieces(Formatted(shown.text), LONGEST_TEXT)]
        async with self._turns.setdefault(target, asyncio.Lock()):  # in a chat, one after another
            for number, text in enumerate(texts, 1):
                content = Content(
                    text=text, metadata={MARKS: []}, choices=shown.choices if number == len(texts) else ()
                )
                with watched_as(ERRAND):
                    await self._mouth.say_soon(target, content, str(message_id) if number == 1 else "")
