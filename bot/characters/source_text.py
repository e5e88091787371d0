"""Where in a source text an offset stands, and how to show that place to a person."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bot.characters.secret_detection import MASK, mask_secrets
from bot.errors import CharacterError

_LINE_END = re.compile(r"\r\n?|\n")
_SECRET_KEY = re.compile(
    r"\w{0,40}(?:secret|token|key|passw|cookie|mnemonic|credential)\w{0,40}[\"']?\s{0,9}:", re.IGNORECASE
)
_PLAIN_KEY = re.compile(r"[^\W\d]\w{0,59}", re.ASCII)
_MAX_EXCERPT_LENGTH = 60

Span = tuple[int, int]
Path = tuple[str | int, ...]


def format_path(path: Path) -> str:
    """Write a path as a person would: `messageExamples[0][1].content`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{printable(mask_secrets(step[:60])[0])}"]'
    return text


def printable(text: str) -> str:
    """Give a text without what would move a terminal's cursor or hide a character."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "·" for char in text)


@dataclass(frozen=True)
class SourceText:
    """A text with the name of its file; says where an offset of it stands."""

    name: str
    text: str

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_END.finditer(self.text))]

    def line_of(self, offset: int) -> int:
        """Tell the line of an offset, from 1."""
        return bisect_right(self._starts, offset)

    def format_location(self, offset: int) -> str:
        """Name a place as `file:line:column`, columns from 1 in characters."""
        line = self.line_of(offset)
        return f"{self.name}:{line}:{offset - self._starts[line - 1] + 1}"

    def build_error(
        self, offset: int, message: str, *, secret_spans: Sequence[Span], is_rest_secret: bool
    ) -> CharacterError:
        """Make the error for a fault of syntax: place, what is wrong, the line, a caret below.

        `hidden` are the spans of secrets read so far; `hides_rest` says that the text from the
        offset on may be part of one.
        """
        start = self._starts[self.line_of(offset) - 1]
        line_end = _LINE_END.search(self.text, offset)
        end = line_end.start() if line_end else len(self.text)
        visible_spans = [span for span in secret_spans if span[1] > start and span[0] < end]
        before = _mask_spans(self.text, start, offset, visible_spans)
        after = (
            ""
            if is_rest_secret or visible_spans
            else self.text[offset : min(end, offset + 10 * _MAX_EXCERPT_LENGTH)]
        )
        cut = _SECRET_KEY.search(after)
        after = mask_secrets(after[: cut.start()] if cut else after)[0]
        if len(before) > _MAX_EXCERPT_LENGTH:
            before = "…" + before[-_MAX_EXCERPT_LENGTH:]
        if len(after) > _MAX_EXCERPT_LENGTH or len(after) < end - offset:
            after = after[:_MAX_EXCERPT_LENGTH] + "…"
        before, after = printable(before.replace("\t", " ")), printable(after.replace("\t", " "))
        return CharacterError(
            f"{self.format_location(offset)}: {message}\n    {before}{after}\n    {' ' * len(before)}^"
        )


def _mask_spans(text: str, start: int, end: int, spans: Sequence[Span]) -> str:
    """Give a stretch of text with the spans in it masked, and what looks like a secret."""
    pieces, position = [], start
    for left, right in spans:
        if left >= end:
            break
        pieces += [text[position : max(left, position)], MASK]
        position = max(right, position)
    pieces.append(text[position:end])
    return mask_secrets("".join(pieces))[0]
