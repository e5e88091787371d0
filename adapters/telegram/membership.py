"""Joins, leaves, promotions, chat migration; cached administrators."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from datetime import datetime

from telegram import Chat, ChatMember, ChatMemberUpdated, Message, User
from telegram.error import TelegramError

from adapters.telegram.client import Account
from adapters.telegram.entities import Me, Place, Roles, Target, person, place_of, room_id, user_id
from adapters.telegram.errors import UNREADABLE
from adapters.telegram.incoming import View
from bot import Role
from bot.platform import Door

Change = Callable[[Door], Awaitable[object]]
ROLES = {ChatMember.OWNER: Role.OWNER, ChatMember.ADMINISTRATOR: Role.ADMIN}


def roles_of(members: tuple[ChatMember, ...]) -> Roles:
    """Give the roles of a chat's administrators, by their ids."""
    return {one.user.id: ROLES.get(one.status, Role.MEMBER) for one in members}


def news_of(message: Message, place: Place, view: View) -> list[Change] | None:
    """Tell what a message reports, if it is one that reports instead of saying something."""
    world, room, me = place.world, place.room, view.me
    if message.migrate_to_chat_id:
        return [migration(me, message.chat.id, message.migrate_to_chat_id, world.name)]
    if message.migrate_from_chat_id:
        before = room_id(me.account, Target(message.migrate_from_chat_id))
        return [lambda door: door.changes.moved(before, world, room)]
    if message.new_chat_members:
        return [_came(one, place, message.date, me) for one in message.new_chat_members if one.id != me.id]
    if message.left_chat_member is not None:
        gone = message.left_chat_member
        return [] if gone.id == me.id else [_went(gone, place, message.date, me)]
    if message.new_chat_title:
        return [lambda door: door.news.world_updated(world, [room])]
    topic = message.forum_topic_created or message.forum_topic_edited
    if topic is not None:
        named = replace(room, name=topic.name or "")
        return [lambda door: door.news.room_updated(world, named)]
    return None


def migration(me: Me, old: int, new: int, name: str = "") -> Change:
    """Have what was said in a group go on in the supergroup that it has become."""
    place = place_of(me, Chat(new, Chat.SUPERGROUP, title=name))
    return lambda door: door.changes.moved(room_id(me.account, Target(old)), place.world, place.room)


def of_ours(update: ChatMemberUpdated, number: int, view: View) -> Change:
    """Tell that we were let in, put out, or blocked."""
    place = place_of(view.me, update.chat, None, view.roles)
    world, room = place.world, place.room
    if _is_in(update.new_chat_member):
        by = person(update.from_user, view.me)
        event_id = "" if _is_in(update.old_chat_member) else str(number)
        if not event_id:
            return lambda door: door.news.world_updated(world, [room])
        return lambda door: door.news.world_joined(world, [room], [by], event_id=event_id)
    if update.chat.type == Chat.PRIVATE:
        return lambda door: door.changes.left(room.id)
    return lambda door: door.changes.left_world(world.id)


def of_others(update: ChatMemberUpdated, view: View) -> list[Change]:
    """Tell that somebody came, went, or may do more or less than before."""
    place = place_of(view.me, update.chat, None, view.roles)
    user = update.new_chat_member.user
    was_in, is_in = _is_in(update.old_chat_member), _is_in(update.new_chat_member)
    role = ROLES.get(update.new_chat_member.status, Role.MEMBER)
    roles = {**place.world.roles, user_id(user.id): role}
    place = replace(place, world=replace(place.world, roles=roles))
    if is_in and not was_in:
        return [_came(user, place, update.date, view.me)]
    if was_in and not is_in:
        return [_went(user, place, update.date, view.me)]
    who = person(user, view.me)
    return [lambda door: door.news.person_updated(place.world, who)] if is_in else []


def _came(user: User, place: Place, at: datetime, me: Me) -> Change:
    who, event_id = person(user, me), _event("join", place, user, at)
    return lambda door: door.news.person_joined(place.world, who, event_id=event_id)


def _went(user: User, place: Place, at: datetime, me: Me) -> Change:
    who, event_id = person(user, me), _event("leave", place, user, at)
    return lambda door: door.news.person_left(place.world, who, event_id=event_id)


def _event(what: str, place: Place, user: User, at: datetime) -> str:
    """Name it alike whether the chat's own message tells it or, to an administrator, an update."""
    return f"{what}:{place.target.chat}:{user.id}:{int(at.timestamp())}"


def _is_in(member: ChatMember) -> bool:
    if member.status == ChatMember.RESTRICTED:
        return bool(getattr(member, "is_member", False))
    return member.status not in (ChatMember.LEFT, ChatMember.BANNED)


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
