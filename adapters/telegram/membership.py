"""Joins, leaves, promotions, chat migration, and the cache of administrators."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from datetime import datetime

from telegram import Chat, ChatMember, ChatMemberUpdated, Message, User
from telegram.error import TelegramError

from adapters.telegram.client import BotClient
from adapters.telegram.entities import (
    PLATFORM,
    BotIdentity,
    ChatLocation,
    ChatTarget,
    Roles,
    build_entity,
    build_location,
    derive_room_id,
    derive_user_id,
)
from adapters.telegram.errors import PARSE_ERRORS
from adapters.telegram.incoming import IncomingContext
from bot import Role
from bot.platform import AgentHandle, BoundedDict, StreamCursor

Change = Callable[[AgentHandle], Awaitable[object]]
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

    async def migrate(handle: AgentHandle) -> None:
        old_room_id = derive_room_id(account, ChatTarget(old_chat_id))
        await handle.edits.migrate_room(old_room_id, location.world, location.room)
        stored = StreamCursor(PLATFORM, account, FORMER_CHATS_CURSOR, json.dumps(former_chat_ids))
        await handle.submit_all([], stored)

    return migrate


async def load_former_chat_ids(handle: AgentHandle, account: str) -> dict[int, int]:
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
        self._entries: BoundedDict[int, tuple[float, Roles | None]] = BoundedDict(MAX_CHATS)
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
