"""Parsing of updates and their submission to the agent in order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from telegram import Bot, Message, Update
from telegram.error import TelegramError

from adapters.telegram.albums import merge_album, submit_album_edit
from adapters.telegram.client import UPDATE_KINDS
from adapters.telegram.entities import PLATFORM, ChatTarget, build_location, direct_topic_id_of, thread_id_of
from adapters.telegram.errors import PARSE_ERRORS
from adapters.telegram.incoming import (
    IncomingContext,
    locate_message,
    locate_reaction,
    parse_choice,
    parse_command,
    parse_message,
    parse_reactions,
)
from adapters.telegram.membership import (
    AdministratorCache,
    Change,
    parse_membership,
    parse_own_membership,
    parse_service_message,
)
from adapters.telegram.rich_text import with_rich_text
from adapters.telegram.validation import check_update, read_partly
from bot import BotError, TemporaryError
from bot.platform import (
    AgentHandle,
    BoundedDict,
    ChoiceSelection,
    CommandInvocation,
    InboundMessage,
    InboxClosed,
    Reaction,
    StreamCursor,
    TaskSet,
    TimeSource,
)
from bot.store import StoreUnavailable

logger = logging.getLogger(__name__)
MAX_THREADS = 10_000
COMMAND_TIMEOUT = 5.0
RESPONSE_TIMEOUT = 3.0
RETRY_ERRORS = (InboxClosed, TemporaryError)  # the update must come again
RawUpdate = Any


@dataclass(frozen=True, slots=True)
class MessageItem:
    """A message, or one part of an album."""

    inbound: InboundMessage
    album_id: str = ""


@dataclass(frozen=True, slots=True)
class CommandItem:
    """A command; its response replies to the message."""

    invocation: CommandInvocation
    message_id: int


@dataclass(frozen=True, slots=True)
class ButtonItem:
    """A pressed button; Telegram expects an answer to the query."""

    query_id: str
    selection: ChoiceSelection | None
    message_id: int


UpdateItem = MessageItem | CommandItem | ButtonItem | Change  # an edit, a reaction or a membership change


@dataclass(frozen=True, slots=True)
class UpdateContext:
    """What parsing an update needs besides the update.

    `may_be_old`: Telegram may have stored the update while the bot was off.
    """

    incoming: IncomingContext
    command_names: Sequence[str]
    threads: Mapping[tuple[int, int], int]  # topics by chat and message
    now: datetime
    may_be_old: bool = False


def parse_update(update: Update, context: UpdateContext) -> list[UpdateItem]:
    """Return the items of an update; none for a kind that was not requested."""
    update_id, incoming = update.update_id, context.incoming
    message = update.message or update.channel_post or update.guest_message
    edited = update.edited_message or update.edited_channel_post
    if message is not None:
        return _parse_message(message, update_id, context)
    if edited is not None:
        return _parse_edit(edited, update_id, incoming)
    if update.callback_query is not None:
        query = update.callback_query
        message_id = query.message.message_id if query.message is not None else 0
        return [ButtonItem(query.id, parse_choice(query, incoming, context.now), message_id)]
    if (reaction_update := update.message_reaction) is not None:
        topic_id = context.threads.get((reaction_update.chat.id, reaction_update.message_id))
        location = locate_reaction(reaction_update, incoming, topic_id)
        if incoming.is_ignored(location, reaction_update.chat):
            return []
        added, removed = parse_reactions(reaction_update, incoming, topic_id)
        additions = [partial(_add_reaction, reaction) for reaction in added]
        return [*additions, *(partial(_remove_reaction, reaction) for reaction in removed)]
    if update.my_chat_member is not None:
        return [parse_own_membership(update.my_chat_member, update_id, incoming)]
    if update.chat_member is not None:
        return [*parse_membership(update.chat_member, incoming)]
    return []


def _add_reaction(reaction: Reaction, handle: AgentHandle) -> Awaitable[object]:
    return handle.edits.add_reaction(reaction)


def _remove_reaction(reaction: Reaction, handle: AgentHandle) -> Awaitable[object]:
    return handle.edits.remove_reactions(
        reaction.room.id, reaction.message_id, author_id=reaction.author.id, emoji=reaction.emoji
    )


def _parse_message(message: Message, update_id: int, context: UpdateContext) -> list[UpdateItem]:
    incoming = context.incoming
    location = locate_message(message, incoming)
    if (changes := parse_service_message(message, location, incoming)) is not None:
        return [*changes]
    if incoming.is_ignored(location, message.chat):
        return []
    if (command := parse_command(message, update_id, incoming, context.command_names)) is not None:
        return [CommandItem(command, message.message_id)]
    album_id = _album_of(message)
    inbound = parse_message(message, update_id, incoming, location)
    return [MessageItem(replace(inbound, is_backfill=True) if context.may_be_old else inbound, album_id)]


def _parse_edit(message: Message, update_id: int, incoming: IncomingContext) -> list[UpdateItem]:
    if incoming.is_ignored(locate_message(message, incoming), message.chat):
        return []
    inbound = parse_message(message, update_id, incoming)
    if album_id := _album_of(message):
        return [lambda handle: submit_album_edit(handle, inbound, album_id)]
    return [lambda handle: handle.edits.submit_edit(inbound)]


def _album_of(message: Message) -> str:
    """Return the id of the album of which a message is a part; blank for any other."""
    return f"{message.chat.id}/{message.media_group_id}" if message.media_group_id else ""


@dataclass(frozen=True, slots=True)
class ParsedUpdate:
    """A parsed update and its items, and the update as Telegram sent it."""

    update_id: int
    chat_id: int | None
    items: tuple[UpdateItem, ...]
    raw: RawUpdate = None

    @property
    def album_ids(self) -> list[str]:
        """The albums of which it contains a part."""
        return [item.album_id for item in self.items if isinstance(item, MessageItem) and item.album_id]

    @property
    def username(self) -> str:
        """The author's @name; blank without one."""
        authors = (item.inbound.author for item in self.items if isinstance(item, MessageItem))
        return next((str(author.metadata.get("username") or "") for author in authors), "")


class UpdateReceiver:
    """Submits the updates of one bot to its agent in order.

    `execute` runs a command or a button press, calls its callback once that is done, then sends the response.
    Only the cursor waits for the response.
    """

    def __init__(
        self,
        handle: AgentHandle,
        context: IncomingContext,
        bot: Bot,
        administrators: AdministratorCache,
        execute: Callable[[CommandItem | ButtonItem, Callable[[], None]], Coroutine[Any, Any, None]],
        time_source: TimeSource,
        note_user: Callable[[int, str], None],
    ) -> None:
        self._handle, self._context, self._bot = handle, context, bot
        self._administrators, self._execute = administrators, execute
        self._time, self._note_user = time_source, note_user
        self._command_names = tuple(spec.name.replace("-", "_") for spec in handle.commands)
        self._threads: BoundedDict[tuple[int, int], int] = BoundedDict(MAX_THREADS)  # reactions do not name the topic
        self._tasks = TaskSet("a command or a button on Telegram")

    async def parse(self, batch: Iterable[RawUpdate], *, may_be_old: bool) -> list[ParsedUpdate]:
        """Parse updates; one that cannot be read is recorded and costs no other, nor does an odd field cost its update.

        With `may_be_old`, old messages are stored and not answered.
        """
        updates: list[tuple[RawUpdate, RawUpdate, Update, int | None]] = []
        for raw in batch:
            flat = with_rich_text(raw)
            try:
                updates.append((raw, flat, *self._parse_raw(flat)))
            except Exception as error:  # the library does not check types, so it may raise anything
                if (partial_update := self._read_partly(flat)) is not None:
                    updates.append((raw, partial_update, *self._parse_raw(partial_update)))
                else:
                    await self._record_unreadable(raw, error)
        await self._administrators.refresh({chat_id for *_, chat_id in updates if chat_id is not None})
        parsed = []
        for raw, flat, update, chat_id in updates:
            items: tuple[UpdateItem, ...] = ()
            try:
                await self._find_topic(update)
                items = self._parse_items(update, chat_id, may_be_old)
            except Exception as error:  # as above
                if (partial_update := self._read_partly(flat)) is not None:
                    items = self._parse_items(*self._parse_raw(partial_update), may_be_old)
                else:
                    await self._record_unreadable(raw, error)
            parsed.append(ParsedUpdate(update.update_id, chat_id, items, raw))
        return parsed

    async def submit(self, batch: Sequence[ParsedUpdate], cursor: StreamCursor | None = None) -> None:
        """Store the updates: consecutive messages in one transaction, the last with the cursor.

        The cursor waits for command responses, but only briefly: a chat may be rate-limited for minutes.
        """
        messages: list[InboundMessage] = []
        command_tasks: list[asyncio.Task[BotError | None]] = []
        all_items = [item for update in batch for item in update.items]
        album_items = [item for item in all_items if isinstance(item, MessageItem) and item.album_id]
        seen_albums: set[str] = set()
        for update in batch:
            if update.chat_id is not None:
                self._note_user(update.chat_id, update.username)
            for item in update.items:
                if isinstance(item, MessageItem):
                    if item.album_id in seen_albums:
                        continue
                    parts = [other.inbound for other in album_items if other.album_id == item.album_id]
                    messages.append(merge_album(parts, item.album_id) if item.album_id else item.inbound)
                    seen_albums |= {item.album_id} - {""}
                    continue
                await self._submit_messages(messages)
                messages = []
                if isinstance(item, CommandItem | ButtonItem):
                    command_tasks.append(await self._start_command(item))
                else:
                    await self._apply_change(item, update.raw)
        if command_tasks:
            await self._submit_messages(messages)
            messages = []
            await asyncio.wait(command_tasks, timeout=RESPONSE_TIMEOUT)
        await self._submit_messages(messages, cursor)

    async def stop(self) -> None:
        """Stop the running commands."""
        await self._tasks.cancel()

    def note_topic(self, chat_id: int, message_id: int, thread_id: int | None) -> None:
        """Store the topic of a message."""
        if thread_id is not None:
            self._threads[chat_id, message_id] = thread_id

    async def _find_topic(self, update: Update) -> None:
        """Look up the topic of a message with a reaction that was received or sent before the bot started."""
        reaction = update.message_reaction
        if reaction is None or not reaction.chat.is_forum:
            return
        chat_id, message_id = reaction.chat.id, reaction.message_id
        if (chat_id, message_id) in self._threads:
            return
        world_id = build_location(self._context.identity, reaction.chat).world.id
        with suppress(StoreUnavailable):
            room = await self._handle.conversations.room_of_message(world_id, str(message_id))
            self.note_topic(chat_id, message_id, ChatTarget.parse(room.external_id).thread_id if room else None)

    async def _submit_messages(self, messages: Sequence[InboundMessage], cursor: StreamCursor | None = None) -> None:
        if messages or cursor is not None:
            await self._handle.submit_tolerant(messages, cursor)

    async def _apply_change(self, change: Change, raw: RawUpdate) -> None:
        try:
            await change(self._handle)
        except RETRY_ERRORS:
            raise
        except Exception as error:  # it must not stop the following updates
            await self._record_unreadable(raw, error)

    async def _record_unreadable(self, raw: RawUpdate, error: Exception) -> None:
        update_id = update_id_of(raw)
        event_id = "" if update_id is None else f"update {update_id}"
        await self._handle.record_unreadable(PLATFORM, self._context.identity.account, event_id, raw, error)

    async def _start_command(self, item: CommandItem | ButtonItem) -> asyncio.Task[BotError | None]:
        """Start a command; return when it was executed, or after a timeout to not delay others."""
        executed = asyncio.Event()
        task = self._tasks.start(self._run_command(item, executed))
        with suppress(TimeoutError):
            async with asyncio.timeout(COMMAND_TIMEOUT):
                await executed.wait()
        has_result = task.done() and not task.cancelled() and task.exception() is None
        if has_result and isinstance(error := task.result(), RETRY_ERRORS):
            raise error
        return task

    async def _run_command(self, item: CommandItem | ButtonItem, executed: asyncio.Event) -> BotError | None:
        """Execute a command and send its response; return the error if the update must be repeated."""
        try:
            await self._execute(item, executed.set)
        except (BotError, TelegramError, *PARSE_ERRORS) as error:
            logger.warning("a command or a button was not answered: %s", error)
            return error if isinstance(error, RETRY_ERRORS) else None
        finally:
            executed.set()
        return None

    def _read_partly(self, raw: RawUpdate) -> RawUpdate | None:
        """Return an update without the fields that cannot be read; None if too little of it would be left."""
        update_id = update_id_of(raw)
        try:
            partial_update = read_partly(raw, self._is_readable, self._time.now()) if update_id is not None else None
        except Exception:  # an update that cannot be repaired must not stop those that follow
            logger.warning("update %s could not be read in parts", update_id, exc_info=True)
            return None
        if partial_update is None:
            return None
        if partial_update[1]:
            names = ", ".join(partial_update[1])
            logger.warning("update %s is read without fields that cannot be read: %s", update_id, names)
        return partial_update[0]

    def _is_readable(self, raw: RawUpdate) -> bool:
        try:
            self._parse_items(*self._parse_raw(raw), may_be_old=False)
        except Exception:  # as in `parse`
            return False
        return True

    def _parse_raw(self, raw: RawUpdate) -> tuple[Update, int | None]:
        check_update(raw)
        parts: dict[str, Any] = {
            name: kind.de_json(raw[name], self._bot) for name, kind in UPDATE_KINDS.items() if raw.get(name) is not None
        }
        update = Update(raw["update_id"], **parts)
        chat = update.effective_chat if update.guest_message is None else None  # of a guest's chat nothing can be asked
        return update, None if chat is None else int(chat.id)

    def _parse_items(self, update: Update, chat_id: int | None, may_be_old: bool) -> tuple[UpdateItem, ...]:
        if update.my_chat_member or update.chat_member:
            self._administrators.invalidate(chat_id or 0)
        roles = self._administrators.find(chat_id) if chat_id is not None else None
        context = self._context if roles is None else replace(self._context, roles=roles)
        update_context = UpdateContext(context, self._command_names, self._threads, self._time.now(), may_be_old)
        message = update.effective_message
        if isinstance(message, Message):
            topic_id = thread_id_of(message) or direct_topic_id_of(message)
            self.note_topic(message.chat.id, message.message_id, topic_id)
        return tuple(parse_update(update, update_context))


def update_id_of(raw: RawUpdate) -> int | None:
    """Return the id of an update; None if it is missing or invalid."""
    update_id = raw.get("update_id") if isinstance(raw, dict) else None
    return update_id if isinstance(update_id, int) and not isinstance(update_id, bool) else None
