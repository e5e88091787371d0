"""The calls that say something: a text, a file, an edit, for one bot."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from telegram import (
    InputFile,
    InputMediaAudio,
    InputMediaDocument,
    InputMediaPhoto,
    InputMediaVideo,
    LinkPreviewOptions,
    Message,
    ReplyParameters,
)
from telegram.error import BadRequest, ChatMigrated, TelegramError

from adapters.telegram.client import Account
from adapters.telegram.entities import PLATFORM, Target
from adapters.telegram.errors import (
    has_no_text,
    is_about_markup,
    is_done_already,
    is_taken_away,
    is_too_long,
    said,
    translated,
)
from adapters.telegram.markup import Formatted
from adapters.telegram.outgoing import (
    LONGEST_TEXT,
    Letter,
    keyboard,
    letter_of,
    method_of,
    name_of,
    pieces,
    plain_of,
)
from bot import Attachment, Content
from bot.platform import DeliveryError, NotSent, TakenAway, Unclear, Undeliverable

NO_PREVIEW = LinkPreviewOptions(is_disabled=True)  # to look at a link is to open it
UPLOAD_SECONDS = 50.0
MEDIA = {
    "photo": InputMediaPhoto,
    "video": InputMediaVideo,
    "audio": InputMediaAudio,
    "voice": InputMediaAudio,
    "document": InputMediaDocument,
}
FILE_ID = re.compile(r"[A-Za-z0-9_-]{1,250}")
Send = Callable[[Target], Awaitable[str]]


class Sender:
    """Says things in chats, also in one that has got a new id; `moved` is told of that."""

    def __init__(self, account: Account, moved: Callable[[int, int], None]) -> None:
        self._account = account
        self._moved = moved
        self._now: dict[int, int] = {}  # chats that have become supergroups

    def place(self, target: Target) -> Target:
        """Give where a chat is now."""
        return Target(self._now.get(target.chat, target.chat), target.thread)

    def note_move(self, old: int, new: int) -> None:
        """Send what is for the one chat to the other from now on."""
        self._now[old] = new

    async def send(self, target: Target, content: Content, reply_to: str = "", *, again: bool = False) -> str:
        """Send one part, with a mark where it may have been sent before; raises as `Adapter.deliver` does."""

        async def sent(place: Target) -> str:
            answers = reply_to if place.chat == target.chat else ""  # elsewhere that is another's number
            if content.attachments:
                return await self._file(place, content, answers, again=again)
            return await self._letter(place, content, answers, again=again)

        return await self._wherever(target, sent)

    async def edit(self, target: Target, message_id: int, content: Content) -> str:
        """Change what was said, or take it away; done twice it is done once.

        What was said in a group stays as it is once that is a supergroup: there its number is another's.
        """
        if (new := self._now.get(target.chat)) is not None:
            raise self._left_behind(target.chat, new, content)
        with translated():
            try:
                await self._edit(target, message_id, content)
            except ChatMigrated as error:
                raise self._left_behind(target.chat, error.new_chat_id, content) from None
            except BadRequest as error:
                if is_taken_away(error):
                    raise TakenAway("somebody has removed it from the chat: it is not said again") from None
                if not is_done_already(error):
                    raise
        return str(message_id)

    def _left_behind(self, old: int, new: int, content: Content) -> DeliveryError:
        """Tell of the move; whoever is told sends what was to be changed to the supergroup, anew."""
        self.note_move(old, new)
        self._moved(old, new)
        if content.text or content.attachments:
            return NotSent("the group has become a supergroup, and it is said there")
        return Undeliverable("it stands in the group that has become a supergroup, and stays there")

    async def _wherever(self, target: Target, send: Send) -> str:
        with translated():
            try:
                return await send(self.place(target))
            except ChatMigrated as error:
                new = error.new_chat_id
                self.note_move(target.chat, new)
                self._moved(target.chat, new)
                return await send(Target(new))

    async def _letter(self, target: Target, content: Content, reply_to: str, *, again: bool) -> str:
        try:
            return await self._write(target, _said(letter_of(content), again), reply_to, content)
        except BadRequest as error:
            if is_too_long(error):
                return await self._in_halves(target, content, reply_to, again=again)
            if not is_about_markup(error):
                raise
        return await self._write(target, _said(plain_of(content), again), reply_to, content)

    async def _in_halves(self, target: Target, content: Content, reply_to: str, *, again: bool) -> str:
        """Send a text in smaller pieces; it goes by the name of the first."""
        texts = [one.text for one in pieces(Formatted(content.text), LONGEST_TEXT // 2)]
        name = await self._write(target, _said(Letter(texts[0]), again), reply_to)
        try:
            for text in texts[1:]:
                await self._write(target, Letter(text), "", content if text is texts[-1] else None)
        except TelegramError as error:
            raise Unclear(f"only its beginning was sent: {said(error)}") from None
        return name

    async def _write(
        self, target: Target, letter: Letter, reply_to: str, content: Content | None = None
    ) -> str:
        message = await self._account.send_message(
            target.chat,
            letter.text,
            entities=letter.entities or None,
            message_thread_id=target.thread,
            reply_parameters=_reply(reply_to),
            reply_markup=keyboard(content.choices) if content is not None else None,
            link_preview_options=NO_PREVIEW,
        )
        return _name(message)

    async def _file(self, target: Target, content: Content, reply_to: str, *, again: bool) -> str:
        """Send a file with its caption; where Telegram refuses it, the caption and a word about that."""
        for letter in (letter_of(content), plain_of(content)):
            try:
                return await self._upload(target, _said(letter, again), reply_to, content)
            except Undeliverable:
                break
            except BadRequest as error:
                if not is_about_markup(error):
                    break
        excuse = f"({name_of(content.attachments[0])} could not be sent.)"
        told = Letter("\n\n".join(filter(None, [plain_of(content).text, excuse])))
        return await self._write(target, _said(told, again), reply_to, content)

    async def _upload(self, target: Target, letter: Letter, reply_to: str, content: Content) -> str:
        [file] = content.attachments
        send = getattr(self._account, f"send_{method_of(file)}")
        message = await send(
            target.chat,
            self._source(file),
            caption=letter.text or None,
            caption_entities=letter.entities or None,
            message_thread_id=target.thread,
            reply_parameters=_reply(reply_to),
            reply_markup=keyboard(content.choices),
            read_timeout=UPLOAD_SECONDS,
        )
        return _name(message)

    def _source(self, file: Attachment) -> InputFile | str:
        if file.data is not None:
            return InputFile(file.data, filename=name_of(file))
        own = f"{PLATFORM}:{self._account.number}/"
        if file.url.startswith(own) and _is_file_id(file.url.removeprefix(own)):
            return file.url.removeprefix(own)
        if file.url.startswith(("http://", "https://")):
            return file.url
        raise Undeliverable(f"{name_of(file)} holds nothing that could be sent")

    async def _edit(self, target: Target, message_id: int, content: Content) -> None:
        if not content.text and not content.attachments:
            await self._account.delete_message(target.chat, message_id)
            return
        letter = letter_of(content)
        try:
            await self._rewrite(target, message_id, letter, content)
        except BadRequest as error:
            if not is_about_markup(error):
                raise
            await self._rewrite(target, message_id, plain_of(content), content)

    async def _rewrite(self, target: Target, message_id: int, letter: Letter, content: Content) -> None:
        where: dict[str, Any] = {"chat_id": target.chat, "message_id": message_id}
        where["reply_markup"] = keyboard(content.choices)
        entities = letter.entities or None
        if content.attachments:
            [file] = content.attachments
            media = MEDIA[method_of(file)](
                self._source(file), caption=letter.text or None, caption_entities=entities
            )
            await self._account.edit_message_media(media, **where, read_timeout=UPLOAD_SECONDS)
            return
        try:
            await self._account.edit_message_text(
                letter.text, entities=entities, link_preview_options=NO_PREVIEW, **where
            )
        except BadRequest as error:
            if not has_no_text(error):
                raise
            await self._account.edit_message_caption(caption=letter.text, caption_entities=entities, **where)


def _said(letter: Letter, again: bool) -> Letter:
    return letter.marked() if again else letter


def _reply(reply_to: str) -> ReplyParameters | None:
    """Quote what is answered, and say it all the same where that is gone."""
    if not reply_to.isdecimal():
        return None
    return ReplyParameters(int(reply_to), allow_sending_without_reply=True)


def _is_file_id(text: str) -> bool:
    """Tell whether Telegram knows a file by this: python-telegram-bot opens what is the name of one here."""
    return FILE_ID.fullmatch(text) is not None and not Path(text).exists()


def _name(message: Message) -> str:
    if not isinstance(message.message_id, int) or message.message_id <= 0:
        raise Unclear("Telegram did not say what it calls the message")
    return str(message.message_id)
