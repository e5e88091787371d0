"""Command menu; commands and buttons."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from telegram import (
    BotCommand,
    BotCommandScope,
    BotCommandScopeAllChatAdministrators,
    BotCommandScopeAllPrivateChats,
    BotCommandScopeDefault,
)
from telegram.error import TelegramError

from adapters.telegram.client import Account, watched_as
from adapters.telegram.entities import Target
from adapters.telegram.errors import said
from adapters.telegram.markup import Formatted
from adapters.telegram.outgoing import LONGEST_TEXT, MARKS, pieces
from adapters.telegram.receiving import Ordered, Press
from adapters.telegram.sending import Mouth
from bot import Content, Role, Shown
from bot.platform import CommandSpec, Door

logger = logging.getLogger(__name__)

NAME = re.compile(r"[a-z0-9_]{1,32}")
MOST, LONGEST = 100, 256


def command_name(spec: CommandSpec) -> str:
    """Give a command's name as Telegram can have it: without hyphens."""
    return spec.name.lower().replace("-", "_")


def as_typed(text: str, specs: Iterable[CommandSpec]) -> str:
    """Write the commands in a text as Telegram has them: what is tapped there ends at a hyphen."""
    for spec in specs:
        if "-" in spec.name:
            text = re.sub(rf"(?<![\w/.])/{re.escape(spec.name)}(?![\w-])", f"/{command_name(spec)}", text)
    return text


def menus(specs: Iterable[CommandSpec]) -> list[tuple[BotCommandScope, list[BotCommand]]]:
    """Make the menus: everybody's, that of administrators, and that of private chats, where all are free."""
    usable = [one for one in specs if NAME.fullmatch(command_name(one))][:MOST]
    free = [one for one in usable if not one.role.reaches(Role.ADMIN)]
    return [
        (BotCommandScopeDefault(), _listed(free)),
        (BotCommandScopeAllPrivateChats(), _listed(usable)),
        (BotCommandScopeAllChatAdministrators(), _listed(usable)),
    ]


async def register(account: Account, specs: Sequence[CommandSpec]) -> None:
    """Put the menus up; a bot without them still obeys."""
    for scope, commands in menus(specs):
        try:
            await account.set_my_commands(commands, scope=scope)
        except TelegramError as error:
            logger.warning(
                "the menu of commands of bot %s is not up to date: %s", account.number, said(error)
            )
            return


def _listed(specs: Iterable[CommandSpec]) -> list[BotCommand]:
    return [
        BotCommand(command_name(one), " ".join(one.description.split())[:LONGEST] or one.name)
        for one in specs
    ]


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
