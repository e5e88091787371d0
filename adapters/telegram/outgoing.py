"""From a reply to the parts that Telegram takes; pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from telegram import InlineKeyboardButton, InlineKeyboardMarkup, MessageEntity

from adapters.telegram.cutting import pieces, units
from adapters.telegram.markup import LINK, PRE, Formatted, Mark, formatted
from bot import Attachment, Choice, Content, MediaKind

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
