"""Cutting a text to Telegram's measure, which is UTF-16: between paragraphs, lines, words; pure."""

from collections.abc import Iterator

from adapters.telegram.markup import Formatted
from bot import last_break

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
