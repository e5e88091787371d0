"""Parsing of updates and their submission to the agent in order.

Joins, leaves, promotions, chat migration, and the cache of administrators.

Albums: several messages of Telegram are stored as one, and an edit of any of them changes that one.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

from telegram import Chat, ChatMember, ChatMemberUpdated, ChosenInlineResult, InlineQuery, Message, Update, User
from telegram.error import TelegramError

import bot.platform as bp
from adapters.telegram.client import PARSE_ERRORS, BotClient, read_partly, update_id_of
from adapters.telegram.faces import Faces
from adapters.telegram.incoming import (
    PLATFORM,
    Addressing,
    BotIdentity,
    ChatLocation,
    ChatTarget,
    IncomingContext,
    Roles,
    build_entity,
    build_location,
    derive_room_id,
    derive_user_id,
    direct_topic_id_of,
    locate_message,
    locate_reaction,
    parse_choice,
    parse_command,
    parse_message,
    parse_reactions,
    thread_id_of,
    with_rich_text,
)
from adapters.telegram.inline import InlineReceiver
from bot import Attachment, BotError, Memory, Role, TemporaryError
from bot.store import StoreUnavailable

Change = Callable[[bp.AgentHandle], Awaitable[object]]
ROLES_BY_STATUS = {ChatMember.OWNER: Role.OWNER, ChatMember.ADMINISTRATOR: Role.ADMIN}
FORMER_CHATS_CURSOR = "former_chats"
MAX_CHATS = 10_000
MAX_CONCURRENT_REQUESTS = 5
REQUEST_TIMEOUT = 5.0


def parse_service_message(message: Message, location: ChatLocation, context: IncomingContext) -> list[Change] | None:
    """Return the changes that a service message reports; None for any other message."""
    world, room, identity = location.world, location.room, context.identity
    if message.migrate_to_chat_id:
        return [build_migration(context, message.chat.id, message.migrate_to_chat_id, world.name)]
    if message.migrate_from_chat_id:
        return [_build_migration(context, message.migrate_from_chat_id, location)]
    if message.new_chat_members:
        return [
            _build_join(user, location, message.date, identity)
            for user in message.new_chat_members
            if user.id != identity.id
        ]
    if message.left_chat_member is not None:
        user = message.left_chat_member
        return [] if user.id == identity.id else [_build_leave(user, location, message.date, identity)]
    if message.new_chat_title:
        return [lambda handle: handle.membership.update_world(world, [room])]
    topic = message.forum_topic_created or message.forum_topic_edited
    if topic is not None:
        renamed_room = replace(room, name=topic.name or "")
        return [lambda handle: handle.membership.update_room(world, renamed_room)]
    return None


def build_migration(context: IncomingContext, old_chat_id: int, new_chat_id: int, name: str = "") -> Change:
    """Return the change that moves the history of a group to its supergroup; rules for the group hold at once."""
    location = build_location(context.identity, Chat(new_chat_id, Chat.SUPERGROUP, title=name))
    return _build_migration(context, old_chat_id, location)


def _build_migration(context: IncomingContext, old_chat_id: int, location: ChatLocation) -> Change:
    account, former_chat_ids = context.identity.account, context.former_chat_ids
    former_chat_ids[location.target.chat_id] = old_chat_id

    async def migrate(handle: bp.AgentHandle) -> None:
        old_room_id = derive_room_id(account, ChatTarget(old_chat_id))
        await handle.edits.migrate_room(old_room_id, location.world, location.room)
        stored = bp.StreamCursor(PLATFORM, account, FORMER_CHATS_CURSOR, json.dumps(former_chat_ids))
        await handle.submit_all([], stored)

    return migrate


async def load_former_chat_ids(handle: bp.AgentHandle, account: str) -> dict[int, int]:
    """Return the former ids of supergroups, as they were stored at their migrations."""
    text = await handle.cursor(PLATFORM, account, FORMER_CHATS_CURSOR)
    return {int(new): int(old) for new, old in json.loads(text or "{}").items()}


def parse_own_membership(update: ChatMemberUpdated, update_id: int, context: IncomingContext) -> Change:
    """Return the change for the bot being added, removed or blocked."""
    location = build_location(context.identity, update.chat, None, context.roles)
    world, room = location.world, location.room
    if _is_member(update.new_chat_member):
        inviter = build_entity(update.from_user, context.identity)
        event_id = "" if _is_member(update.old_chat_member) else str(update_id)
        if not event_id:
            return lambda handle: handle.membership.update_world(world, [room])
        return lambda handle: handle.membership.join_world(world, [room], [inviter], event_id=event_id)
    if update.chat.type == Chat.PRIVATE:
        return lambda handle: handle.edits.leave_room(room.id)
    return lambda handle: handle.edits.leave_world(world.id)


def parse_membership(update: ChatMemberUpdated, context: IncomingContext) -> list[Change]:
    """Return the changes for a user who joined, left or got another role."""
    location = build_location(context.identity, update.chat, None, context.roles)
    user = update.new_chat_member.user
    was_in, is_in = _is_member(update.old_chat_member), _is_member(update.new_chat_member)
    role = ROLES_BY_STATUS.get(update.new_chat_member.status, Role.MEMBER)
    roles = {**location.world.roles, derive_user_id(user.id): role}
    location = replace(location, world=replace(location.world, roles=roles))
    if is_in and not was_in:
        return [_build_join(user, location, update.date, context.identity)]
    if was_in and not is_in:
        return [_build_leave(user, location, update.date, context.identity)]
    entity = build_entity(user, context.identity)
    return [lambda handle: handle.membership.update_member(location.world, entity)] if is_in else []


def _build_join(user: User, location: ChatLocation, timestamp: datetime, identity: BotIdentity) -> Change:
    entity, event_id = build_entity(user, identity), _event_id("join", location, user, timestamp)
    return lambda handle: handle.membership.add_member(location.world, entity, event_id=event_id)


def _build_leave(user: User, location: ChatLocation, timestamp: datetime, identity: BotIdentity) -> Change:
    entity, event_id = build_entity(user, identity), _event_id("leave", location, user, timestamp)
    return lambda handle: handle.membership.remove_member(location.world, entity, event_id=event_id)


def _event_id(kind: str, location: ChatLocation, user: User, timestamp: datetime) -> str:
    """Return the event id, which is the same for the service message and for the member update."""
    return f"{kind}:{location.target.chat_id}:{user.id}:{int(timestamp.timestamp())}"


def _is_member(member: ChatMember) -> bool:
    if member.status == ChatMember.RESTRICTED:
        return bool(getattr(member, "is_member", False))
    return member.status not in (ChatMember.LEFT, ChatMember.BANNED)


class AdministratorCache:
    """Caches the administrators of groups; if Telegram does not answer, the last known roles stay."""

    def __init__(self, client: BotClient, monotonic: Callable[[], float], ttl: float) -> None:
        self._client = client
        self._monotonic, self._ttl = monotonic, ttl
        self._entries: bp.BoundedDict[int, tuple[float, Roles | None]] = bp.BoundedDict(MAX_CHATS)
        self._semaphore = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

    def find(self, chat_id: int) -> Roles | None:
        """Return the cached roles of a chat; None if unknown."""
        return self._entries[chat_id][1] if chat_id in self._entries else None

    def invalidate(self, chat_id: int) -> None:
        """Drop the entry of a chat whose roles have changed."""
        self._entries.pop(chat_id, None)

    async def refresh(self, chat_ids: Collection[int]) -> None:
        """Fetch the administrators of those groups that are not cached or whose entry is too old."""
        stale_chat_ids = {
            candidate_id for candidate_id in chat_ids if candidate_id < 0 and self._is_stale(candidate_id)
        }
        async with asyncio.TaskGroup() as group:
            for chat_id in stale_chat_ids:
                group.create_task(self._fetch(chat_id))

    def _is_stale(self, chat_id: int) -> bool:
        entry = self._entries.get(chat_id)
        return entry is None or self._monotonic() - entry[0] > self._ttl

    async def _fetch(self, chat_id: int) -> None:
        roles = self.find(chat_id)
        try:
            async with self._semaphore:
                members = await self._client.get_chat_administrators(chat_id, read_timeout=REQUEST_TIMEOUT)
            roles = {member.user.id: ROLES_BY_STATUS.get(member.status, Role.MEMBER) for member in members}
        except (TelegramError, *PARSE_ERRORS):
            pass  # the last known roles stay
        self._entries[chat_id] = (self._monotonic(), roles)


ALBUM_KEY = "album"  # in the metadata: its id, and of each part the text and the ids of its files
MAX_RECENT = 200  # messages among which the album of an edited part is looked for
Parts = Mapping[str, tuple[str, Sequence[str]]]  # by the ids of their messages


def merge_album(parts: Sequence[bp.InboundMessage], album_id: str) -> bp.InboundMessage:
    """Merge the messages of an album into the first of them."""
    first, *rest = sorted(parts, key=lambda part: int(part.key.message_id))
    merged = _with_mentions(first, [part.message.content.mention for part in rest])
    files = [file for part in (first, *rest) for file in part.message.content.attachments]
    return _with_parts(merged, album_id, {part.key.message_id: _describe(part) for part in (first, *rest)}, files)


async def submit_album_edit(handle: bp.AgentHandle, edit: bp.InboundMessage, album_id: str) -> None:
    """Store the edit of a part as an edit of its album; where that is not known, as one of a message of its own."""
    messages = await handle.conversations.messages(edit.key.room_id, MAX_RECENT)
    stored = next((message for message in messages if edit.key.message_id in _parts_of(message, album_id)), None)
    await handle.edits.submit_edit(edit_album(stored, edit, album_id) if stored is not None else edit)


def edit_album(stored: Memory, edit: bp.InboundMessage, album_id: str) -> bp.InboundMessage:
    """Return the edit of a stored album in which one part has changed; unchanged files stay as they were stored.

    What addressed the agent still does: it may stand in a part that has not changed.
    """
    edit = _with_mentions(edit, [stored.content.mention])
    parts = {**_parts_of(stored, album_id), edit.key.message_id: _describe(edit)}
    first = min(parts, key=int)
    metadata = {**edit.message.metadata, "message_id": int(first)}
    message = replace(edit.message, external_id=first, metadata=metadata)
    edit = replace(edit, key=replace(edit.key, message_id=first), message=message)
    return _with_parts(edit, album_id, parts, [*edit.message.content.attachments, *stored.content.attachments])


def _with_mentions(message: bp.InboundMessage, others: Sequence[bp.MentionContext]) -> bp.InboundMessage:
    """Return a message that addresses the agent where it or one of the others does; denied where all are."""
    mention = message.message.content.mention
    mentions = [mention, *others]
    mention = replace(
        mention,
        is_mention=any(other.is_mention for other in mentions),
        is_reply=any(other.is_reply for other in mentions),
        denied_by=mention.denied_by if all(other.denied_by for other in mentions) else "",
    )
    return replace(message, message=replace(message.message, content=replace(message.message.content, mention=mention)))


def _with_parts(
    message: bp.InboundMessage, album_id: str, parts: Parts, files: Iterable[Attachment]
) -> bp.InboundMessage:
    """Return a message with the texts and files of these parts in their order; of files of one id the last counts."""
    known = {file.id: file for file in files}
    ordered = [parts[part_id] for part_id in sorted(parts, key=int)]
    texts = dict.fromkeys(text for text, _ in ordered if text)
    attachments = dict.fromkeys(file_id for _, file_ids in ordered for file_id in file_ids if file_id in known)
    content = replace(
        message.message.content, text="\n".join(texts), attachments=tuple(known[file_id] for file_id in attachments)
    )
    stored = {part_id: list(part) for part_id, part in parts.items()}
    metadata = {**message.message.metadata, ALBUM_KEY: {"id": album_id, "parts": stored}}
    return replace(message, message=replace(message.message, content=content, metadata=metadata))


def _describe(part: bp.InboundMessage) -> tuple[str, list[str]]:
    content = part.message.content
    return content.text, [file.id for file in content.attachments]


def _parts_of(message: Memory, album_id: str) -> dict[str, Any]:
    album = message.metadata.get(ALBUM_KEY) or {}
    return album["parts"] if album.get("id") == album_id else {}


logger = logging.getLogger(__name__)
MAX_THREADS = 10_000
COMMAND_TIMEOUT = 5.0
RESPONSE_TIMEOUT = 3.0
RETRY_ERRORS = (bp.InboxClosed, TemporaryError)  # the update must come again
RawUpdate = Any


@dataclass(frozen=True, slots=True)
class MessageItem:
    """A message, or one part of an album."""

    inbound: bp.InboundMessage
    album_id: str = ""


@dataclass(frozen=True, slots=True)
class CommandItem:
    """A command; its response replies to the message."""

    invocation: bp.CommandInvocation
    message_id: int


@dataclass(frozen=True, slots=True)
class ButtonItem:
    """A pressed button; Telegram expects an answer to the query."""

    query_id: str
    selection: bp.ChoiceSelection | None
    message_id: int


# A Change is an edit, a reaction or a change of the members.
UpdateItem = MessageItem | CommandItem | ButtonItem | InlineQuery | ChosenInlineResult | Change


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
        if incoming.is_absent or incoming.is_ignored(location, reaction_update.chat):
            return []
        added, removed = parse_reactions(reaction_update, incoming, topic_id)
        additions = [partial(_add_reaction, reaction) for reaction in added]
        return [*additions, *(partial(_remove_reaction, reaction) for reaction in removed)]
    if (inline := update.inline_query or update.chosen_inline_result) is not None:
        return [inline]
    if update.my_chat_member is not None:
        return [parse_own_membership(update.my_chat_member, update_id, incoming)]
    if update.chat_member is not None:
        return [*parse_membership(update.chat_member, incoming)]
    return []


def _add_reaction(reaction: bp.Reaction, handle: bp.AgentHandle) -> Awaitable[object]:
    return handle.edits.add_reaction(reaction)


def _remove_reaction(reaction: bp.Reaction, handle: bp.AgentHandle) -> Awaitable[object]:
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
    if incoming.is_absent:
        return []
    album_id = _album_of(message)
    inbound = parse_message(message, update_id, incoming, location)
    return [MessageItem(replace(inbound, is_backfill=True) if context.may_be_old else inbound, album_id)]


def _parse_edit(message: Message, update_id: int, incoming: IncomingContext) -> list[UpdateItem]:
    if incoming.is_absent or incoming.is_ignored(locate_message(message, incoming), message.chat):
        return []
    inbound = parse_message(message, update_id, incoming)
    if album_id := _album_of(message):
        return [lambda handle: submit_album_edit(handle, inbound, album_id)]
    return [lambda handle: handle.edits.submit_edit(inbound)]


def _album_of(message: Message) -> str:
    """Return the id of the album of which a message is a part; blank for any other."""
    return f"{message.chat.id}/{message.media_group_id}" if message.media_group_id else ""


def to_repeated(items: Iterable[UpdateItem]) -> list[UpdateItem]:
    """Return what a character gets of an update that another one of the bot answers.

    A command or a button is run for it too, without a response, where it concerns them all.
    """
    repeated: list[UpdateItem] = []
    for item in items:
        if isinstance(item, CommandItem | ButtonItem):
            invocation = item.invocation if isinstance(item, CommandItem) else _command_of(item.selection)
            if invocation is not None and invocation.name.replace("_", "-") in bp.SHARED_COMMANDS:
                repeated.append(partial(_run_silently, invocation))
        elif not isinstance(item, InlineQuery | ChosenInlineResult):
            repeated.append(item)
    return repeated


def _run_silently(invocation: bp.CommandInvocation, handle: bp.AgentHandle) -> Awaitable[object]:
    return handle.run_command(invocation)


def _command_of(selection: bp.ChoiceSelection | None) -> bp.CommandInvocation | None:
    """Return the command that a pressed button stands for; None for any other button."""
    if selection is None or not selection.value.startswith("/"):
        return None
    name, _, text = selection.value.removeprefix("/").partition(" ")
    return bp.CommandInvocation(
        name, selection.world, selection.room, selection.author, selection.event_id, selection.created_at, text=text
    )


@dataclass(frozen=True, slots=True)
class ParsedUpdate:
    """A parsed update, what each character of the bot gets of it, and the update as Telegram sent it."""

    update_id: int
    chat_id: int | None
    shares: tuple[tuple[UpdateItem, ...], ...]
    raw: RawUpdate = None

    @property
    def items(self) -> list[UpdateItem]:
        """The items of all characters."""
        return [*chain.from_iterable(self.shares)]

    @property
    def album_ids(self) -> list[str]:
        """The albums of which it contains a part."""
        return [item.album_id for item in self.items if isinstance(item, MessageItem) and item.album_id]

    @property
    def username(self) -> str:
        """The author's @name; blank without one."""
        authors = (item.inbound.author for item in self.items if isinstance(item, MessageItem))
        return next((str(author.metadata.get("username") or "") for author in authors), "")


@dataclass(frozen=True, slots=True)
class Listener:
    """A character that receives the updates of a bot, and what parsing them for it needs.

    `execute` runs a command or a button press, calls its callback once that is done, then sends the response.
    """

    handle: bp.AgentHandle
    context: IncomingContext
    execute: Callable[[CommandItem | ButtonItem, Callable[[], None]], Coroutine[Any, Any, None]]


class UpdateReceiver:
    """Submits the updates of one bot to each of its characters in order; `faces` is set where there are several.

    Only the cursor waits for the response to a command.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        bot: BotClient,
        administrators: AdministratorCache,
        time_source: bp.TimeSource,
        note_user: Callable[[int, str], None],
        inline: InlineReceiver,
        commands: Sequence[bp.CommandSpec],
        faces: Faces | None = None,
    ) -> None:
        self._listeners, self._first, self._bot, self._faces = tuple(listeners), listeners[0], bot, faces
        self._administrators = administrators
        self._time, self._note_user, self._inline = time_source, note_user, inline
        self._command_names = tuple(spec.name.replace("-", "_") for spec in commands)
        # reactions do not name the topic
        self._threads: bp.BoundedDict[tuple[int, int], int] = bp.BoundedDict(MAX_THREADS)
        self._tasks = bp.TaskSet("a command or a button on Telegram")

    async def parse(self, batch: Iterable[RawUpdate], *, may_be_old: bool) -> list[ParsedUpdate]:
        """Parse updates; one that cannot be read is recorded and costs no other, nor does an odd field cost its update.

        With `may_be_old`, old messages are stored and not answered.
        """
        updates: list[tuple[RawUpdate, Update]] = []
        for raw in batch:
            try:
                update, left_out = read_partly(with_rich_text(raw), self._read, self._time.now())
            except Exception as error:  # whatever a server sends, it must not stop the updates that follow
                await self._record_unreadable(raw, error)
                continue
            if left_out:
                names = ", ".join(left_out)
                logger.warning("update %s is read without fields that cannot be read: %s", update.update_id, names)
            updates.append((raw, update))
        await self._administrators.refresh(
            {chat_id for _, update in updates if (chat_id := chat_id_of(update)) is not None}
        )
        parsed = []
        for raw, update in updates:
            await self._find_topic(update)
            shares: list[tuple[UpdateItem, ...]] = [()] * len(self._listeners)
            try:
                shares = await self._parse_shares(update, may_be_old)
            except RETRY_ERRORS:
                raise
            except Exception as error:  # as above
                await self._record_unreadable(raw, error)
            parsed.append(ParsedUpdate(update.update_id, chat_id_of(update), tuple(shares), raw))
        return parsed

    async def _parse_shares(self, update: Update, may_be_old: bool) -> list[tuple[UpdateItem, ...]]:
        """Return what each character gets of an update: the first answers commands, a button who has sent it."""
        addressing, answering = None, self._first.handle
        if self._faces is not None:
            reaction = update.message_reaction
            key = (reaction.chat.id, reaction.message_id) if reaction is not None else (0, 0)
            addressing = await self._faces.address(update, self._first.context, self._threads.get(key))
            if addressing is not None and update.callback_query is not None:
                answering = addressing.author_or_first
        shares = []
        for listener in self._listeners:
            items = self._parse_items(update, may_be_old, listener, addressing)
            shares.append(tuple(items if listener.handle is answering else to_repeated(items)))
        return shares

    async def submit(self, batch: Sequence[ParsedUpdate], cursor: bp.StreamCursor | None = None) -> None:
        """Store the updates for each character: consecutive messages in one transaction, the last with the cursor.

        The cursor waits for command responses, but only briefly: a chat may be rate-limited for minutes.
        """
        for update in batch:
            if update.chat_id is not None:
                self._note_user(update.chat_id, update.username)
        for number, listener in enumerate(self._listeners):
            await self._submit_to(listener, [(update, update.shares[number]) for update in batch], cursor)

    async def _submit_to(
        self,
        listener: Listener,
        batch: Sequence[tuple[ParsedUpdate, Sequence[UpdateItem]]],
        cursor: bp.StreamCursor | None,
    ) -> None:
        handle = listener.handle
        messages: list[bp.InboundMessage] = []
        command_tasks: list[asyncio.Task[BotError | None]] = []
        all_items = [item for _, items in batch for item in items]
        album_items = [item for item in all_items if isinstance(item, MessageItem) and item.album_id]
        seen_albums: set[str] = set()
        for update, items in batch:
            for item in items:
                if isinstance(item, MessageItem):
                    if item.album_id in seen_albums:
                        continue
                    parts = [other.inbound for other in album_items if other.album_id == item.album_id]
                    messages.append(merge_album(parts, item.album_id) if item.album_id else item.inbound)
                    seen_albums |= {item.album_id} - {""}
                    continue
                await self._submit_messages(handle, messages)
                messages = []
                if isinstance(item, CommandItem | ButtonItem):
                    command_tasks.append(await self._start_command(listener, item))
                elif isinstance(item, InlineQuery):
                    self._inline.receive(item)
                elif isinstance(item, ChosenInlineResult):
                    await self._apply_change(handle, partial(self._note_sent, item, update.update_id), update.raw)
                else:
                    await self._apply_change(handle, item, update.raw)
        if command_tasks:
            await self._submit_messages(handle, messages)
            messages = []
            await asyncio.wait(command_tasks, timeout=RESPONSE_TIMEOUT)
        await self._submit_messages(handle, messages, cursor)

    async def stop(self) -> None:
        """Stop the running commands, and what answers inline queries."""
        await self._tasks.cancel()
        await self._inline.stop()

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
        for listener in self._listeners:
            world_id = build_location(listener.context.identity, reaction.chat).world.id
            with suppress(StoreUnavailable):
                room = await listener.handle.conversations.room_of_message(world_id, str(message_id))
                self.note_topic(chat_id, message_id, ChatTarget.parse(room.external_id).thread_id if room else None)

    async def _submit_messages(
        self, handle: bp.AgentHandle, messages: Sequence[bp.InboundMessage], cursor: bp.StreamCursor | None = None
    ) -> None:
        if messages or cursor is not None:
            await handle.submit_tolerant(messages, cursor)

    async def _apply_change(self, handle: bp.AgentHandle, change: Change, raw: RawUpdate) -> None:
        try:
            await change(handle)
        except RETRY_ERRORS:
            raise
        except Exception as error:  # it must not stop the following updates
            await self._record_unreadable(raw, error)

    async def _note_sent(self, sent: ChosenInlineResult, update_id: int, _: bp.AgentHandle) -> None:
        await self._inline.note_sent(sent, update_id)

    async def _record_unreadable(self, raw: RawUpdate, error: Exception) -> None:
        update_id = update_id_of(raw)
        event_id = "" if update_id is None else f"update {update_id}"
        account = self._first.context.identity.account
        await self._first.handle.record_unreadable(PLATFORM, account, event_id, raw, error)

    async def _start_command(self, listener: Listener, item: CommandItem | ButtonItem) -> asyncio.Task[BotError | None]:
        """Start a command; return when it was executed, or after a timeout to not delay others."""
        executed = asyncio.Event()
        task = self._tasks.start(self._run_command(listener, item, executed))
        with suppress(TimeoutError):
            async with asyncio.timeout(COMMAND_TIMEOUT):
                await executed.wait()
        has_result = task.done() and not task.cancelled() and task.exception() is None
        if has_result and isinstance(error := task.result(), RETRY_ERRORS):
            raise error
        return task

    async def _run_command(
        self, listener: Listener, item: CommandItem | ButtonItem, executed: asyncio.Event
    ) -> BotError | None:
        """Execute a command and send its response; return the error if the update must be repeated."""
        try:
            await listener.execute(item, executed.set)
        except (BotError, TelegramError, *PARSE_ERRORS) as error:
            logger.warning("a command or a button was not answered: %s", error)
            return error if isinstance(error, RETRY_ERRORS) else None
        finally:
            executed.set()
        return None

    def _read(self, raw: RawUpdate) -> Update:
        """Return an update of which the items can be parsed. Raises anything if they cannot be."""
        parts: dict[str, Any] = {
            name: kind.de_json(raw[name], self._bot)
            for name, kind in self._bot.update_kinds.items()
            if raw.get(name) is not None
        }
        update = Update(raw["update_id"], **parts)
        if update.my_chat_member or update.chat_member:
            self._administrators.invalidate(chat_id_of(update) or 0)
        self._parse_items(update, False, self._first)
        return update

    def _parse_items(
        self, update: Update, may_be_old: bool, listener: Listener, addressing: Addressing | None = None
    ) -> tuple[UpdateItem, ...]:
        chat_id = chat_id_of(update)
        roles = self._administrators.find(chat_id) if chat_id is not None else None
        context = replace(listener.context, roles=listener.context.roles if roles is None else roles)
        context = replace(context, addressing=addressing)
        update_context = UpdateContext(context, self._command_names, self._threads, self._time.now(), may_be_old)
        message = update.effective_message
        if isinstance(message, Message):
            topic_id = thread_id_of(message) or direct_topic_id_of(message)
            self.note_topic(message.chat.id, message.message_id, topic_id)
        return tuple(parse_update(update, update_context))


def chat_id_of(update: Update) -> int | None:
    """Return the chat of an update; None without one, and for that of a guest, of which nothing can be asked."""
    chat = update.effective_chat if update.guest_message is None else None
    return None if chat is None else int(chat.id)
