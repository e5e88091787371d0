"""Updates → handle calls, in order."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from telegram import Bot, CallbackQuery, Message, Update

from adapters.telegram.config import Moments
from adapters.telegram.entities import place_of
from adapters.telegram.incoming import View, asked, gathered, message_received, place_in, pressed, reactions
from adapters.telegram.membership import Administrators, Change, news_of, of_others, of_ours
from adapters.telegram.validation import check
from bot import TryAgain
from bot.platform import Arrival, Asked, Cursor, Door, IntakeClosed, Pressed, Reaction, put_surely
from bot.text import shorten

logger = logging.getLogger(__name__)


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


MOST_THREADS = 10_000
COMMAND_SECONDS = 5.0
ANSWER_SECONDS = 3.0
LATER = (IntakeClosed, TryAgain)  # it comes again, and must
Raw = Any


@dataclass(frozen=True, slots=True)
class Known:
    """An update that could be read, and what follows from it."""

    number: int
    chat: int | None
    items: tuple[Following, ...]

    @property
    def albums(self) -> list[str]:
        """The albums of which it brings a part."""
        return [one.album for one in self.items if isinstance(one, Heard) and one.album]

    @property
    def username(self) -> str:
        """The @name of whoever said it; blank without."""
        said = (one.arrival.author for one in self.items if isinstance(one, Heard))
        return next((str(author.metadata.get("username") or "") for author in said), "")


class Intake:
    """Hands one bot's updates to its agent's door, in their order.

    `answer` is called with what a person waits for: a command or the press of a button. It tells when that
    is carried out, and goes on to say what came of it: for this, only the cursor waits.
    """

    def __init__(
        self,
        door: Door,
        view: View,
        bot: Bot,
        administrators: Administrators,
        answer: Callable[[Ordered | Press, Callable[[], None]], Coroutine[Any, Any, None]],
        moments: Moments,
        heard_in: Callable[[int, str], None],
    ) -> None:
        self._door, self._view, self._bot = door, view, bot
        self._administrators, self._answer = administrators, answer
        self._moments, self._heard_in = moments, heard_in
        self._commands = tuple(one.name.replace("-", "_") for one in door.commands)
        self._threads: OrderedDict[tuple[int, int], int] = OrderedDict()  # Telegram's reactions name none
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, batch: Iterable[Raw], *, may_be_old: bool) -> list[Known]:
        """Read updates; one that makes no sense is left out, and the log says which.

        Where they `may_be_old`, what was said long ago is kept and not answered.
        """
        parsed = [one for raw in batch if (one := self._parsed(raw)) is not None]
        await self._administrators.learn({chat for _, chat in parsed if chat is not None})
        return [self._known(update, chat, may_be_old) for update, chat in parsed]

    async def take(self, batch: Sequence[Known], cursor: Cursor | None = None) -> None:
        """Have all of it kept: messages in a row in one transaction, the last with the cursor.

        The cursor waits for answers to commands, but not for long: a chat may be full for minutes.
        """
        heard: list[Arrival] = []
        answering: list[asyncio.Task[None]] = []
        albums = [item for one in batch for item in one.items if isinstance(item, Heard) and item.album]
        begun: set[str] = set()
        for one in batch:
            if one.chat is not None:
                self._heard_in(one.chat, one.username)
            for item in one.items:
                if isinstance(item, Heard):
                    if item.album in begun:
                        continue
                    parts = [other.arrival for other in albums if other.album == item.album]
                    heard.append(gathered(parts) if item.album else item.arrival)
                    begun |= {item.album} - {""}
                    continue
                await self._put_all(heard)
                heard = []
                if isinstance(item, Changed):
                    await self._tell(item)
                else:
                    answering.append(await self._carry_out(item))
        if answering:
            await self._put_all(heard)
            heard = []
            await asyncio.wait(answering, timeout=ANSWER_SECONDS)
        await self._put_all(heard, cursor)

    async def stop(self) -> None:
        """Stop what was begun for commands."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def remember(self, chat: int, message_id: int, thread: int | None) -> None:
        """Remember in which topic a message stands."""
        if thread is None:
            return
        self._threads[chat, message_id] = thread
        while len(self._threads) > MOST_THREADS:
            self._threads.popitem(last=False)

    async def _put_all(self, arrivals: Sequence[Arrival], cursor: Cursor | None = None) -> None:
        if arrivals or cursor is not None:
            await put_surely(self._door.inbox, arrivals, cursor)

    async def _tell(self, item: Changed) -> None:
        try:
            await item.tell(self._door)
        except LATER:
            raise
        except Exception as error:  # it must not stop all that follow
            logger.error("a change on Telegram is lost: %s", error)

    async def _carry_out(self, item: Ordered | Press) -> asyncio.Task[None]:
        """Begin on an answer, and go on once the command is carried out; a slow one holds up nobody else."""
        carried_out = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._answer(item, carried_out.set))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        task.add_done_callback(lambda _: carried_out.set())
        with suppress(TimeoutError):
            async with asyncio.timeout(COMMAND_SECONDS):
                await carried_out.wait()
        failure = task.exception() if task.done() and not task.cancelled() else None
        if isinstance(failure, LATER):
            raise failure
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("a command or a button was not answered: %s", error)

    def _parsed(self, raw: Raw) -> tuple[Update, int | None] | None:
        try:
            check(raw)
            update = Update.de_json(raw, self._bot)
            chat = chat_of(update)
            return update, None if chat is None else int(chat)
        except Exception as error:  # an update may hold anything; it costs itself alone
            logger.warning("%s cannot be read (%s): left out", _name(raw), _cause(error))
            return None

    def _known(self, update: Update, chat: int | None, may_be_old: bool) -> Known:
        try:
            if update.my_chat_member or update.chat_member:
                self._administrators.forget(chat or 0)
            roles = self._administrators.of(chat) if chat is not None else None
            view = replace(self._view, roles=roles)
            reading = Reading(view, self._commands, self._thread_of, self._moments.wall(), may_be_old)
            message = update.effective_message
            if message is not None and getattr(message, "is_topic_message", None):
                self.remember(message.chat.id, message.message_id, message.message_thread_id)
            items = tuple(following(update, reading))
        except Exception as error:  # as above: the library believes whatever types it is given
            logger.warning("update %s makes no sense (%s): left out", update.update_id, _cause(error))
            items = ()
        return Known(update.update_id, chat, items)

    def _thread_of(self, chat: int, message_id: int) -> int | None:
        return self._threads.get((chat, message_id))


def number_of(raw: Raw) -> int | None:
    """Give an update's number, as long as it has one."""
    number = raw.get("update_id") if isinstance(raw, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _cause(error: Exception) -> str:
    """Name an error in a few words: what a stranger wrote must not fill the log."""
    return shorten(f"{type(error).__name__}: {error}", 80)


def _name(raw: Raw) -> str:
    number = number_of(raw)
    return "an update" if number is None else f"update {number}"
