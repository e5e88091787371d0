"""Cutting a text where it hurts least: at a paragraph, a line, a word, a whole character; pure."""

import re
from collections.abc import Iterator

from bot import is_blank, last_break

FENCE = "```"
CLOSING = f"\n{FENCE}"
LONGEST_OPENING = 24  # a fence's language; what is longer is text
_FENCE = re.compile(rf"{FENCE}([\w+#.-]{{0,{LONGEST_OPENING}}}(?=\n))?")
_WHOLE = (
    re.compile(  # what is broken by a cut in its middle: fences, masked links, addresses, mentions, emoji
        rf"{FENCE}(?:[\w+#.-]*\n)?|\[[^\]\n]*\]\([^)\s]*\)|<?https?://[^\s>]+>?"
        r"|<(?:@[!&]?|#|a?:\w+:|t:|id:|/[^:>\n]+:)[\w:-]*>"
    )
)


def cut(text: str, limit: int) -> list[str]:
    """Cut a text into pieces of at most `limit` characters; a code block goes on in the next piece."""
    return [piece for piece in _pieces(text, limit) if not is_blank(piece)]


def _pieces(text: str, limit: int) -> Iterator[str]:
    opening, rest = "", text
    while len(opening) + len(rest) > limit:
        room = limit - len(opening) - len(CLOSING)
        end, skipped = _end(rest, room)
        piece = opening + rest[:end]
        rest = rest[end + skipped :]
        opening = _left_open(piece)
        yield piece + CLOSING if opening else piece
    yield opening + rest


def _end(text: str, room: int) -> tuple[int, int]:
    """Find where a piece of at most `room` characters ends, and how many characters the gap has."""
    spans = [found.span() for found in _WHOLE.finditer(text, 0, 2 * room) if len(found[0]) <= room]
    for gap in ("\n\n", "\n", " "):
        at = text.rfind(gap, 1, room + len(gap))
        while at > 0 and (whole := _around(spans, at)):
            at = text.rfind(gap, 1, whole)
        if at > (0 if gap == " " else room // 3):  # a short piece is worse than a cut line
            return at, len(gap)
    at = last_break(text, room) or room
    return (_around(spans, at) or at), 0


def _around(spans: list[tuple[int, int]], at: int) -> int:
    """Give where the thing begins that a cut here would break; 0 for none, or one that begins the text."""
    return next((start for start, end in spans if start < at < end), 0)


def _left_open(piece: str) -> str:
    """Give the line that opens again a code block which is open at the end of a piece; else nothing."""
    opening = ""
    for found in _FENCE.finditer(piece):
        opening = "" if opening else f"{FENCE}{found[1] or ''}\n"
    return opening
