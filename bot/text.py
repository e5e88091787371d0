"""Pure text functions: sanitise, escape, shorten, redact, and split at graphemes.

`Redactor`: finds secrets in texts, also in other spellings and encodings.

Conversation lines in a prompt that users cannot forge: render and parse.
"""

import re
import unicodedata
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime, tzinfo
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import accumulate
from types import MappingProxyType
from typing import Any, TypeVar

from bot.user_texts import (
    LANGUAGES,
    chosen_language,
    count_text,
    current_language,
    english_text,
    format_seconds,
    list_translations,
    names_ai,
    page_texts,
    translate,
    translate_message,
    use_language,
    user_phrases,
    user_text,
)

REDACTED = "[redacted]"
PENDING_WINDOW, MAX_PENDING_PARTS = 16, 32  # the window is in lengths of the longest secret
MIN_PART_LENGTH = 16  # of what follows a colon in a token, such as Telegram's
MIN_ENCODED_LENGTH = 8  # the encoding of a shorter secret would be found in ordinary texts
INVISIBLE = (  # the ranges of a character class
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
SECRET_KINDS = (  # with expressions for their forms; the pattern has a group for each
    ("a private key", r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]{0,40}-----|\Z)"),
    ("an API key", r"(?<![\w-])(?:sk|gsk|xai|rk|pplx)[-_][\w-]{16,}"),
    ("a Discord token", r"(?<![\w-])[A-Za-z\d][\w-]{22,30}\.[\w-]{6}\.[\w-]{27,45}(?![\w-])"),
    ("a Telegram token", r"(?<![\w-])(?:bot)?\d{6,12}:[\w-]{30,50}(?![\w-])"),
    ("a Slack token", r"(?<![\w-])xox[abeoprs]-[\w-]{10,}"),
    ("a GitHub token", r"(?<![\w-])(?:gh[oprsu]_\w{30,}|github_pat_\w{30,})"),
    ("a Hugging Face token", r"(?<![\w-])hf_[A-Za-z\d]{30,}"),
    ("a Google key", r"(?<![\w-])AIza[\w-]{35}"),
    ("an AWS key", r"(?<![\w-])A(?:KIA|SIA)[A-Z\d]{16}(?!\w)"),
    ("a signed token", r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"),
    ("an address with a password", r"(?<!\w)[A-Za-z][\w+.-]{1,20}://[^\s/:@\"]{0,100}:[^\s/@\"]{1,200}@[^\s\"]*"),
    ("a webhook address", r"(?<!\w)https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/[\w-]+"),
)
SECRET_PATTERN = re.compile("|".join(f"({pattern})" for _, pattern in SECRET_KINDS), re.ASCII)
_HIDDEN = INVISIBLE_CHARACTER = re.compile(f"[{INVISIBLE}]")


@lru_cache(maxsize=64)
def redactor_of(secrets: frozenset[str]) -> "Redactor":
    """Return the redactor of these secrets; blank ones are ignored."""
    return Redactor(secrets)


class Redactor:
    """Finds secrets in a text regardless of case, compatibility forms and invisible characters.

    Found are each secret, its parts behind a colon, and the hexadecimal and base64 form of both.
    """

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = {_fold(secret) for secret in secrets} - {""}
        self._patterns = sorted({_fold(form) for secret in secrets if secret for form in _list_forms(secret)} - {""})
        self.max_length = max(map(len, self._patterns), default=0)

    @cached_property
    def _prefixes(self) -> frozenset[str]:
        first_sizes = {pattern: 1 if pattern in self._secrets else MIN_ENCODED_LENGTH for pattern in self._patterns}
        return frozenset(
            pattern[:size] for pattern, first in first_sizes.items() for size in range(first, len(pattern))
        )

    def redact(self, text: str, before: str = "") -> str:
        """Replace each secret in a text by `[redacted]`; one may have begun in the text `before` it."""
        folded = _fold(text)
        window = _fold(before)[-self.max_length :] + folded if before else folded
        if not any(pattern in window for pattern in self._patterns):
            return text
        offset = len(window) - len(folded)
        spans = [(start - offset, end - offset) for start, end in self._find_spans(window) if end > offset]
        return _replace_spans(text, spans, len(folded))

    def is_clean(self, text: str) -> bool:
        """Return whether a text contains no secret."""
        folded = _fold(text)
        return not any(pattern in folded for pattern in self._patterns)

    def pending_length(self, text: str) -> int:
        """Return how many characters at the end of a text may be the beginning of secrets, one before another.

        Of an encoded one, a few characters at its beginning count for nothing. Only the end of a text is read, and
        only so many beginnings in a row: a model may write one letter without end.
        """
        tail = text[-PENDING_WINDOW * self.max_length :] if self.max_length else ""
        folded = _fold(tail)
        end = len(folded)
        for _ in range(MAX_PENDING_PARTS):
            longest = min(end, self.max_length)
            size = next((size for size in range(longest, 0, -1) if folded[end - size : end] in self._prefixes), 0)
            if not size:
                break
            end -= size
        return len(tail) - _source_index(tail, end) if end < len(folded) else 0

    def _find_spans(self, folded: str) -> list[tuple[int, int]]:
        """Return where secrets are in a folded text; overlapping ones as one span."""
        found = sorted(span for pattern in self._patterns for span in _occurrences(pattern, folded))
        merged: list[tuple[int, int]] = []
        for start, end in found:
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged


def _list_forms(secret: str) -> Iterator[str]:
    parts = [part for part in secret.split(":")[1:] if len(part) >= MIN_PART_LENGTH]
    for value in (secret, *parts):
        yield value
        if len(value) >= MIN_ENCODED_LENGTH:
            data = value.encode()
            yield data.hex()
            for base64 in _base64_forms(data):
                yield base64
                yield base64.replace("+", "-").replace("/", "_")


def _base64_forms(data: bytes) -> Iterator[str]:
    """Yield the characters that stand for `data` alone, at each of the three places in a group of bytes."""
    for shift in range(3):
        encoded = b64encode(bytes(shift) + data).decode().rstrip("=")
        start = (8 * shift + 5) // 6
        yield encoded[start : (8 * (shift + len(data))) // 6]


def _fold(text: str) -> str:
    if text.isascii():
        return text.casefold()
    return unicodedata.normalize("NFKC", _HIDDEN.sub("", text)).casefold()


def _occurrences(pattern: str, text: str) -> Iterator[tuple[int, int]]:
    start = text.find(pattern)
    while start >= 0:
        yield start, start + len(pattern)
        start = text.find(pattern, start + len(pattern))


def _replace_spans(text: str, spans: Sequence[tuple[int, int]], folded_length: int) -> str:
    """Replace the spans of a folded text in the text itself."""
    pieces, position = [], 0
    for first, last in _source_spans(text, spans, folded_length):
        pieces += [text[position:first], REDACTED]
        position = last
    return "".join([*pieces, text[position:]])


def _source_spans(text: str, spans: Sequence[tuple[int, int]], folded_length: int) -> Iterator[tuple[int, int]]:
    if text.isascii():
        yield from ((max(start, 0), end) for start, end in spans)
        return
    ends = list(accumulate(len(_fold(char)) for char in text))
    if ends[-1] == folded_length:
        for start, end in spans:
            yield bisect_right(ends, max(start, 0)), bisect_left(ends, end) + 1
        return
    # Folding has joined characters: the spans are found by trial, which takes too long for each.
    yield _source_index(text, max(spans[0][0], 0)), _source_index(text, spans[-1][1], is_end=True)


def _source_index(text: str, index: int, *, is_end: bool = False) -> int:
    """Return the index in a text whose beginning, folded, has `index` characters; at an end the last such."""
    if text.isascii():
        return index
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + int(is_end)) // 2
        length = len(_fold(text[:middle]))
        if is_end:
            low, high = (middle, high) if length <= index else (low, middle - 1)
        else:
            low, high = (low, middle) if length >= index else (middle + 1, high)
    return low


__all__ = [
    "ANSI_SEQUENCE",
    "LANGUAGES",
    "chosen_language",
    "count_text",
    "current_language",
    "end_at_sentence",
    "english_text",
    "escape_line",
    "format_seconds",
    "grapheme_boundary_before",
    "is_blank",
    "list_translations",
    "name_shape",
    "names_ai",
    "page_texts",
    "redact",
    "sanitize_name",
    "shorten",
    "split_at",
    "strip_terminal_codes",
    "translate",
    "translate_message",
    "truncate_line",
    "use_language",
    "user_phrases",
    "user_text",
]

_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
_SURROGATE = r"\ud800-\udfff"
_EMOJI = (
    r"\xa9\xae\u203c\u2049\u20e3\u2122\u2139\u2190-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    r"\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
# Arabic, Indic, Burmese and Khmer spelling needs joiners.
_JOINING = r"\u0620-\u06ff\u0750-\u077f\u08a0-\u0dff\u1000-\u109f\u1780-\u17b3"

_LETTERS = MappingProxyType({"\\": "\\", "\n": "n", "\r": "r", "\t": "t"})
_CHARACTERS = MappingProxyType({letter: char for char, letter in _LETTERS.items()})

# Letters of other scripts by the Latin letter that they look like, the common ones of Unicode's confusables.txt.
_LOOKALIKES = MappingProxyType(
    {
        "a": "\u0430\u0410\u03b1\u0391\u0251\u13aa\u1d00",
        "b": "\u0432\u0412\u044c\u042c\u03b2\u0392\u0185\u13f4\u0299",
        "c": "\u0441\u0421\u03f2\u03f9\u13df\u1d04",
        "d": "\u0501\u0500\u0111\u0110\u13a0\u1d05",
        "e": "\u0435\u0415\u03b5\u0395\u13ac\u1d07",
        "f": "\u0493\u0492\ua730",
        "g": "\u0261\u050c\u0581\u13c0\u0262",
        "h": "\u04bb\u04ba\u043d\u041d\u03b7\u0397\u0570\u0127\u13bb\u029c",
        "i": "\u0456\u0406\u04cf\u04c0\u03b9\u0399\u0131\u026a\u13a5",
        "j": "\u0458\u0408\u13ab\u1d0a",
        "k": "\u043a\u041a\u03ba\u039a\u13e6\u1d0b",
        "l": "\u0140\u0142\u0141\u13de\u029f",
        "m": "\u043c\u041c\u039c\u13b7\u1d0d",
        "n": "\u043f\u0548\u0578\u039d\u0274",
        "o": "\u043e\u041e\u03bf\u039f\u03c3\u0585\u0555\u00f8\u00d8\u1d0f",
        "p": "\u0440\u0420\u03c1\u03a1\u13e2\u1d18",
        "q": "\u051b\u051a",
        "r": "\u0433\u13a1\u0280",
        "s": "\u0455\u0405\u054f\u13da\ua731",
        "t": "\u0442\u0422\u03c4\u03a4\u0167\u13a2\u1d1b",
        "u": "\u03c5\u057d\u054d\u1d1c",
        "v": "\u03bd\u0475\u0474\u13d9\u1d20",
        "w": "\u051d\u051c\u03c9\u13b3\u1d21",
        "x": "\u0445\u0425\u03c7\u03a7",
        "y": "\u0443\u0423\u04af\u04ae\u03b3\u03a5\u028f",
        "z": "\u0396\u13c3\u1d22",
    }
)
_LATIN_LETTERS = str.maketrans({char: latin for latin, chars in _LOOKALIKES.items() for char in chars})
_SIMILAR_LATIN = str.maketrans({"l": "i", "1": "i", "|": "i", "0": "o"})

R = TypeVar("R")
MAX_DEPTH = 20  # of a JSON value
MAX_CLUSTER_LENGTH = 256
MAX_SPELLING_LENGTH = 100  # of a name that is compared with others
_FLAGS = "".join(map(chr, range(0x1F1E6, 0x1F200)))  # two of them make one flag
_SURROGATES = re.compile(f"[{_SURROGATE}]")
_BLANK = re.compile(rf"[\s{_CONTROL}{INVISIBLE}\u2800]*")
_EXTENDS = re.compile(rf"[{INVISIBLE}\U0001f3fb-\U0001f3ff]")
_PIECE_END = re.compile(r"(?<=[.!?…。！？])[\"'”’»)\]]*(?:\s+|(?<=[。！？]))|\n+")
SENTENCE_END = re.compile(r"(?:[.!?…։؟।。！？][\"'”’»)\]*_~`]*+(?=\s|\Z)|[。！？][」』）”’]*+|\n)")
_SPECIAL_TOKEN = (  # Llama 2, Mistral, Gemma; all newer families, and DeepSeek's wide bar, open with `<|`
    r"<(?=/?s>|</?SYS>>|(?:start|end)_of_turn>)|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_[A-Z]+)\])"
)
_UNSAFE_CHARACTER = re.compile(rf"[\\{_CONTROL}{_SURROGATE}{INVISIBLE}]|(?<=<)[|｜]|{_SPECIAL_TOKEN}")
_VISIBLE_JOINER = re.compile(
    rf"(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])"
    rf"|(?<=[{_EMOJI}0-9#*])[\ufe0e\ufe0f]"
    rf"|(?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}])"
)
_HALF_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:u(?:\{[0-9a-f]*)?)?\Z")
_ESCAPE = re.compile(r"\\(?:([\\nrt])|u\{([0-9a-f]{1,6})\})")

ANSI_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_TERMINAL_CONTROL = re.compile(  # also invisible characters, except those that emoji and some scripts need
    r"[\x00-\x1f\x7f-\x9f\xad\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    r"\U000e0000-\U000e0fff]"
)


def sanitize_text(text: str, limit: int = 65536) -> str:
    """Return a storable text: no NUL, no lone surrogate, at most `limit` characters.

    A text that is cut ends with a marker that contains the length and hash of the original, unless `limit`
    has no room for it.
    """
    if len(text) <= limit and text.isascii() and "\0" not in text:
        return text
    start = text.replace("\0", "")[: 2 * limit + 4]  # of surrogates it takes two to make a character
    start = _replace_surrogates(start)
    if len(start) <= limit:
        return start
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    marker = f"… [cut: {len(text)} characters, sha256 {digest[:12]}]"
    if len(marker) > limit:
        marker = ""
    return start[: grapheme_boundary_before(start, limit - len(marker))] + marker


def sanitize_value(value: Any, limit: int | None = 65536, depth: int = 0) -> Any:
    """Return a JSON value with storable texts of at most `limit` characters (None: as long as they are).

    Names are not cut; values that are nested more than 20 deep become None.
    """
    if isinstance(value, str):
        return sanitize_text(value, len(value) if limit is None else limit)
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        return {sanitize_value(str(k), None): sanitize_value(item, limit, depth + 1) for k, item in value.items()}
    if isinstance(value, list | tuple):
        return [sanitize_value(item, limit, depth + 1) for item in value]
    return value


def sanitize_record(record: R, limits: Mapping[str, int | None]) -> R:
    """Return a dataclass with storable values, as `sanitize_value` does, in the fields that `limits` names.

    Dataclasses in its fields are sanitized in the same way.
    """
    assert is_dataclass(record)
    changed: dict[str, Any] = {}
    for item in fields(record):
        value = getattr(record, item.name)
        sanitized = _sanitize_field(value, item.name, limits)
        if sanitized is not value and sanitized != value:
            changed[item.name] = sanitized
    return replace(record, **changed) if changed else record  # type: ignore[type-var]  # it is a dataclass


def _sanitize_field(value: Any, name: str, limits: Mapping[str, int | None]) -> Any:
    if isinstance(value, tuple):
        return tuple([_sanitize_field(item, name, limits) for item in value]) if value else value
    if name in limits:
        return sanitize_value(value, limits[name])
    return sanitize_record(value, limits) if is_dataclass(value) else value


def is_storable(text: str) -> bool:
    """Return whether a text contains only characters: no NUL, no lone surrogate."""
    return "\0" not in text and (text.isascii() or not _SURROGATES.search(text))


def is_blank(text: str) -> bool:
    """Return whether a reader would see nothing: empty, white space, or only invisible characters."""
    return _BLANK.fullmatch(text) is not None


def invisible_share(text: str) -> float:
    """Return the share of invisible characters (0 to 1), without the joiners that scripts and emoji need."""
    if text.isascii():
        return 0.0
    invisible = sum(1 for match in _HIDDEN.finditer(text) if not _VISIBLE_JOINER.match(text, match.start()))
    return invisible / len(text)


@lru_cache(maxsize=4096)  # the same few names stand in every prompt
def sanitize_name(name: str, limit: int = 64) -> str:
    """Return a display name that is safe in one line of a prompt: no control, no bracket, never empty."""
    visible = _HIDDEN.sub("", _replace_surrogates(name[: 64 * limit]))
    line = " ".join("".join(map(_to_name_char, visible)).split())
    return (line[: grapheme_boundary_before(line, limit)] or line[:limit]).rstrip() or "someone"[:limit]


@lru_cache(maxsize=4096)
def name_shape(name: str) -> str:
    """Return what is equal for names that look alike, whatever script, accents, case and punctuation they have."""
    visible = _HIDDEN.sub("", unicodedata.normalize("NFKD", name[:MAX_SPELLING_LENGTH]))
    latin = visible.translate(_LATIN_LETTERS).casefold().translate(_SIMILAR_LATIN)
    letters = "".join(char for char in latin if char.isalnum()) or "".join(visible.split())
    return letters.replace("rn", "m").replace("vv", "w")


def escape_line(text: str) -> str:
    """Write a text as one line in which nothing is hidden and no model's special token stands.

    Control, invisible and direction-changing characters become `\\n`, `\\t`, `\\r` or `\\u{hex}`. Joiners
    that belong to an emoji or to a script that needs them stay.
    """
    return _UNSAFE_CHARACTER.sub(_escape_match, text)


def truncate_line(text: str, limit: int) -> str:
    """Escape a text as `escape_line` does, in about `limit` characters; a cut text ends with its length."""
    line = escape_line(text[:limit])
    if len(text) <= limit and len(line) <= limit:
        return line
    start = _HALF_ESCAPE.sub(r"\1", line[: grapheme_boundary_before(line, limit)])
    return f"{start}… [cut: {len(text)} characters]"


def unescape_line(line: str) -> str:
    """Return the text that `escape_line` was given; what is no escape stays."""
    return _ESCAPE.sub(_unescape_match, line)


def redact(text: str, secrets: Collection[str]) -> str:
    """Return a text in which each secret is replaced by `[redacted]`, also in other spellings and encodings."""
    return redactor_of(frozenset(secrets)).redact(text)


def strip_terminal_codes(text: str, *, allowed: str = "") -> str:
    """Return a text that is safe in a terminal: no ANSI sequences, other control characters escaped.

    The control characters in `allowed` stay.
    """

    def escape(match: re.Match[str]) -> str:
        char = match[0]
        return char if char in allowed else repr(char)[1:-1]

    return _TERMINAL_CONTROL.sub(escape, ANSI_SEQUENCE.sub("", text))


def find_closest(word: str, options: Iterable[str], *, max_share: float = 1 / 3) -> str | None:
    """Return the option that was probably meant, the one that the fewest edits make of a word; None if none is near.

    An edit adds, removes or replaces a letter, or swaps two; at most `max_share` of the letters are edited. Case, `_`,
    `-` and spaces do not count.
    """
    spellings: dict[str, str] = {}
    for option in options:
        spellings.setdefault(_fold_spelling(option), option)
    match = _closest_spelling(_fold_spelling(word), tuple(spellings), max_share)
    return spellings[match] if match is not None else None


def suggest(word: str, options: Iterable[str], *, start: str = "", otherwise: str = "", quote: str = "'") -> str:
    """Return 'did you mean …?' after `start`, with the option that was probably meant; `otherwise` without one."""
    closest = find_closest(word, options)
    return f"{start}did you mean {quote}{closest}{quote}?" if closest is not None else otherwise


def _fold_spelling(name: str) -> str:
    return re.sub(r"[\s_-]", "", name[:MAX_SPELLING_LENGTH].casefold())


@lru_cache(maxsize=128)  # every start of an agent asks the same of its templates
def _closest_spelling(word: str, spellings: tuple[str, ...], max_share: float) -> str | None:
    closest, fewest = None, len(word) + 1
    for spelling in spellings:
        limit = min(fewest - 1, int(max_share * max(len(word), len(spelling))))
        if abs(len(word) - len(spelling)) <= limit and (edits := _count_edits(word, spelling)) <= limit:
            closest, fewest = spelling, edits
    return closest


def _count_edits(word: str, other: str) -> int:
    """Return how many edits make the other of a word (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        before_that, before, row = before, row, [i]
        for j, other_letter in enumerate(other, 1):
            edits = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other_letter))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == other_letter:
                edits = min(edits, before_that[j - 2] + 1)
            row.append(edits)
    return row[-1]


def end_at_sentence(text: str, max_loss: int) -> str:
    """Return a text that was cut off without its last, incomplete sentence.

    Where that is longer than `max_loss` characters, the end is marked by an ellipsis instead.
    """
    text = text.rstrip()
    ends = [match.end() for match in SENTENCE_END.finditer(text, max(0, len(text) - max_loss))]
    return text[: ends[-1]].rstrip() if ends else f"{text}…"


def shorten(text: str, limit: int) -> str:
    """Return a text as one line of at most `limit` characters, cut between words, for logs and listings."""
    line = " ".join(text.split(maxsplit=max(limit, 0)))
    if len(line) <= limit:
        return line
    if limit < 1:
        return ""
    start = line[: grapheme_boundary_before(line, limit - 1)]
    words, _, rest = start.rpartition(" ")
    if line[len(start)] != " " and len(rest) <= limit // 2:
        start = words or start
    return start.rstrip(" ,;:") + "…"


def shorten_bytes(text: str, max_bytes: int) -> str:
    """Return a text as one line of at most `max_bytes` bytes in UTF-8, cut between words; empty if none fits."""
    line = " ".join(text.split())
    if len(line.encode()) <= max_bytes:
        return line
    room = max_bytes - len("…".encode())
    return shorten(line, len(line.encode()[: max(room, 0)].decode(errors="ignore")))


def _replace_surrogates(text: str) -> str:
    if text.isascii() or not _SURROGATES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def grapheme_boundary_before(text: str, limit: int) -> int:
    """Return the last place at or before `limit` where no character belongs to the one before it.

    A long run of combining marks without such a place is cut through.
    """
    if len(text) <= limit:
        return len(text)
    limit = max(limit, 0)
    for cut in range(limit, max(limit - MAX_CLUSTER_LENGTH, 0), -1):
        if not _continues_cluster(text, cut):
            return cut
    return limit if limit > MAX_CLUSTER_LENGTH else 0


def split_at(text: str, limit: int) -> tuple[str, str]:
    """Return the beginning of a text, at most `limit` characters, and the rest: it ends behind a sentence in its last
    three quarters, else between words, else between characters.
    """
    ends = [match.end() for match in _PIECE_END.finditer(text, limit // 4, limit)]
    end = ends[-1] if ends else text.rfind(" ", 1, limit + 1)
    end = end if end > 0 else grapheme_boundary_before(text, limit) or limit
    return text[:end].rstrip(), text[end:].lstrip()


def _continues_cluster(text: str, cut: int) -> bool:
    before, after = text[cut - 1], text[cut]
    if before == "\u200d" or (before, after) == ("\r", "\n") or _EXTENDS.match(after):
        return True
    if after in _FLAGS:
        flags = cut - len(text[:cut].rstrip(_FLAGS))
        return flags % 2 == 1
    return unicodedata.category(after).startswith("M")


def _to_name_char(char: str) -> str:
    match unicodedata.category(char):
        case "Cc" | "Zl" | "Zp":
            return " "
        case "Cf":
            return ""
        case "Ps":
            return "‹"
        case "Pe":
            return "›"
    match char:
        case "<" | "＜" | "﹤":
            return "‹"
        case ">" | "＞" | "﹥":
            return "›"
        case "\u2800":
            return " "
    return char


def _escape_match(match: re.Match[str]) -> str:
    char = match[0]
    if _VISIBLE_JOINER.match(match.string, match.start()):
        return char
    letter = _LETTERS.get(char)
    return f"\\{letter}" if letter else f"\\u{{{ord(char):x}}}"


def _unescape_match(match: re.Match[str]) -> str:
    letter, code = match.groups()
    if letter:
        return _CHARACTERS[letter]
    number = int(code, 16)
    return chr(number) if number <= 0x10FFFF else match[0]


MAX_MESSAGE_LENGTH, MAX_OPEN_MESSAGE_LENGTH = 4_096, 32_768  # characters of a message in a prompt
_ID = re.compile(r"[0-9A-Fa-f]{1,32}")
_LINE = re.compile(
    r"\[(?P<time>[0-9]{2}:[0-9]{2})\] (?P<name>[^()\[\]]+)"
    r" \((?:id (?P<id>[0-9A-Fa-f]{1,32})|you)\):(?: (?P<text>.*))?"
)
_DAY = re.compile(r"--- [0-9]{4}-[0-9]{2}-[0-9]{2} ---")


@dataclass(frozen=True, slots=True)
class ReactionCount:
    """How many people reacted to a message with one emoji, and the names of some of them."""

    emoji: str
    count: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One message of a conversation; one that `is_open`, to be answered, may be longer.

    `reactions` are the numbers and names of those who reacted, by emoji.
    """

    sent_at: datetime
    name: str
    id: str
    text: str
    is_agent: bool = False
    is_open: bool = False
    reactions: tuple["ReactionCount", ...] = ()
    _rendered: tuple[tzinfo, str] | None = field(default=None, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ResultLine:
    """What an action returned, between the messages of a conversation; only the agent has seen it."""

    sent_at: datetime
    action: str
    text: str
    is_success: bool = True


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """One message parsed from a prompt; an agent's own line has no id."""

    time: str
    name: str
    id: str
    text: str
    is_agent: bool = False


def render_line(line: HistoryLine, zone: tzinfo = UTC) -> str:
    """Return a message as `[12:03] Alice (id 7f3a): Hello`, the agent's own as `[12:04] Ada (you): Hi`.

    Raises ValueError if its time has no zone, or its id is not 1 to 32 hex digits.
    """
    if line._rendered is not None and line._rendered[0] is zone:
        return line._rendered[1]  # callers keep lines: most were in the previous prompt too
    if line.sent_at.tzinfo is None:
        raise ValueError(f"the time of a line needs its zone, got {line.sent_at!r}; pass an aware datetime")
    if not line.is_agent and not _ID.fullmatch(line.id):
        raise ValueError(f"the id of a line is 1 to 32 hex digits, got {line.id!r}")
    mark = "you" if line.is_agent else f"id {line.id}"
    text = truncate_line(line.text, MAX_OPEN_MESSAGE_LENGTH if line.is_open else MAX_MESSAGE_LENGTH)
    rendered = f"[{line.sent_at.astimezone(zone):%H:%M}] {sanitize_name(line.name)} ({mark}): {text}"
    if line.reactions:
        rendered += f"\n{_format_reactions(line.reactions)}"
    object.__setattr__(line, "_rendered", (zone, rendered))
    return rendered


def _format_reactions(reactions: Sequence[ReactionCount]) -> str:
    """Return reactions as a line that no message can contain, because messages have no line breaks."""
    parts = []
    for reaction in reactions:
        names = ", ".join(map(sanitize_name, reaction.names))
        parts.append(f"{sanitize_name(reaction.emoji)} {reaction.count}{f' ({names})' if names else ''}")
    return f"    reactions to it: {'; '.join(parts)}"


def render_result(line: ResultLine, zone: tzinfo = UTC) -> str:
    """Return the result of an action as `[12:04] (your action BOOK returned, shown only to you): table 4`."""
    verb = "returned" if line.is_success else "failed"
    text = truncate_line(line.text, MAX_MESSAGE_LENGTH) or "done"
    return f"[{line.sent_at.astimezone(zone):%H:%M}] (your action {line.action} {verb}, shown only to you): {text}"


def render_history(lines: Sequence[HistoryLine | ResultLine], zone: tzinfo = UTC) -> str:
    """Return messages and results one a line, with a line `--- 2026-11-21 ---` wherever the day changes.

    Times and days are those of the time zone. The reactions to a message are a line behind it.
    """
    rendered = []
    day = None
    for line in lines:
        if (today := line.sent_at.astimezone(zone).date()) != day:
            rendered.append(f"--- {today.isoformat()} ---")
            day = today
        rendered.append(render_line(line, zone) if isinstance(line, HistoryLine) else render_result(line, zone))
    return "\n".join(rendered)


def truncate_history(history: str, max_length: int) -> str:
    """Return a history without its oldest lines, in at most `max_length` characters.

    The newest line and a heading always remain. The first line is preceded by its day.
    """
    lines = history.splitlines()
    if len(history) <= max_length or not lines:
        return history
    start, remaining = len(lines) - 1, max_length - len(lines[-1])
    while start and (remaining := remaining - len(lines[start - 1]) - 1) >= 0:
        start -= 1
    dropped = lines[:start]
    heading = [line for line in dropped[:1] if not (_LINE.fullmatch(line) or _DAY.fullmatch(line))]
    day = [line for line in dropped if _DAY.fullmatch(line)][-1:] if not _DAY.fullmatch(lines[start]) else []
    return "\n".join([*heading, *day, *lines[start:]])


def parse_history(text: str) -> list[ParsedLine]:
    """Return every message line in a prompt, in order: the inverse of `render_history`."""
    matches = map(_LINE.fullmatch, text.splitlines())
    return [
        ParsedLine(
            time=line["time"],
            name=line["name"],
            id=line["id"] or "",
            text=unescape_line(line["text"] or ""),
            is_agent=line["id"] is None,
        )
        for line in matches
        if line
    ]
