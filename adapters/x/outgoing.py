"""Replies as threads of posts, and X's weighted text length. Pure functions."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, repeat

from bot import Content, MediaKind
from bot.platform import PostOperationKind

MAX_WEIGHT = 280
URL_WEIGHT = 23  # of any URL: X replaces it by a short one
DEFAULT_WEIGHT = 2
# Code points that count 1 instead of 2: scripts up to Georgian, and common punctuation.
LIGHT_RANGES = ((0, 4351), (8192, 8205), (8208, 8223), (8242, 8247))

# Candidates for URLs. X knows every top-level domain and reads `it.Then` as two words; here a candidate
# counts as the heavier of both readings, so that a text is never longer on X than here.
_URL = re.compile(
    r"https?://[^\s<>\"]*[\w/=&#]"
    r"|(?<![A-Za-z0-9_@.\-/#$])(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}(?::\d+)?(?:[/?][!-~]*[A-Za-z0-9/])?(?![@A-Za-z0-9])",
    re.IGNORECASE,
)
_CERTAIN_URL = re.compile(
    r"https?://[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?(?:[/?][a-z0-9_./~%+&=#?:@!-]*)?", re.IGNORECASE
)
_ZERO_WIDTH_JOINER, _KEYCAP, _VARIANT = "\u200d", "\u20e3", "\ufe0f"
_PICTURE = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_SKIN = "[\U0001f3fb-\U0001f3ff]"
_EMOJI_UNIT = f"{_PICTURE}(?:{_SKIN}|{_VARIANT})?"
_EMOJI = re.compile(
    rf"[0-9#*]{_VARIANT}?{_KEYCAP}"
    r"|[\U0001f1e6-\U0001f1ff]{2}"
    r"|\U0001f3f4[\U000e0061-\U000e007a\U000e0030-\U000e0039]+\U000e007f"
    rf"|{_EMOJI_UNIT}(?:{_ZERO_WIDTH_JOINER}{_EMOJI_UNIT})*"
)
MAX_PICTURES = 4
MAX_REPLY_POSTS = 5  # posts with which one mention may be answered
ELLIPSIS = "…"
_SENTENCE_END = re.compile(r"(?<=[.!?…。！？])[\"'”’»)\]]*(?:\s+|(?<=[。！？]))|\n+")
_LEADING_MENTIONS = re.compile(r"^(?:\s*[@＠]\w{1,15}\b[,:]?)+\s*")
_MENTION = re.compile(  # as X detects them: after any character but a letter, and after RT
    r"(https?://\S+)|(?:(?<![A-Za-z0-9_])|(?<=\b[Rr][Tt]))[@＠](?=[A-Za-z0-9_])"
)


def text_weight(text: str) -> int:
    """Return the length of a text by X's rules; a post has at most MAX_WEIGHT."""
    return sum(piece_weight for _, piece_weight in weighted_pieces(text))


def weighted_pieces(text: str) -> Iterator[tuple[str, int]]:
    """Yield the unbreakable pieces of a text, each with its weight."""
    text = unicodedata.normalize("NFC", text)
    start = 0
    for match in _URL.finditer(text):
        yield from _weighted_characters(text[start : match.start()])
        certain_url = _CERTAIN_URL.match(match[0])
        if certain_url is None:
            yield match[0], max(_plain_weight(match[0]), URL_WEIGHT)
        else:
            yield match[0], URL_WEIGHT + _plain_weight(match[0][certain_url.end() :])
        start = match.end()
    yield from _weighted_characters(text[start:])


def _plain_weight(text: str) -> int:
    return sum(weight for _, weight in _weighted_characters(text))


def _weighted_characters(text: str) -> Iterator[tuple[str, int]]:
    position = 0
    while position < len(text):
        match = _EMOJI.match(text, position)
        if match is not None:
            yield match[0], DEFAULT_WEIGHT
            position = match.end()
            continue
        end = position + 1
        while end < len(text) and unicodedata.category(text[end]).startswith("M"):
            end += 1
        yield text[position:end], sum(_character_weight(character) for character in text[position:end])
        position = end


def _character_weight(character: str) -> int:
    code = ord(character)
    return 1 if any(first <= code <= last for first, last in LIGHT_RANGES) else DEFAULT_WEIGHT


def split_reply(content: Content) -> list[Content]:
    """Split a text into posts, the pictures with the first; a like or a repost is one part.

    More than four pictures go with the posts after it, if need be with posts of their number alone. URLs of files
    without data are appended to the text, and the names of files that cannot be posted. A reply has at most
    MAX_REPLY_POSTS parts.
    """
    operation = content.operation
    if operation is not None and not operation.creates_post:
        return [Content(text=content.text, operation=operation)]
    is_reply = content.in_reply_to is not None or (operation is not None and operation.kind is PostOperationKind.REPLY)
    files = [item for item in content.attachments if item.data is not None]
    pictures = [item for item in files if item.kind is MediaKind.IMAGE]
    if is_reply:
        pictures = pictures[: MAX_REPLY_POSTS * MAX_PICTURES]
    batches = [tuple(pictures[start : start + MAX_PICTURES]) for start in range(0, len(pictures), MAX_PICTURES)]
    links = [item.url for item in content.attachments if item.data is None and item.url.startswith("http")]
    refused = [item.name or item.title or item.id for item in files if item not in pictures]
    notes = [f"(could not be posted: {', '.join(refused)})"] if refused else []
    pieces = split_text("\n".join([content.text, *links, *notes]).strip())
    pieces += [f"{number}/{len(batches)}" for number in range(len(pieces) + 1, len(batches) + 1)]
    if is_reply:
        pieces = _limit_posts(pieces)
    of_posts = chain(batches, repeat(()))
    posts = [Content(text=text, attachments=files) for text, files in zip(pieces, of_posts, strict=False)]
    return [replace(posts[0], operation=operation), *posts[1:]]


def split_text(text: str) -> list[str]:
    """Split a text at the ends of sentences, else between words, else between characters."""
    pieces: list[str] = []
    remaining = unicodedata.normalize("NFC", text).strip()
    while (fitting := _fitting_length(remaining)) < len(remaining):
        end = _last_break(_SENTENCE_END, remaining, fitting) or remaining.rfind(" ", 1, fitting + 1)
        end = end if end > 0 else fitting
        pieces.append(remaining[:end].rstrip())
        remaining = remaining[end:].lstrip()
    return [*pieces, remaining]


def remove_mentions(text: str) -> str:
    """Remove the @ of mentions in a reply: X notifies the participants, and no one else may be notified."""
    remaining = _LEADING_MENTIONS.sub("", text)
    return _MENTION.sub(lambda match: re.sub("[@＠]", "%40", match[1] or ""), remaining or text)


def _limit_posts(pieces: list[str]) -> list[str]:
    """Return at most MAX_REPLY_POSTS pieces, with an ellipsis if some were dropped."""
    if len(pieces) <= MAX_REPLY_POSTS:
        return pieces
    last_piece = pieces[MAX_REPLY_POSTS - 1]
    fitting = _fitting_length(last_piece, MAX_WEIGHT - text_weight(ELLIPSIS))
    end = len(last_piece) if fitting == len(last_piece) else max(last_piece.rfind(" ", 1, fitting + 1), 0) or fitting
    return [*pieces[: MAX_REPLY_POSTS - 1], last_piece[:end].rstrip() + ELLIPSIS]


def _fitting_length(text: str, max_weight: int = MAX_WEIGHT) -> int:
    """Return how many characters fit into one post without splitting an unbreakable piece."""
    total = length = 0
    for piece, piece_weight in weighted_pieces(text):
        if total + piece_weight > max_weight:
            break
        total, length = total + piece_weight, length + len(piece)
    return length or 1


def _last_break(pattern: re.Pattern[str], text: str, max_length: int) -> int:
    """Return the last end of a match within `max_length`, spaces apart; 0 if it is in the first quarter."""
    ends = [match.end() for match in pattern.finditer(text, 0, max_length + 2)]
    fitting = [end for end in ends if len(text[:end].rstrip()) <= max_length]
    return max((end for end in fitting if end >= max_length // 4), default=0)
