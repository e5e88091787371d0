"""From JSON text to values that remember where they stood, forgiving what people do write by hand."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bot.characters.secret_detection import names_a_secret
from bot.characters.source_text import SourceText, Span
from bot.errors import CharacterError

DEPTH_LIMIT: Final = 64
VALUE_LIMIT: Final = 200_000
NUMBER_LIMIT: Final = 100

Scalar = str | int | float | bool | None

_BLANK: Final = re.compile(r"[ \t\r\n]+")
_COMMENT: Final = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?(?![\w.+-])", re.ASCII)
_NUMBER_LIKE: Final = re.compile(r"[+-]?\.?\d[\w.+-]*", re.ASCII)
_WORD: Final = re.compile(r"-?[^\W\d]\w*")
_UNSTORABLE: Final = re.compile(r"[\x00\ud800-\udfff]")
_CONSTANTS: Final[Mapping[str, Scalar]] = {"true": True, "false": False, "null": None}
_FOREIGN: Final = frozenset(
    ["True", "False", "None", "NULL", "undefined", "NaN", "nan", "Infinity", "-Infinity"]
)
_TEXT: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the offset at which it begins; `key_at` is that of its key, if it has one."""

    value: "Scalar | tuple[Node, ...] | dict[str, Node]"
    at: int
    key_at: int

    @property
    def kind(self) -> str:
        """What the value is, in a reader's words."""
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
class Oddity:
    """Something that is not JSON, or not sense, and was accepted all the same."""

    at: int
    path: tuple[str | int, ...]
    what: str


@dataclass(slots=True)
class _Seen:
    """What the scanner met on its way."""

    duplicates: list[Oddity] = field(default_factory=list)
    odd: dict[str, list[int]] = field(default_factory=dict)
    hidden: list[Span] = field(default_factory=list)
    values: int = 0

    def note(self, what: str, at: int) -> None:
        self.odd.setdefault(what, []).append(at)

    def oddities(self) -> tuple[Oddity, ...]:
        counted = [
            Oddity(places[0], (), what + (f" ({len(places)} times)" if len(places) > 1 else ""))
            for what, places in self.odd.items()
        ]
        return (*counted, *self.duplicates)


def scan(source: SourceText) -> tuple[Node, tuple[Oddity, ...]]:
    """Read a JSON text; comments, trailing commas and repeated keys are accepted and told of."""
    return _Scanner(source).document()


class _Scanner:
    """One pass over one text; `_at` is where it stands, `_path` inside what."""

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._text = source.text
        self._at = 0
        self._path: list[str | int] = []
        self._is_hidden = False
        self._seen = _Seen()

    def document(self) -> tuple[Node, tuple[Oddity, ...]]:
        if self._text.startswith("\ufeff"):
            self._seen.note("the file begins with a byte order mark; save it as UTF-8 without", 0)
            self._at = 1
        root = self._value(key_at=None)
        if self._next():
            raise self._fault(f"expected the end of the file, found {self._found()}")
        return root, self._seen.oddities()

    def _fault(self, what: str, at: int | None = None) -> CharacterError:
        return self._source.fault(
            self._at if at is None else at, what, hidden=self._seen.hidden, hides_rest=self._is_hidden
        )

    def _next(self) -> str:
        """Step over blanks and comments to the next character; empty at the end of the text."""
        while True:
            if blank := _BLANK.match(self._text, self._at):
                self._at = blank.end()
            if not self._text.startswith("/", self._at):
                return self._text[self._at : self._at + 1]
            comment = _COMMENT.match(self._text, self._at)
            if comment is None:
                unclosed = self._text.startswith("/*", self._at)
                raise self._fault(
                    "a comment that is never closed" if unclosed else "expected a value, found '/'"
                )
            self._seen.note("comments are not JSON; they are passed over", self._at)
            self._at = comment.end()

    def _value(self, key_at: int | None) -> Node:
        sign = self._next()
        at = self._at
        self._seen.values += 1
        if self._seen.values > VALUE_LIMIT:
            raise self._fault(f"more than {VALUE_LIMIT:,} values; a character file holds fewer")
        value: Scalar | tuple[Node, ...] | dict[str, Node]
        if sign in ("{", "["):
            if len(self._path) >= DEPTH_LIMIT:
                raise self._fault(f"nested more than {DEPTH_LIMIT} deep")
            value = self._object() if sign == "{" else self._list()
        else:
            value = self._string() if sign == '"' else self._scalar()
            if self._is_hidden:
                self._seen.hidden.append((at, self._at))
        return Node(value, at, at if key_at is None else key_at)

    def _list(self) -> "tuple[Node, ...]":
        opened = self._at
        self._at += 1
        items: list[Node] = []
        while not self._closes("]", opened, is_first=not items):
            self._path.append(len(items))
            items.append(self._value(key_at=None))
            self._path.pop()
        return tuple(items)

    def _object(self) -> "dict[str, Node]":
        opened = self._at
        self._at += 1
        members: dict[str, Node] = {}
        is_first = True
        while not self._closes("}", opened, is_first=is_first):
            is_first = False
            if self._text[self._at] != '"':
                raise self._fault(f"expected a key in double quotes, found {self._found()}")
            key_at = self._at
            key = self._string()
            if self._next() != ":":
                raise self._fault(f"expected ':' after the key, found {self._found()}")
            self._at += 1
            was_hidden, self._is_hidden = self._is_hidden, self._is_hidden or names_a_secret(key)
            self._path.append(key)
            node = self._value(key_at)
            if key in members:
                self._tell_duplicate(members.pop(key), key_at)
            self._path.pop()
            self._is_hidden = was_hidden
            members[key] = node
        return members

    def _closes(self, bracket: str, opened: int, *, is_first: bool) -> bool:
        """Step over a comma, and say whether the bracket closes here."""
        sign = self._next()
        if sign == "," and not is_first:
            comma = self._at
            self._at += 1
            sign = self._next()
            if sign == bracket:
                self._seen.note(f"a comma before '{bracket}' is not JSON; it is passed over", comma)
        elif sign not in (bracket, "") and not is_first:
            raise self._fault(f"expected ',' or '{bracket}', found {self._found()}")
        if not sign:
            raise self._fault(
                f"expected '{bracket}', found the end of the file; "
                f"'{self._text[opened]}' was opened in line {self._source.line(opened)}"
            )
        if sign == bracket:
            self._at += 1
        return sign == bracket

    def _string(self) -> str:
        start = self._at
        text: str
        try:
            text, self._at = _TEXT.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            if self._is_hidden:
                self._seen.hidden.append((start, error.pos))
            raise self._fault(
                _STRING_FAULTS.get(error.msg, "a text that is not well formed"), error.pos
            ) from None
        if _UNSTORABLE.search(text):
            self._seen.note("half a character (\\ud800…) or NUL cannot be stored; replaced by \ufffd", start)
            text = _UNSTORABLE.sub("\ufffd", text)
        return text

    def _scalar(self) -> Scalar:
        if word := _WORD.match(self._text, self._at):
            if word.group() in _CONSTANTS:
                self._at = word.end()
                return _CONSTANTS[word.group()]
            raise self._fault(f"expected a value, found {self._found()}")
        if not (like := _NUMBER_LIKE.match(self._text, self._at)):
            raise self._fault(f"expected a value, found {self._found()}")
        if like.end() - like.start() > NUMBER_LIMIT:
            raise self._fault(f"a number of more than {NUMBER_LIMIT} digits")
        number = _NUMBER.match(self._text, self._at)
        if number is None:
            raise self._fault("a number that is not JSON: write it like 12, -0.5 or 1e3")
        self._at = number.end()
        if number.group(1) is None and number.group(2) is None:
            return int(number.group())
        value = float(number.group())
        if value in (float("inf"), float("-inf")):
            raise self._fault("a number too large to hold", like.start())
        return value

    def _found(self) -> str:
        """Name what stands here without quoting it: it may be part of a secret."""
        sign = self._text[self._at : self._at + 1]
        if not sign:
            return "the end of the file"
        if word := _WORD.match(self._text, self._at):
            text = word.group()
            if text in _CONSTANTS:
                return text
            return (
                f"{text}, which is not JSON"
                if text in _FOREIGN
                else "a bare word; texts stand in double quotes"
            )
        if sign in "'‘’“”`":
            return f"{sign}; texts stand in plain double quotes"
        if sign == '"':
            return "text; is a comma or a quote missing before it?"
        if sign.isdigit() or sign == "-":
            return "a number"
        return f"'{sign}'" if sign in "{}[],:" else f"an unexpected character (U+{ord(sign):04X})"

    def _tell_duplicate(self, earlier: Node, key_at: int) -> None:
        lines = self._source.line(earlier.key_at), self._source.line(key_at)
        what = f"stands twice, in lines {lines[0]} and {lines[1]}; the last one counts"
        self._seen.duplicates.append(Oddity(key_at, tuple(self._path), what))


_STRING_FAULTS: Final[Mapping[str, str]] = {
    "Unterminated string starting at": "a text that is never closed",
    "Invalid control character at": 'a line break or tab inside a text: close it with ", or write \\n or \\t',
    "Invalid \\escape": 'an unknown escape: after \\ comes one of " \\ / b f n r t u; a backslash is \\\\',
    "Invalid \\uXXXX escape": "\\u wants four hexadecimal digits",
}
