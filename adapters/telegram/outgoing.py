"""Splitting of replies into parts with entities, and the limit on @mentions."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from telegram import InlineKeyboardButton, InlineKeyboardMarkup, MessageEntity

from adapters.telegram.markup import CODE, LINK, PRE, SPOILER, FormattedText, Span, parse_markdown
from bot import Attachment, Choice, Content, MediaKind
from bot.text import grapheme_boundary_before

DUPLICATE_NOTICE = "↻ may be a duplicate:\n"
MAX_TEXT_LENGTH = 4096 - len(DUPLICATE_NOTICE)  # leaves room for the notice
MAX_CAPTION_LENGTH = 1024 - len(DUPLICATE_NOTICE)
MAX_LABEL_LENGTH = 64
SPANS_KEY, SOURCE_KEY = "telegram_marks", "telegram_markdown"
MAX_ENTITIES = 100  # Telegram drops more
NEEDED_KINDS = frozenset({LINK, PRE, SPOILER})  # without them a text says less, or more
BREAKPOINTS = ("\n\n", "\n", ". ", "! ", "? ", "。", " ")
MAX_MENTIONS = 3
NEUTRAL_AT = "＠"  # one character like @, so that no span moves
_MENTION_PATTERN = re.compile(r"https?://\S+|(?<![A-Za-z0-9_])@([A-Za-z0-9_]{2,})")


@dataclass(frozen=True, slots=True)
class OutgoingText:
    """A text to send, with its entities or plain."""

    text: str
    entities: tuple[MessageEntity, ...] = ()

    def with_duplicate_notice(self) -> "OutgoingText":
        """Return the text with the notice that it may be a duplicate."""
        shifted = tuple(
            MessageEntity(
                entity.type,
                entity.offset + utf16_length(DUPLICATE_NOTICE),
                entity.length,
                entity.url,
                language=entity.language,
            )
            for entity in self.entities
        )
        return OutgoingText(DUPLICATE_NOTICE + self.text, shifted)


def split_reply(content: Content) -> list[Content]:
    """Split a reply into texts of at most 4,096 units, then files; a single file carries the text.

    The last part carries the choices.
    """
    files = [item for item in content.attachments if item.kind is not MediaKind.LINK]
    links = [item.url for item in content.attachments if item.kind is MediaKind.LINK and item.url]
    text = "\n".join(filter(None, [content.text, *links]))
    full_text = parse_markdown(text)
    if len(files) == 1 and utf16_length(full_text.text) <= MAX_CAPTION_LENGTH:
        result = [_build_part(content, full_text, text, files)]
    else:
        chunks = list(split_text(full_text, MAX_TEXT_LENGTH))
        result = [_build_part(content, item, text if len(chunks) == 1 else "") for item in chunks]
        result += [_build_part(content, FormattedText(""), "", [file]) for file in files]
    if result and content.choices:
        result[-1] = replace(result[-1], choices=content.choices)
    return result or [replace(content, choices=())]


def is_part(content: Content) -> bool:
    """Return whether the content is split; a reply stored while Telegram was disabled is not."""
    return SPANS_KEY in content.metadata


def build_text(content: Content) -> OutgoingText:
    """Return the text of a part with its entities."""
    spans = [Span(str(kind), int(start), int(end), str(detail)) for kind, start, end, detail in _spans_of(content)]
    return OutgoingText(content.text, tuple(_build_entity(content.text, span) for span in spans))


def build_plain_text(content: Content) -> OutgoingText:
    """Return the text of a part as its Markdown source, or plain with the URLs of its links."""
    source = str(content.metadata.get(SOURCE_KEY, ""))
    max_length = MAX_CAPTION_LENGTH if content.attachments else MAX_TEXT_LENGTH
    if source and utf16_length(source) <= max_length:
        return OutgoingText(source)
    text = content.text
    for kind, _, end, detail in sorted(_spans_of(content), key=lambda span: -int(span[2])):
        if kind == LINK and str(detail) not in text:
            text = f"{text[:end]} ({detail}){text[end:]}"
    return OutgoingText(text if utf16_length(text) <= max_length else content.text)


def build_keyboard(choices: Sequence[Choice]) -> InlineKeyboardMarkup | None:
    """Return the choices as buttons in one column; None without choices."""
    if not choices:
        return None
    return InlineKeyboardMarkup(
        [[InlineKeyboardButton(choice.label[:MAX_LABEL_LENGTH], callback_data=choice.value)] for choice in choices]
    )


def upload_method_of(file: Attachment) -> str:
    """Return the suffix of the method that sends a file: photo, video, voice, audio or document."""
    if file.kind is MediaKind.IMAGE:
        return "photo"
    if file.kind is MediaKind.VIDEO:
        return "video"
    if file.kind is not MediaKind.AUDIO:
        return "document"
    is_voice = file.content_type.partition(";")[0] in ("audio/ogg", "audio/opus")
    return "voice" if is_voice or file.name.lower().endswith((".ogg", ".oga", ".opus")) else "audio"


def display_name_of(file: Attachment) -> str:
    """Return the name of a file shown to users."""
    return file.name or file.title or "file"


def _build_part(content: Content, text: FormattedText, source: str, files: Sequence[Attachment] = ()) -> Content:
    kept = sorted(text.spans, key=lambda span: span.kind not in NEEDED_KINDS)[:MAX_ENTITIES]
    spans = [[span.kind, span.start, span.end, span.detail] for span in text.spans if span in kept]
    metadata: dict[str, Any] = {**content.metadata, SPANS_KEY: spans}
    if spans and source:
        metadata[SOURCE_KEY] = source
    return replace(content, text=text.text, attachments=tuple(files), choices=(), metadata=metadata)


def _spans_of(content: Content) -> Iterator[Sequence[Any]]:
    yield from content.metadata.get(SPANS_KEY, ())


def _build_entity(text: str, span: Span) -> MessageEntity:
    return MessageEntity(
        span.kind,
        offset=utf16_length(text[: span.start]),
        length=utf16_length(text[span.start : span.end]),
        url=span.detail if span.kind == LINK else None,
        language=span.detail or None if span.kind == PRE else None,
    )


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units, as Telegram counts."""
    return len(text) + sum(char > "\uffff" for char in text)


def split_text(full_text: FormattedText, limit: int) -> Iterator[FormattedText]:
    """Split a text into parts of at most `limit` units; split code is code in both parts."""
    start = 0
    while start < len(full_text.text):
        end = _find_end(full_text.text, start, limit)
        piece = full_text.cut(start, end)
        if piece.text:
            yield piece
        start = end


def _find_end(text: str, start: int, limit: int) -> int:
    """Return the end of the part that begins at `start`."""
    furthest, size = start, 0
    while furthest < len(text) and (size := size + utf16_length(text[furthest])) <= limit:
        furthest += 1
    if furthest == len(text):
        return furthest
    for separator in BREAKPOINTS:
        position = text.rfind(separator, start + (furthest - start) // 2, furthest)
        if position > start:
            return position + len(separator)
    size = grapheme_boundary_before(text[start : furthest + 1], furthest - start)
    return start + size if size > 1 else furthest


def limit_mentions(content: Content, usernames: Collection[str]) -> Content:
    """Neutralize every @name but the first three of `usernames`; code is left unchanged."""
    mentioned = dict.fromkeys(name.lower() for _, name in _find_mentions(content.text))
    allowed = [name for name in mentioned if name in usernames][:MAX_MENTIONS]
    metadata = dict(content.metadata)
    if SOURCE_KEY in metadata:
        metadata[SOURCE_KEY] = _neutralize_mentions(str(metadata[SOURCE_KEY]), allowed)
    code_ranges = [(int(start), int(end)) for kind, start, end, _ in metadata.get(SPANS_KEY, ()) if kind in (CODE, PRE)]
    return replace(content, text=_neutralize_mentions(content.text, allowed, code_ranges), metadata=metadata)


def _neutralize_mentions(text: str, allowed: Collection[str], code_ranges: Sequence[tuple[int, int]] = ()) -> str:
    characters = list(text)
    for position, name in _find_mentions(text):
        if name.lower() not in allowed and not any(start <= position < end for start, end in code_ranges):
            characters[position] = NEUTRAL_AT
    return "".join(characters)


def _find_mentions(text: str) -> Iterator[tuple[int, str]]:
    """Yield the @names as Telegram finds them: not within words or URLs."""
    for match in _MENTION_PATTERN.finditer(text):
        if match[1]:
            yield match.start(), match[1]
