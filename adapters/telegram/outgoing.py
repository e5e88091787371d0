"""Reply → parts with entities; which @names may notify."""

import re
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from telegram import InlineKeyboardButton, InlineKeyboardMarkup, MessageEntity

from adapters.telegram.markup import CODE, LINK, PRE, Formatted, Mark, formatted
from bot import Attachment, Choice, Content, MediaKind
from bot.text import last_break

MARK = "↻ may be a duplicate:\n"
LONGEST_TEXT = 4096 - len(MARK)  # room for the mark, should it be needed
LONGEST_CAPTION = 1024 - len(MARK)
LONGEST_LABEL = 64
MARKS, SOURCE = "telegram_marks", "telegram_markdown"
MOST_MARKS = 100  # Telegram drops what is beyond


@dataclass(frozen=True, slots=True)
class Letter:
    """A text as it is sent: with its entities, or plain."""

    text: str
    entities: tuple[MessageEntity, ...] = ()

    def marked(self) -> "Letter":
        """Say that it may have been said before."""
        moved = tuple(
            MessageEntity(one.type, one.offset + units(MARK), one.length, one.url, language=one.language)
            for one in self.entities
        )
        return Letter(MARK + self.text, moved)


def parts(content: Content) -> list[Content]:
    """Cut a reply: a text of at most 4,096 units each, then the files, the only one with its caption.

    Choices are shown below the last.
    """
    files = [one for one in content.attachments if one.kind is not MediaKind.LINK]
    links = [one.url for one in content.attachments if one.kind is MediaKind.LINK and one.url]
    text = "\n".join(filter(None, [content.text, *links]))
    whole = formatted(text)
    if len(files) == 1 and units(whole.text) <= LONGEST_CAPTION:
        found = [_part(content, whole, text, files)]
    else:
        cut = list(pieces(whole, LONGEST_TEXT))
        found = [_part(content, one, text if len(cut) == 1 else "") for one in cut]
        found += [_part(content, Formatted(""), "", [file]) for file in files]
    if found and content.choices:
        found[-1] = replace(found[-1], choices=content.choices)
    return found or [replace(content, choices=())]


def is_part(content: Content) -> bool:
    """Tell whether `parts` has made it; what was kept while Telegram was off has not been cut."""
    return MARKS in content.metadata


def letter_of(content: Content) -> Letter:
    """Give a part's text with its entities."""
    marks = [Mark(str(kind), int(start), int(end), str(more)) for kind, start, end, more in _marks(content)]
    return Letter(content.text, tuple(_entity(content.text, mark) for mark in marks))


def plain_of(content: Content) -> Letter:
    """Give a part's text without entities, as it was written; of what was cut, with the links' addresses."""
    source = str(content.metadata.get(SOURCE, ""))
    longest = LONGEST_CAPTION if content.attachments else LONGEST_TEXT
    if source and units(source) <= longest:
        return Letter(source)
    text = content.text
    for kind, _, end, more in sorted(_marks(content), key=lambda mark: -int(mark[2])):
        if kind == LINK and str(more) not in text:
            text = f"{text[:end]} ({more}){text[end:]}"
    return Letter(text if units(text) <= longest else content.text)


def keyboard(choices: Sequence[Choice]) -> InlineKeyboardMarkup | None:
    """Make a button of each choice, one below the other."""
    if not choices:
        return None
    return InlineKeyboardMarkup(
        [[InlineKeyboardButton(one.label[:LONGEST_LABEL], callback_data=one.value)] for one in choices]
    )


def method_of(file: Attachment) -> str:
    """Name how a file is sent: as a picture, a recording, a film, or as it is."""
    if file.kind is MediaKind.IMAGE:
        return "photo"
    if file.kind is MediaKind.VIDEO:
        return "video"
    if file.kind is not MediaKind.AUDIO:
        return "document"
    is_voice = file.content_type.partition(";")[0] in ("audio/ogg", "audio/opus")
    return "voice" if is_voice or file.name.lower().endswith((".ogg", ".oga", ".opus")) else "audio"


def name_of(file: Attachment) -> str:
    """Give what a file is called towards people."""
    return file.name or file.title or "file"


def _part(content: Content, text: Formatted, source: str, files: Sequence[Attachment] = ()) -> Content:
    marks = [[one.kind, one.start, one.end, one.more] for one in text.marks[:MOST_MARKS]]
    metadata: dict[str, Any] = {**content.metadata, MARKS: marks}
    if marks and source:
        metadata[SOURCE] = source
    return replace(content, text=text.text, attachments=tuple(files), choices=(), metadata=metadata)


def _marks(content: Content) -> Iterator[Sequence[Any]]:
    yield from content.metadata.get(MARKS, ())


def _entity(text: str, mark: Mark) -> MessageEntity:
    return MessageEntity(
        mark.kind,
        offset=units(text[: mark.start]),
        length=units(text[mark.start : mark.end]),
        url=mark.more if mark.kind == LINK else None,
        language=mark.more or None if mark.kind == PRE else None,
    )


BREAKS = ("\n\n", "\n", ". ", "! ", "? ", "。", " ")


def units(text: str) -> int:
    """Count what Telegram counts."""
    return len(text) + sum(char > "\uffff" for char in text)


def pieces(whole: Formatted, limit: int) -> Iterator[Formatted]:
    """Cut a text into pieces of at most `limit` units; code that is cut is code on both sides."""
    start = 0
    while start < len(whole.text):
        end = _end(whole.text, start, limit)
        piece = whole.part(start, end)
        if piece.text:
            yield piece
        start = end


def _end(text: str, start: int, limit: int) -> int:
    """Find where the piece that begins at `start` ends."""
    furthest, size = start, 0
    while furthest < len(text) and (size := size + units(text[furthest])) <= limit:
        furthest += 1
    if furthest == len(text):
        return furthest
    for sign in BREAKS:
        found = text.rfind(sign, start + (furthest - start) // 2, furthest)
        if found > start:
            return found + len(sign)
    size = last_break(text[start : furthest + 1], furthest - start)
    return start + size if size > 1 else furthest


MOST_CHATS = 2000
MOST_PEOPLE = 200
MOST_CALLS = 3
NO_CALL = "＠"  # as long as the sign that calls, so that no mark moves
_NAME = re.compile(r"https?://\S+|(?<![A-Za-z0-9_])@([A-Za-z0-9_]{2,})")


class Company:
    """Remembers by chat whose @names may stand in what is said there."""

    def __init__(self) -> None:
        self._own = ""
        self._people: OrderedDict[int, OrderedDict[str, None]] = OrderedDict()

    def introduce(self, own: str) -> None:
        """Learn our own @name, which calls nobody else."""
        self._own = own.lower()

    def heard(self, chat: int, username: str) -> None:
        """Somebody has said something in a chat; so it is there."""
        people = self._people.setdefault(chat, OrderedDict())
        people[username.lower()] = None
        people.move_to_end(username.lower())
        self._people.move_to_end(chat)
        _bound(people, MOST_PEOPLE)
        _bound(self._people, MOST_CHATS)

    def among(self, chat: int, content: Content) -> Content:
        """Have a part call three people at most, of those in the chat."""
        return calling(content, {self._own, *self._people.get(chat, ())})


def calling(content: Content, people: Collection[str]) -> Content:
    """Take the call out of every @name but the first three of `people`; in code there is none. Pure."""
    named = dict.fromkeys(name.lower() for _, name in _names(content.text))
    called = [name for name in named if name in people][:MOST_CALLS]
    metadata = dict(content.metadata)
    if SOURCE in metadata:
        metadata[SOURCE] = _without_calls(str(metadata[SOURCE]), called)
    codes = [(int(start), int(end)) for kind, start, end, _ in metadata.get(MARKS, ()) if kind in (CODE, PRE)]
    return replace(content, text=_without_calls(content.text, called, codes), metadata=metadata)


def _without_calls(text: str, called: Collection[str], codes: Sequence[tuple[int, int]] = ()) -> str:
    signs = list(text)
    for place, name in _names(text):
        if name.lower() not in called and not any(start <= place < end for start, end in codes):
            signs[place] = NO_CALL
    return "".join(signs)


def _names(text: str) -> Iterator[tuple[int, str]]:
    """Find the @names as Telegram does: not within a word, nor in an address."""
    for found in _NAME.finditer(text):
        if found[1]:
            yield found.start(), found[1]


def _bound(books: OrderedDict[Any, Any], most: int) -> None:
    while len(books) > most:
        books.popitem(last=False)
