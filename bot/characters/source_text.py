"""Line numbers, JSON paths and error excerpts of a source text."""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bot.characters.secret_detection import MASK, mask_secrets
from bot.errors import CharacterError, FileProblem

_LINE_END = re.compile(r"\r\n?|\n")
_SECRET_KEY = re.compile(
    r"\w{0,40}(?:secret|token|key|passw|cookie|mnemonic|credential)\w{0,40}[\"']?\s{0,9}:", re.IGNORECASE
)
_PLAIN_KEY = re.compile(r"[^\W\d]\w{0,59}", re.ASCII)
_MAX_EXCERPT_LENGTH = 60

Span = tuple[int, int]
Path = tuple[str | int, ...]


def format_path(path: Path) -> str:
    """Return a path as text: `messageExamples[0][1].content`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{printable(mask_secrets(step[:60])[0])}"]'
    return text


def text_version(text: str) -> str:
    """Return a short hash by which versions of a file's text are told apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def printable(text: str) -> str:
    """Return a text without control and invisible characters."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "·" for char in text)


@dataclass(frozen=True)
class SourceText:
    """A text and the name of its file."""

    name: str
    text: str

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_END.finditer(self.text))]

    def line_of(self, offset: int) -> int:
        """Return the line number of an offset, from 1."""
        return bisect_right(self._starts, offset)

    def format_location(self, offset: int) -> str:
        """Return an offset as `file:line:column`; columns count characters from 1."""
        line, column = self.position_of(offset)
        return f"{self.name}:{line}:{column}"

    def position_of(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, both from 1."""
        line = self.line_of(offset)
        return line, offset - self._starts[line - 1] + 1

    def build_error(
        self, offset: int, message: str, *, secret_spans: Sequence[Span], is_rest_secret: bool
    ) -> CharacterError:
        """Return the error for a syntax error: location, message, the line and a caret.

        `secret_spans` are the secrets read so far; with `is_rest_secret` the text from the offset on may be
        part of one.
        """
        start = self._starts[self.line_of(offset) - 1]
        line_end = _LINE_END.search(self.text, offset)
        end = line_end.start() if line_end else len(self.text)
        visible_spans = [span for span in secret_spans if span[1] > start and span[0] < end]
        before = _mask_spans(self.text, start, offset, visible_spans)
        after = (
            "" if is_rest_secret or visible_spans else self.text[offset : min(end, offset + 10 * _MAX_EXCERPT_LENGTH)]
        )
        cut = _SECRET_KEY.search(after)
        after = mask_secrets(after[: cut.start()] if cut else after)[0]
        if len(before) > _MAX_EXCERPT_LENGTH:
            before = "…" + before[-_MAX_EXCERPT_LENGTH:]
        if len(after) > _MAX_EXCERPT_LENGTH or len(after) < end - offset:
            after = after[:_MAX_EXCERPT_LENGTH] + "…"
        before, after = printable(before.replace("\t", " ")), printable(after.replace("\t", " "))
        return CharacterError(
            f"{self.format_location(offset)}: {message}\n    {before}{after}\n    {' ' * len(before)}^",
            [FileProblem(message, *self.position_of(offset))],
        )


def _mask_spans(text: str, start: int, end: int, spans: Sequence[Span]) -> str:
    """Return a part of the text with the spans, and whatever looks like a secret, masked."""
    pieces, position = [], start
    for left, right in spans:
        if left >= end:
            break
        pieces += [text[position : max(left, position)], MASK]
        position = max(right, position)
    pieces.append(text[position:end])
    return mask_secrets("".join(pieces))[0]
