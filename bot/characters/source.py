"""A tolerant JSON parser that keeps the position of every value.

Line numbers, JSON paths and error excerpts of a source text.

Detects secrets by name or by pattern; `Secrets` is a mapping that never shows its values.

`ImportReport`, its notes, and the collector that is filled while a file is read.
"""

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from bot.errors import CharacterError, FileProblem
from bot.text import SECRET_KINDS, SECRET_PATTERN

MASK: Final = "••••"

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS: Final = frozenset(
    [
        "secret",
        "secrets",
        "password",
        "passwords",
        "passwd",
        "passphrase",
        "mnemonic",
        "credential",
        "credentials",
        "apikey",
        "apikeys",
        "authtoken",
        "accesstoken",
        "bottoken",
        "privatekey",
        "secretkey",
    ]
)
_SECRET_LAST_WORDS: Final = frozenset(["key", "token", "cookie", "cookies", "pat", "pwd"])
_SECRET_PLURALS: Final = frozenset(["keys", "tokens"])
_WORDS_BEFORE_PLURAL: Final = frozenset(["api", "private", "access", "auth", "bearer", "bot"])
_HARMLESS_PREFIXES: Final = frozenset(
    [
        "public",
        "max",
        "min",
        "stop",
        "pad",
        "bos",
        "eos",
        "special",
        "primary",
        "foreign",
        "sort",
        "cache",
        "hot",
        "idempotency",
    ]
)

_WALLET_KEY: Final = re.compile(r"(?:0x)?[\da-fA-F]{64}|[1-9A-HJ-NP-Za-km-z]{86,90}", re.ASCII)

_PLACEHOLDER: Final = re.compile(
    r"""change[ _-]?(me|this|it)\W* | undefined | null | none | nil | todo | tbd | n/a | fixme | example
    | dummy | placeholder | secret[ _-]?salt | secret | password | redacted | api[ _-]?key | token
    | (sk|pk|gsk|xai|hf|xox[bp])[-_] (proj|ant|or|v1|your|test|api|key|here|[x*.…•<>0_-])*
    | [x*.…•?_-]+ | <[^<>]*> | \[[\w -]*\] | \$\{?\w+\}? | \{\{[^{}]*\}\} | %\w+% | process\.env\b.*
    | (insert|replace|enter|put|add|paste|set)[ _-].*(your|this|here|key|token|secret|password).*
    | my[ _-]?((api|bot|access|secret)[ _-]?)?(key|token|secret|password)
    | your[ _-].* | your(api|key|token|secret|password|bot|discord|telegram|openai)\w*
    | .*[ _-]here | .*[ _-]your[ _-](\w+[ _-])?(key|token|secret|password).*
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_secret_name(name: str) -> bool:
    """Whether a key of that name holds a secret: `OPENAI_API_KEY`, `botToken`, `password`."""
    words = [word.lower() for word in _WORDS.findall(name[-80:])]
    if not words:
        return False
    if not _SECRET_WORDS.isdisjoint(words):
        return True
    before = words[-2] if len(words) > 1 else ""
    if words[-1] in _SECRET_PLURALS:
        return before in _WORDS_BEFORE_PLURAL
    return words[-1] in _SECRET_LAST_WORDS and before not in _HARMLESS_PREFIXES


def secret_kind(text: str) -> str:
    """Return the kind of secret that a text contains ("a Telegram token"), or an empty string."""
    match = SECRET_PATTERN.search(text)
    return SECRET_KINDS[(match.lastindex or 1) - 1][0] if match else ""


def is_wallet_key(text: str) -> bool:
    """Whether a text looks like the private key of a wallet; hashes look the same."""
    return _WALLET_KEY.fullmatch(text.strip()) is not None


def mask_secrets(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a text with every secret masked, and the secrets."""
    secrets = tuple(match.group() for match in SECRET_PATTERN.finditer(text))
    return (SECRET_PATTERN.sub(MASK, text), secrets) if secrets else (text, ())


def find_secret_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each secret that is recognised by its pattern."""
    return (match.span() for match in SECRET_PATTERN.finditer(text))


def is_placeholder(value: str) -> bool:
    """Whether a value is a placeholder: `changeme`, `your_key_here`, `sk-xxxx`."""
    return len(value) <= 200 and _PLACEHOLDER.fullmatch(value.strip()) is not None


class Secrets(Mapping[str, str]):
    """Secrets by name, for settings; the `repr` shows only names."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(f'{name}={MASK}' for name in self._values)})"


_LINE_END = re.compile(r"\r\n?|\n")
_SECRET_KEY = re.compile(
    r"\w{0,40}(?:secret|token|key|passw|cookie|mnemonic|credential)\w{0,40}[\"']?\s{0,9}:", re.IGNORECASE
)
_PLAIN_KEY = re.compile(r"[^\W\d]\w{0,59}", re.ASCII)
_MAX_EXCERPT_LENGTH = 60

Span = tuple[int, int]
KeyPath = tuple[str | int, ...]


def format_path(path: KeyPath | str) -> str:
    """Return a path as text: `messageExamples[0][1].content`; one that is text already as it is."""
    if isinstance(path, str):
        return path
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
                earlier, line_of = members.pop(key), self._source.line_of
                lines = f"{line_of(earlier.key_offset)} and {line_of(key_offset)}"
                message = f"appears twice, in lines {lines}; the last one is used"
                self._observations.duplicates.append(JsonDeviation(key_offset, tuple(self._path), message))
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


MAX_PROBLEMS = 20
MAX_MESSAGE_LENGTH = 400


class Format(StrEnum):
    """Which elizaOS generation a file was written for, or which version of SillyTavern's cards."""

    V0 = "v0"
    V1 = "v1"
    CARD_V1 = "card v1"
    CARD_V2 = "card v2"
    CARD_V3 = "card v3"


@dataclass(frozen=True, slots=True)
class Note:
    """A note about one place of a file: `path` is empty if it concerns the whole file, `column` 0 if not known."""

    path: str
    line: int
    message: str
    column: int = 0

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}" if self.column else f"line {self.line}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        """Return the note as JSON."""
        column = {"column": self.column} if self.column else {}
        return {"path": self.path, "line": self.line, **column, "what": self.message}


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The notes on a file by section, each sorted by line: mapped, kept, ignored, warnings, secrets."""

    format: Format
    mapped: tuple[Note, ...] = ()
    kept: tuple[Note, ...] = ()
    ignored: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()
    secrets: tuple[Note, ...] = ()

    def with_warnings(self, notes: Iterable[Note]) -> "ImportReport":
        """Return the report with further warnings."""
        return replace(self, warnings=tuple(sorted((*self.warnings, *notes), key=_sort_key)))

    def sections(self) -> dict[str, tuple[Note, ...]]:
        """Return the notes by section name, in the order of display."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "format"}

    def format_lines(self) -> list[str]:
        """Return the report as text, one line a note, warnings first."""
        order = {"warnings": "warning", "secrets": "secret", "mapped": "mapped", "ignored": "ignored", "kept": "kept"}
        sections = self.sections()
        return [f"{label:<7}  {note}" for name, label in order.items() for note in sections[name]]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        sections = {name: [note.to_json() for note in notes] for name, notes in self.sections().items()}
        return {"format": str(self.format), **sections}


class ReportCollector:
    """Collects notes and problems of one file: notes become the report, problems one error."""

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._problems: list[tuple[int, FileProblem]] = []
        self._notes: dict[str, list[Note]] = {name: [] for name in ("mapped", "kept", "ignored", "warnings", "secrets")}

    def add_mapped(self, offset: int, path: KeyPath | str, message: str) -> None:
        """Add a note that something was renamed or converted."""
        self._add_note("mapped", offset, path, message)

    def add_preserved(self, offset: int, path: KeyPath | str, message: str) -> None:
        """Add a note that something unknown was preserved."""
        self._add_note("kept", offset, path, message)

    def add_ignored(self, offset: int, path: KeyPath | str, message: str) -> None:
        """Add a note that something known has no effect."""
        self._add_note("ignored", offset, path, message)

    def add_warning(self, offset: int, path: KeyPath | str, message: str) -> None:
        """Add a warning that the author should check."""
        self._add_note("warnings", offset, path, message)

    def add_secret(self, offset: int, path: KeyPath | str, message: str) -> None:
        """Add a note that a secret was found."""
        self._add_note("secrets", offset, path, message)

    def add_problem(self, offset: int, path: KeyPath | str, message: str) -> None:
        """Add a problem that makes the file unusable."""
        line, column = self._source.position_of(offset)
        self._problems.append((offset, FileProblem(clean_message(message), line, column, format_path(path))))

    def line_of(self, offset: int) -> int:
        """Return the line number of an offset."""
        return self._source.line_of(offset)

    def raise_problems(self) -> None:
        """Raise CharacterError with the first twenty problems, if there are any."""
        if not self._problems:
            return
        ordered = sorted(self._problems, key=lambda item: (item[0], item[1].path, item[1].message))
        texts = [f"{self._source.format_location(offset)}: {item.path}: {item.message}" for offset, item in ordered]
        more = len(texts) - MAX_PROBLEMS
        rest = [f"{self._source.name}: and {more} more"] if more > 0 else []
        problems = [problem for _, problem in ordered[:MAX_PROBLEMS]]
        raise CharacterError("\n".join([*texts[:MAX_PROBLEMS], *rest]), problems)

    def build_report(self, format: Format) -> ImportReport:
        """Return the report with each section sorted by line."""
        sections = {name: tuple(sorted(notes, key=_sort_key)) for name, notes in self._notes.items()}
        return ImportReport(format, **sections)

    def _add_note(self, section: str, offset: int, path: KeyPath | str, message: str) -> None:
        self._notes[section].append(Note(format_path(path), self._source.line_of(offset), clean_message(message)))


def _sort_key(note: Note) -> tuple[int, str, str]:
    return note.line, note.path, note.message


def clean_message(message: str) -> str:
    """Truncate a message and remove terminal codes: it may quote the file."""
    return printable(message[:MAX_MESSAGE_LENGTH])
