"""A tolerant JSON parser that keeps the position of every value."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bot.characters.secret_detection import is_secret_name
from bot.characters.source_text import SourceText, Span
from bot.errors import CharacterError

MAX_DEPTH: Final = 64
MAX_VALUES: Final = 200_000
MAX_NUMBER_LENGTH: Final = 100

Scalar = str | int | float | bool | None

_BLANK: Final = re.compile(r"[ \t\r\n]+")
_COMMENT: Final = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?(?![\w.+-])", re.ASCII)
_NUMBER_LIKE: Final = re.compile(r"[+-]?\.?\d[\w.+-]*", re.ASCII)
_WORD: Final = re.compile(r"-?[^\W\d]\w*")
_UNSTORABLE: Final = re.compile(r"[\x00\ud800-\udfff]")
_CONSTANTS: Final[Mapping[str, Scalar]] = {"true": True, "false": False, "null": None}
_FOREIGN_CONSTANTS: Final = frozenset(
    ["True", "False", "None", "NULL", "undefined", "NaN", "nan", "Infinity", "-Infinity"]
)
_STRING_DECODER: Final = json.JSONDecoder()
_STRING_FAULTS: Final[Mapping[str, str]] = {
    "Unterminated string starting at": "a text that is never closed",
    "Invalid control character at": 'a line break or tab inside a text: close it with ", or write \\n or \\t',
    "Invalid \\escape": 'an unknown escape: after \\ comes one of " \\ / b f n r t u; a backslash is \\\\',
    "Invalid \\uXXXX escape": "\\u wants four hexadecimal digits",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its offset; `key_offset` is that of its key, or its own without a key."""

    value: "Scalar | tuple[Node, ...] | dict[str, Node]"
    offset: int
    key_offset: int

    @property
    def kind(self) -> str:
        """The type of the value, for messages."""
        match self.value:
            case None:
                return "null"
            case bool():
                return "true or false"
            case str():
                return "text"
            case int() | float():
                return "a number"
            case tuple():
                return "a list"
            case _:
                return "an object"


@dataclass(frozen=True, slots=True)
class JsonDeviation:
    """Something that is not valid JSON and was accepted."""

    offset: int
    path: tuple[str | int, ...]
    message: str


@dataclass(slots=True)
class _Observations:
    """What the scanner has observed: deviations, secrets, the number of values."""

    duplicates: list[JsonDeviation] = field(default_factory=list)
    offsets_by_message: dict[str, list[int]] = field(default_factory=dict)
    secret_spans: list[Span] = field(default_factory=list)
    value_count: int = 0

    def note(self, message: str, offset: int) -> None:
        self.offsets_by_message.setdefault(message, []).append(offset)

    def deviations(self) -> tuple[JsonDeviation, ...]:
        repeated = [
            JsonDeviation(offsets[0], (), message + (f" ({len(offsets)} times)" if len(offsets) > 1 else ""))
            for message, offsets in self.offsets_by_message.items()
        ]
        return (*repeated, *self.duplicates)


def scan_json(source: SourceText) -> tuple[Node, tuple[JsonDeviation, ...]]:
    """Parse a JSON text; comments, trailing commas and repeated keys are accepted and reported."""
    return _Scanner(source).read_document()


class _Scanner:
    """One pass over a text; `_offset` is the position, `_path` the path of the current value."""

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._text = source.text
        self._offset = 0
        self._path: list[str | int] = []
        self._is_secret = False
        self._observations = _Observations()

    def read_document(self) -> tuple[Node, tuple[JsonDeviation, ...]]:
        if self._text.startswith("\ufeff"):
            self._observations.note("the file begins with a byte order mark; save it as UTF-8 without one", 0)
            self._offset = 1
        root = self._read_value(key_offset=None)
        if self._skip_to_next():
            raise self._error(f"expected the end of the file, found {self._describe_next()}")
        return root, self._observations.deviations()

    def _error(self, message: str, offset: int | None = None) -> CharacterError:
        return self._source.build_error(
            self._offset if offset is None else offset,
            message,
            secret_spans=self._observations.secret_spans,
            is_rest_secret=self._is_secret,
        )

    def _skip_to_next(self) -> str:
        """Skip blanks and comments; return the next character, empty at the end of the text."""
        while True:
            if blank := _BLANK.match(self._text, self._offset):
                self._offset = blank.end()
            if not self._text.startswith("/", self._offset):
                return self._text[self._offset : self._offset + 1]
            comment = _COMMENT.match(self._text, self._offset)
            if comment is None:
                unclosed = self._text.startswith("/*", self._offset)
                raise self._error("a comment that is never closed" if unclosed else "expected a value, found '/'")
            self._observations.note("comments are not JSON; they are ignored", self._offset)
            self._offset = comment.end()

    def _read_value(self, key_offset: int | None) -> Node:
        char = self._skip_to_next()
        offset = self._offset
        self._observations.value_count += 1
        if self._observations.value_count > MAX_VALUES:
            raise self._error(f"more than {MAX_VALUES:,} values; a character file holds fewer")
        value: Scalar | tuple[Node, ...] | dict[str, Node]
        if char in ("{", "["):
            if len(self._path) >= MAX_DEPTH:
                raise self._error(f"nested more than {MAX_DEPTH} deep")
            value = self._read_object() if char == "{" else self._read_list()
        else:
            value = self._read_string() if char == '"' else self._read_scalar()
            if self._is_secret:
                self._observations.secret_spans.append((offset, self._offset))
        return Node(value, offset, offset if key_offset is None else key_offset)

    def _read_list(self) -> "tuple[Node, ...]":
        opening = self._offset
        self._offset += 1
        items: list[Node] = []
        while not self._consume_closing("]", opening, is_first=not items):
            self._path.append(len(items))
            items.append(self._read_value(key_offset=None))
            self._path.pop()
        return tuple(items)

    def _read_object(self) -> "dict[str, Node]":
        opening = self._offset
        self._offset += 1
        members: dict[str, Node] = {}
        is_first = True
        while not self._consume_closing("}", opening, is_first=is_first):
            is_first = False
            if self._text[self._offset] != '"':
                raise self._error(f"expected a key in double quotes, found {self._describe_next()}")
            key_offset = self._offset
            key = self._read_string()
            if self._skip_to_next() != ":":
                raise self._error(f"expected ':' after the key, found {self._describe_next()}")
            self._offset += 1
            was_secret, self._is_secret = self._is_secret, self._is_secret or is_secret_name(key)
            self._path.append(key)
            node = self._read_value(key_offset)
            if key in members:
                self._note_duplicate(members.pop(key), key_offset)
            self._path.pop()
            self._is_secret = was_secret
            members[key] = node
        return members

    def _consume_closing(self, bracket: str, opening: int, *, is_first: bool) -> bool:
        """Skip a comma; return whether the closing bracket follows, and skip it too."""
        char = self._skip_to_next()
        if char == "," and not is_first:
            comma = self._offset
            self._offset += 1
            char = self._skip_to_next()
            if char == bracket:
                self._observations.note(f"a comma before '{bracket}' is not JSON; it is ignored", comma)
        elif char not in (bracket, "") and not is_first:
            raise self._error(f"expected ',' or '{bracket}', found {self._describe_next()}")
        if not char:
            raise self._error(
                f"expected '{bracket}', found the end of the file; "
                f"'{self._text[opening]}' was opened in line {self._source.line_of(opening)}"
            )
        if char == bracket:
            self._offset += 1
        return char == bracket

    def _read_string(self) -> str:
        start = self._offset
        text: str
        try:
            text, self._offset = _STRING_DECODER.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            if self._is_secret:
                self._observations.secret_spans.append((start, error.pos))
            raise self._error(_STRING_FAULTS.get(error.msg, "an invalid text"), error.pos) from None
        if _UNSTORABLE.search(text):
            self._observations.note("half a character (\\ud800…) or NUL cannot be stored; replaced by \ufffd", start)
            text = _UNSTORABLE.sub("\ufffd", text)
        return text

    def _read_scalar(self) -> Scalar:
        if word := _WORD.match(self._text, self._offset):
            if word.group() in _CONSTANTS:
                self._offset = word.end()
                return _CONSTANTS[word.group()]
            raise self._error(f"expected a value, found {self._describe_next()}")
        if not (number_like := _NUMBER_LIKE.match(self._text, self._offset)):
            raise self._error(f"expected a value, found {self._describe_next()}")
        if number_like.end() - number_like.start() > MAX_NUMBER_LENGTH:
            raise self._error(f"a number of more than {MAX_NUMBER_LENGTH} digits")
        number = _NUMBER.match(self._text, self._offset)
        if number is None:
            raise self._error("a number that is not JSON: write it like 12, -0.5 or 1e3")
        self._offset = number.end()
        if number.group(1) is None and number.group(2) is None:
            return int(number.group())
        value = float(number.group())
        if value in (float("inf"), float("-inf")):
            raise self._error("a number that is too large", number_like.start())
        return value

    def _describe_next(self) -> str:
        """Describe the next token without quoting it: it may be part of a secret."""
        char = self._text[self._offset : self._offset + 1]
        if not char:
            return "the end of the file"
        if word := _WORD.match(self._text, self._offset):
            text = word.group()
            if text in _CONSTANTS:
                return text
            return (
                f"{text}, which is not JSON"
                if text in _FOREIGN_CONSTANTS
                else "a bare word; texts stand in double quotes"
            )
        if char in "'‘’“”`":
            return f"{char}; texts need plain double quotes"
        if char == '"':
            return "text; is a comma or a quote missing before it?"
        if char.isdigit() or char == "-":
            return "a number"
        return f"'{char}'" if char in "{}[],:" else f"an unexpected character (U+{ord(char):04X})"

    def _note_duplicate(self, earlier: Node, key_offset: int) -> None:
        lines = self._source.line_of(earlier.key_offset), self._source.line_of(key_offset)
        message = f"appears twice, in lines {lines[0]} and {lines[1]}; the last one is used"
        self._observations.duplicates.append(JsonDeviation(key_offset, tuple(self._path), message))
