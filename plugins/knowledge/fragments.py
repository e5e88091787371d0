"""Cuts a text into fragments: whole paragraphs where they fit, each with the end of the one before."""

import re
from collections.abc import Iterator

LONGEST = 1_000
OVERLAP = 150
HEADING = re.compile(r"#{1,6} \S.*")
PARAGRAPHS = re.compile(r"\n[ \t]*\n\s*")
ENDS = re.compile(r"(?<=[.!?…])\s+")


def cut(text: str, *, longest: int = LONGEST, overlap: int = OVERLAP) -> list[str]:
    """Cut a text, Markdown or plain, into fragments of at most `longest` characters.

    A fragment that goes on where another ended begins with that one's last `overlap` characters or
    fewer, and, below a heading, with the heading. Every word of the text is in one of them.
    """
    room = longest - overlap - 2
    fragments: list[str] = []
    heading, present = "", ""
    for piece in _pieces(text, room):
        if HEADING.fullmatch(piece) and len(piece) <= overlap:
            if present:
                fragments.append(present)
            heading = present = piece
        elif len(present) + 2 + len(piece) <= longest:
            present = f"{present}\n\n{piece}" if present else piece
        else:
            fragments.append(present)
            before = heading or _tail(present, overlap)
            present = f"{before}\n\n{piece}" if before else piece
    if present:
        fragments.append(present)
    return fragments


def _pieces(text: str, longest: int) -> Iterator[str]:
    """Give paragraphs, headings apart; one that is too long by sentences, a long sentence by words."""
    for paragraph in PARAGRAPHS.split(text.replace("\r\n", "\n").strip()):
        first, _, rest = paragraph.strip().partition("\n")
        parts = [first, rest.strip()] if HEADING.fullmatch(first) else [paragraph.strip()]
        for part in filter(None, parts):
            yield from [part] if len(part) <= longest else _packed(part, longest)


def _packed(text: str, longest: int) -> Iterator[str]:
    present = ""
    for sentence in ENDS.split(text):
        for piece in _words(sentence, longest):
            if len(present) + 1 + len(piece) <= longest:
                present = f"{present} {piece}" if present else piece
                continue
            if present:
                yield present
            present = piece
    if present:
        yield present


def _words(sentence: str, longest: int) -> Iterator[str]:
    while len(sentence) > longest:
        end = max(sentence.rfind(gap, 1, longest + 1) for gap in " \t\n")
        end = end if end > 0 else longest
        yield sentence[:end].rstrip()
        sentence = sentence[end:].lstrip()
    if sentence:
        yield sentence


def _tail(text: str, longest: int) -> str:
    """Give the last sentences that fit, or the last words."""
    end = text[-longest:]
    starts = [found.end() for found in ENDS.finditer(end)]
    if starts:
        return end[starts[0] :].strip()
    return end[end.find(" ") + 1 :].strip() if " " in end else ""
