"""Where in a source text an offset stands, and how to show that place to a person."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bot.characters.secret_detection import MASK, take_secrets
from bot.errors import CharacterError

_LINE_END = re.compile(r"\r\n?|\n")
_TELLS_OF_SECRETS = re.compile(
    r"\w{0,40}(?:secret|token|key|passw|cookie|mnemonic|credential)\w{0,40}[\"']?\s{0,9}:", re.IGNORECASE
)
_PLAIN_KEY = re.compile(r"[^\W\d]\w{0,59}", re.ASCII)
_WIDTH = 60

Span = tuple[int, int]
Path = tuple[str | int, ...]


def path_text(path: Path) -> str:
    """Write a path as a person would: `messageExamples[0][1].content`."""
    out = ""
    for step in path:
        if isinstance(step, int):
            out += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            out += f".{step}" if out else step
        else:
            out += f'["{printable(take_secrets(step[:60])[0])}"]'
    return out


def printable(text: str) -> str:
    """Give a text without what would move a terminal's cursor or hide a character."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "·" for sign in text)


@dataclass(frozen=True)
class SourceText:
    """A text with the name of its file; says where an offset of it stands."""

    name: str
    text: str

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(found.end() for found in _LINE_END.finditer(self.text))]

    def line(self, offset: int) -> int:
        """Tell the line of an offset, from 1."""
        return bisect_right(self._starts, offset)

    def place(self, offset: int) -> str:
        """Name a place as `file:line:column`, columns from 1 in characters."""
        line = self.line(offset)
        return f"{self.name}:{line}:{offset - self._starts[line - 1] + 1}"

    def fault(self, offset: int, what: str, *, hidden: Sequence[Span], hides_rest: bool) -> CharacterError:
        """Make the error for a fault of syntax: place, what is wrong, the line, a caret below.

        `hidden` are the spans of secrets read so far; `hides_rest` says that the text from the
        offset on may be part of one.
        """
        start = self._starts[self.line(offset) - 1]
        found = _LINE_END.search(self.text, offset)
        end = found.start() if found else len(self.text)
        shown = [span for span in hidden if span[1] > start and span[0] < end]
        before = _masked(self.text, start, offset, shown)
        after = "" if hides_rest or shown else self.text[offset : min(end, offset + 10 * _WIDTH)]
        cut = _TELLS_OF_SECRETS.search(after)
        after = take_secrets(after[: cut.start()] if cut else after)[0]
        if len(before) > _WIDTH:
            before = "…" + before[-_WIDTH:]
        if len(after) > _WIDTH or len(after) < end - offset:
            after = after[:_WIDTH] + "…"
        before, after = printable(before.replace("\t", " ")), printable(after.replace("\t", " "))
        return CharacterError(f"{self.place(offset)}: {what}\n    {before}{after}\n    {' ' * len(before)}^")


def _masked(text: str, start: int, end: int, spans: Sequence[Span]) -> str:
    """Give a stretch of text with the spans in it masked, and what looks like a secret."""
    pieces, at = [], start
    for left, right in spans:
        if left >= end:
            break
        pieces += [text[at : max(left, at)], MASK]
        at = max(right, at)
    pieces.append(text[at:end])
    return take_secrets("".join(pieces))[0]
