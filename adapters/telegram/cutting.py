"""Cutting a text to Telegram's measure, which is UTF-16: between paragraphs, lines, words; pure."""

import unicodedata
from collections.abc import Iterator

from adapters.telegram.markup import Formatted

BREAKS = ("\n\n", "\n", ". ", "! ", "? ", "。", " ")
JOINER = "\u200d"


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
    end = furthest
    while end > start + 1 and _continues(text, end):
        end -= 1
    return end if end > start + 1 else furthest


def _continues(text: str, place: int) -> bool:
    """Tell whether the character at a place belongs to the one before it."""
    before, after = text[place - 1], text[place]
    if JOINER in (before, after) or "\ufe00" <= after <= "\ufe0f" or "\U0001f3fb" <= after <= "\U0001f3ff":
        return True
    if "\U0001f1e6" <= after <= "\U0001f1ff":
        flags = place - len(text[:place].rstrip("".join(map(chr, range(0x1F1E6, 0x1F200)))))
        return flags % 2 == 1
    return unicodedata.category(after).startswith("M") or "\U000e0020" <= after <= "\U000e007f"
