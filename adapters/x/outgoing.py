"""Replies as threads of posts. Pure functions."""

import re
import unicodedata
from dataclasses import replace
from itertools import chain, repeat

from adapters.x.text_length import MAX_WEIGHT, text_weight, weighted_pieces
from bot import Content, MediaKind
from bot.platform import PostOperationKind

MAX_PICTURES = 4
MAX_REPLY_POSTS = 5  # posts with which one mention may be answered
ELLIPSIS = "…"
_SENTENCE_END = re.compile(r"(?<=[.!?…。！？])[\"'”’»)\]]*(?:\s+|(?<=[。！？]))|\n+")
_LEADING_MENTIONS = re.compile(r"^(?:\s*[@＠]\w{1,15}\b[,:]?)+\s*")
_MENTION = re.compile(  # as X detects them: after any character but a letter, and after RT
    r"(https?://\S+)|(?:(?<![A-Za-z0-9_])|(?<=\b[Rr][Tt]))[@＠](?=[A-Za-z0-9_])"
)


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
        while end > 1 and text_weight(remaining[:end].rstrip()) > MAX_WEIGHT:  # the cut has made a word a URL
            end -= 1
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
