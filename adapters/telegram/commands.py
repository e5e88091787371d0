"""Command menus, and the execution of commands and buttons."""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from telegram import (
    BotCommand,
    BotCommandScope,
    BotCommandScopeAllChatAdministrators,
    BotCommandScopeAllPrivateChats,
    BotCommandScopeDefault,
)
from telegram.error import TelegramError

from adapters.telegram.client import BotClient, error_text, label_crash_points
from adapters.telegram.incoming import ChatTarget
from adapters.telegram.outgoing import MAX_TEXT_LENGTH, SPANS_KEY, FormattedText, split_text
from adapters.telegram.receiving import ButtonItem, CommandItem
from adapters.telegram.sending import COMMAND_CRASH_POINT, MessageSender
from bot import CommandResponse, Content, Role, Room
from bot.platform import AgentHandle, CommandSpec, ResponseTarget
from bot.text import LANGUAGES, current_language, translate, use_language

logger = logging.getLogger(__name__)

COMMAND_NAME_PATTERN = re.compile(r"[a-z0-9_]{1,32}")
MAX_COMMANDS, MAX_DESCRIPTION_LENGTH = 100, 256
MAX_ALERT_LENGTH = 200


def to_telegram_name(spec: CommandSpec) -> str:
    """Return a command's name in the form that Telegram accepts: lower case, without hyphens."""
    return spec.name.lower().replace("-", "_")


def use_telegram_names(text: str, specs: Iterable[CommandSpec]) -> str:
    """Replace command names in a text by Telegram's form, because a tapped command ends at a hyphen."""
    for spec in specs:
        if "-" in spec.name:
            text = re.sub(rf"(?<![\w/.])/{re.escape(spec.name)}(?![\w-])", f"/{to_telegram_name(spec)}", text)
    return text


@dataclass(frozen=True, slots=True)
class CommandMenu:
    """The commands that Telegram lists in chats of a scope, for people of a language; empty for all others."""

    scope: BotCommandScope
    language: str
    commands: Sequence[BotCommand]


def build_menus(specs: Iterable[CommandSpec]) -> list[CommandMenu]:
    """Build the default menu and the menus with all commands for administrators and private chats.

    Each is in the program's language, and in every other that has a catalogue.
    """
    valid_specs = [spec for spec in specs if COMMAND_NAME_PATTERN.fullmatch(to_telegram_name(spec))][:MAX_COMMANDS]
    unprivileged_specs = [spec for spec in valid_specs if not spec.role.is_at_least(Role.ADMIN)]
    menus = []
    for language in ("", *(name for name in LANGUAGES if name != current_language())):
        with use_language(language):
            unprivileged, valid = _to_bot_commands(unprivileged_specs), _to_bot_commands(valid_specs)
        menus += [
            CommandMenu(BotCommandScopeDefault(), language, unprivileged),
            CommandMenu(BotCommandScopeAllPrivateChats(), language, valid),
            CommandMenu(BotCommandScopeAllChatAdministrators(), language, valid),
        ]
    return menus


async def register_commands(client: BotClient, specs: Sequence[CommandSpec]) -> None:
    """Register the menus; a failure is only logged, because commands work without them."""
    for menu in build_menus(specs):
        try:
            await client.set_my_commands(menu.commands, scope=menu.scope, language_code=menu.language or None)
        except TelegramError as error:
            logger.warning("the command menu of bot %s could not be updated: %s", client.account, error_text(error))
            return


def _to_bot_commands(specs: Iterable[CommandSpec]) -> list[BotCommand]:
    texts = [(spec, " ".join(translate(spec.description).split())) for spec in specs]
    return [BotCommand(to_telegram_name(spec), text[:MAX_DESCRIPTION_LENGTH] or spec.name) for spec, text in texts]


class CommandHandler:
    """Runs commands and button presses of one bot; the outbox sends their responses as replies."""

    def __init__(self, handle: AgentHandle, client: BotClient, message_sender: MessageSender) -> None:
        self._handle, self._client, self._message_sender = handle, client, message_sender

    async def handle(self, item: CommandItem | ButtonItem, on_executed: Callable[[], None]) -> None:
        """Run a command or a press, call the callback once that is done, then show what the outbox does not send.

        After this returns or fails, the update may be confirmed.
        """
        if isinstance(item, CommandItem):
            target = self._target_of(item.invocation.room, item.message_id, self._split)
            response = await self._handle.run_command(item.invocation, target)
            on_executed()
            await self._send_files(item.invocation.room, item.message_id, response)
        else:
            await self._answer_press(item, on_executed)

    async def _answer_press(self, item: ButtonItem, on_executed: Callable[[], None]) -> None:
        response = CommandResponse()
        if item.selection is not None:
            target = self._target_of(item.selection.room, item.message_id, self._split_long)
            response = await self._handle.select_choice(item.selection, target)
        on_executed()
        if response.is_repeat:
            return
        try:
            with label_crash_points(COMMAND_CRASH_POINT):
                await self._client.answer_callback_query(item.query_id, text=self._use_telegram_names(response.text))
        except TelegramError:  # it is too late for an alert, so send a message
            if item.selection is not None:
                await self._send(item.selection.room, item.message_id, self._split(response))
        if item.selection is not None:
            await self._send_files(item.selection.room, item.message_id, response)

    def _target_of(
        self, room: Room, message_id: int, split: Callable[[CommandResponse], list[Content]]
    ) -> ResponseTarget:
        return ResponseTarget(room.external_id, split, str(message_id))

    def _split_long(self, response: CommandResponse) -> list[Content]:
        """Return the parts of a response, none for one that is shown as an alert."""
        is_alert = len(response.text) <= MAX_ALERT_LENGTH and not response.choices
        return [] if is_alert else self._split(response)

    def _split(self, response: CommandResponse) -> list[Content]:
        text = FormattedText(self._use_telegram_names(response.text))
        parts = [Content(text=part.text, metadata={SPANS_KEY: []}) for part in split_text(text, MAX_TEXT_LENGTH)]
        return [*parts[:-1], *(replace(part, choices=response.choices) for part in parts[-1:])]

    def _use_telegram_names(self, text: str) -> str:
        return use_telegram_names(text, self._handle.commands)

    async def _send_files(self, room: Room, message_id: int, response: CommandResponse) -> None:
        if response.attachments:
            await self._send(room, message_id, [Content(attachments=response.attachments)])

    async def _send(self, room: Room, message_id: int, contents: Sequence[Content]) -> None:
        for content in contents:
            with label_crash_points(COMMAND_CRASH_POINT):
                target = ChatTarget.parse(room.external_id)
                await self._message_sender.send_untracked(target, content, str(message_id))
