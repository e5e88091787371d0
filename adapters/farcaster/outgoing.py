"""Replies and posts as casts. Pure functions."""

import re

from adapters.farcaster.messages import MAX_EMBEDS, MAX_LONG_CAST_BYTES, MAX_URL_BYTES
from bot import Attachment, Content
from bot.text import grapheme_boundary_before

_SENTENCE_END = re.compile(r"(?<=[.!?…。！？])[\"'”’»)\]]*(?:\s+|(?<=[。！？]))|\n+")


def split_reply(content: Content, label: str = "") -> list[Content]:
    """Split a text into casts, the first of which begins with a label; addresses of files are embedded in it.

    A cast embeds at most two addresses; further ones, and the names of files without an address, follow the text.
    """
    files = [item for item in content.attachments if item.url.startswith(("https://", "http://"))]
    embedded = [item for item in files if len(item.url.encode()) <= MAX_URL_BYTES][:MAX_EMBEDS]
    links = [item.url for item in files if item not in embedded]
    refused = [_name_of(item) for item in content.attachments if item not in files]
    notes = [f"(could not be posted: {', '.join(refused)})"] if refused else []
    pieces = split_text(label + "\n".join(filter(None, [content.text.strip(), *links, *notes])))
    kept = tuple(Attachment(item.id, item.kind, url=item.url) for item in embedded)
    return [Content(text=piece, attachments=() if number else kept) for number, piece in enumerate(pieces)]


def _name_of(file: Attachment) -> str:
    return file.name or file.title or file.id


def split_text(text: str) -> list[str]:
    """Split a text into pieces of at most 1,024 bytes, after a sentence, else a word, else a character."""
    pieces: list[str] = []
    while len(text.encode()) > MAX_LONG_CAST_BYTES:
        fitting = len(text.encode()[:MAX_LONG_CAST_BYTES].decode("utf-8", "ignore"))
        ends = [match.end() for match in _SENTENCE_END.finditer(text, fitting // 4, fitting)]
        end = ends[-1] if ends else text.rfind(" ", 1, fitting + 1)
        end = end if end > 0 else grapheme_boundary_before(text, fitting) or fitting
        pieces.append(text[:end].rstrip())
        text = text[end:].lstrip()
    return [*pieces, text]
