"""The commands as Telegram shows them: in its menu, a list for each kind of reader."""

import logging
import re
from collections.abc import Iterable, Sequence

from telegram import (
    BotCommand,
    BotCommandScope,
    BotCommandScopeAllChatAdministrators,
    BotCommandScopeAllPrivateChats,
    BotCommandScopeDefault,
)
from telegram.error import TelegramError

from adapters.telegram.account import Account
from adapters.telegram.faults import said
from bot import CommandSpec, Role

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
