"""From one update to what follows from it; pure."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from telegram import CallbackQuery, Message, Update

from adapters.telegram.incoming import View, asked, message_received, place_in, pressed, reactions
from adapters.telegram.membership import Change, news_of, of_others, of_ours
from adapters.telegram.places import place_of
from bot import Arrival, Asked, Door, Pressed, Reaction


@dataclass(frozen=True, slots=True)
class Heard:
    """A message; of an album, one of its parts."""

    arrival: Arrival
    album: str = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that the door is to be told: an edit, a reaction, somebody's coming or going."""

    tell: Change


@dataclass(frozen=True, slots=True)
class Ordered:
    """A command; what it shows is said in reply to the message."""

    asked: Asked
    message_id: int


@dataclass(frozen=True, slots=True)
class Press:
    """A button was pressed; Telegram waits for an answer to the query."""

    query_id: str
    pressed: Pressed | None
    message_id: int


Following = Heard | Changed | Ordered | Press


@dataclass(frozen=True, slots=True)
class Reading:
    """What does not stand in the update: how we look at it, our commands, a message's topic, the time.

    It `may_be_old` where Telegram has kept it while nobody asked.
    """

    view: View
    commands: Sequence[str]
    thread_of: Callable[[int, int], int | None]
    now: datetime
    may_be_old: bool = False


def chat_of(update: Update) -> int | None:
    """Give the chat that an update is about."""
    chat = update.effective_chat
    return chat.id if chat is not None else None


def following(update: Update, reading: Reading) -> list[Following]:
    """Tell what follows from an update; nothing, from a kind that we did not ask for."""
    number, view = update.update_id, reading.view
    message = update.message or update.channel_post
    edited = update.edited_message or update.edited_channel_post
    if message is not None:
        return _message(message, number, reading)
    if edited is not None:
        return _edit(edited, number, view)
    if update.callback_query is not None:
        return [_press(update.callback_query, number, reading)]
    if (reacted := update.message_reaction) is not None:
        thread = reading.thread_of(reacted.chat.id, reacted.message_id)
        if view.is_ignored(place_of(view.me, reacted.chat, thread), reacted.chat):
            return []
        added, gone = reactions(reacted, view, thread)
        changes = [*(partial(_reacted, one) for one in added), *(partial(_unreacted, one) for one in gone)]
        return [Changed(one) for one in changes]
    if update.my_chat_member is not None:
        return [Changed(of_ours(update.my_chat_member, number, view))]
    if update.chat_member is not None:
        return [Changed(one) for one in of_others(update.chat_member, view)]
    return []


def _reacted(one: Reaction, door: Door) -> Awaitable[object]:
    return door.changes.reacted(one)


def _unreacted(one: Reaction, door: Door) -> Awaitable[object]:
    return door.changes.unreacted(one.room.id, one.message_id, author_id=one.author.id, sign=one.sign)


def _message(message: Message, number: int, reading: Reading) -> list[Following]:
    view = reading.view
    place = place_in(message, view)
    if (news := news_of(message, place, view)) is not None:
        return [Changed(one) for one in news]
    if view.is_ignored(place, message.chat):
        return []
    if (command := asked(message, number, view, reading.commands)) is not None:
        return [Ordered(command, message.message_id)]
    album = f"{message.chat.id}/{message.media_group_id}" if message.media_group_id else ""
    arrival = replace(message_received(message, number, view), is_backfill=reading.may_be_old)
    return [Heard(arrival, album)]


def _edit(message: Message, number: int, view: View) -> list[Following]:
    if view.is_ignored(place_in(message, view), message.chat):
        return []
    arrival = message_received(message, number, view)
    return [Changed(lambda door: door.changes.edited(arrival))]


def _press(query: CallbackQuery, number: int, reading: Reading) -> Press:
    message_id = query.message.message_id if query.message is not None else 0
    return Press(query.id, pressed(query, number, reading.view, reading.now), message_id)
