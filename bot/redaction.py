"""`Redactor`: finds secrets in texts, also in other spellings and encodings."""

import re
import unicodedata
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate

REDACTED = "[redacted]"
PENDING_WINDOW, MAX_PENDING_PARTS = 16, 32  # the window is in lengths of the longest secret
MIN_PART_LENGTH = 16  # of what follows a colon in a token, such as Telegram's
MIN_ENCODED_LENGTH = 8  # the encoding of a shorter secret would be found in ordinary texts
INVISIBLE = (  # the ranges of a character class
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_HIDDEN = re.compile(f"[{INVISIBLE}]")


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
