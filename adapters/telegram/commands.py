"""Command menus, and the execution of commands and buttons."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
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

from adapters.telegram.client import BotClient, label_crash_points
from adapters.telegram.entities import ChatTarget
from adapters.telegram.errors import error_text
from adapters.telegram.markup import FormattedText
from adapters.telegram.outgoing import MAX_TEXT_LENGTH, SPANS_KEY, split_text
from adapters.telegram.receiving import ButtonItem, CommandItem
from adapters.telegram.sending import MessageSender
from bot import CommandResponse, Content, Role
from bot.platform import AgentHandle, BoundedSet, CommandSpec
from bot.store import StoreUnavailable

logger = logging.getLogger(__name__)

COMMAND_NAME_PATTERN = re.compile(r"[a-z0-9_]{1,32}")
MAX_COMMANDS, MAX_DESCRIPTION_LENGTH = 100, 256
MAX_ALERT_LENGTH = 200
MAX_ANSWERED = 1_000  # commands and presses that are remembered here; commands are in the store too
COMMAND_CRASH_POINT = "errand"  # label of its crash points


def to_telegram_name(spec: CommandSpec) -> str:
    """Return a command's name in the form that Telegram accepts: lower case, without hyphens."""
    return spec.name.lower().replace("-", "_")


def use_telegram_names(text: str, specs: Iterable[CommandSpec]) -> str:
    """Replace command names in a text by Telegram's form, because a tapped command ends at a hyphen."""
    for spec in specs:
        if "-" in spec.name:
            text = re.sub(rf"(?<![\w/.])/{re.escape(spec.name)}(?![\w-])", f"/{to_telegram_name(spec)}", text)
    return text


def build_menus(specs: Iterable[CommandSpec]) -> list[tuple[BotCommandScope, list[BotCommand]]]:
    """Build the default menu and the menus with all commands for administrators and private chats."""
    valid_specs = [spec for spec in specs if COMMAND_NAME_PATTERN.fullmatch(to_telegram_name(spec))][:MAX_COMMANDS]
    unprivileged_specs = [spec for spec in valid_specs if not spec.role.is_at_least(Role.ADMIN)]
    return [
        (BotCommandScopeDefault(), _to_bot_commands(unprivileged_specs)),
        (BotCommandScopeAllPrivateChats(), _to_bot_commands(valid_specs)),
        (BotCommandScopeAllChatAdministrators(), _to_bot_commands(valid_specs)),
    ]


async def register_commands(client: BotClient, specs: Sequence[CommandSpec]) -> None:
    """Register the menus; a failure is only logged, because commands work without them."""
    for scope, commands in build_menus(specs):
        try:
            await client.set_my_commands(commands, scope=scope)
        except TelegramError as error:
            logger.warning("the command menu of bot %s could not be updated: %s", client.account, error_text(error))
            return


def _to_bot_commands(specs: Iterable[CommandSpec]) -> list[BotCommand]:
    return [
        BotCommand(to_telegram_name(spec), " ".join(spec.description.split())[:MAX_DESCRIPTION_LENGTH] or spec.name)
        for spec in specs
    ]


class CommandHandler:
    """Runs commands and button presses of one bot and sends their responses."""

    def __init__(self, handle: AgentHandle, client: BotClient, message_sender: MessageSender) -> None:
        self._handle, self._client, self._message_sender = handle, client, message_sender
        self._answering: set[str] = set()  # events of commands and presses that are being answered
        self._answered = BoundedSet[str](MAX_ANSWERED)
        self._locks: WeakValueDictionary[ChatTarget, asyncio.Lock] = WeakValueDictionary()

    async def handle(self, item: CommandItem | ButtonItem, on_executed: Callable[[], None]) -> None:
        """Execute a command or a press, call the callback once that is done, then send the response.

        After this returns or fails, the update may be confirmed. One that is delivered again is not answered again.
        """
        key = item.query_id if isinstance(item, ButtonItem) else f"command {item.invocation.event_id}"
        if key in self._answering or key in self._answered:
            return
        self._answering.add(key)
        try:
            if isinstance(item, CommandItem):
                await self._answer_command(item, on_executed)
            else:
                await self._answer_press(item, on_executed)
            self._answered.add(key)
        finally:
            self._answering.discard(key)

    async def _answer_command(self, item: CommandItem, on_executed: Callable[[], None]) -> None:
        response = self._use_telegram_names(await self._handle.run_command(item.invocation))
        on_executed()
        if response.text:
            await self._reply(ChatTarget.parse(item.invocation.room.external_id), item.message_id, response)
            with suppress(StoreUnavailable):  # then a restart would answer it again
                await self._handle.note_answered(item.invocation)

    async def _answer_press(self, item: ButtonItem, on_executed: Callable[[], None]) -> None:
        response = CommandResponse()
        if item.selection is not None:
            response = self._use_telegram_names(await self._handle.select_choice(item.selection))
        on_executed()
        is_short = len(response.text) <= MAX_ALERT_LENGTH and not response.choices
        try:
            with label_crash_points(COMMAND_CRASH_POINT):
                await self._client.answer_callback_query(item.query_id, text=response.text if is_short else None)
        except TelegramError:
            is_short = False  # too late for an alert, so send a message
        if item.selection is not None and not is_short:
            await self._reply(ChatTarget.parse(item.selection.room.external_id), item.message_id, response)

    def _use_telegram_names(self, response: CommandResponse) -> CommandResponse:
        return replace(response, text=use_telegram_names(response.text, self._handle.commands))

    async def _reply(self, target: ChatTarget, message_id: int, response: CommandResponse) -> None:
        if not response.text:
            return
        texts = [part.text for part in split_text(FormattedText(response.text), MAX_TEXT_LENGTH)]
        async with self._locks.setdefault(target, asyncio.Lock()):  # one response after another in each chat
            for number, text in enumerate(texts, 1):
                content = Content(
                    text=text, metadata={SPANS_KEY: []}, choices=response.choices if number == len(texts) else ()
                )
                with label_crash_points(COMMAND_CRASH_POINT):
                    await self._message_sender.send_untracked(target, content, str(message_id) if number == 1 else "")
            if response.attachments:
                with label_crash_points(COMMAND_CRASH_POINT):
                    files = Content(attachments=response.attachments)
                    await self._message_sender.send_untracked(target, files, str(message_id))
