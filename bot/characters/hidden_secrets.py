"""`HiddenSecrets`: the text of a character file without its secrets, for editing, and the way back."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final

from bot.characters.json_scanner import Node, scan_json
from bot.characters.report import ReportCollector
from bot.characters.secret_detection import MASK, find_secret_spans, is_placeholder, is_secret_name
from bot.characters.secret_extraction import extract_secrets
from bot.characters.source_text import SourceText, Span
from bot.errors import CharacterError

_PLACEHOLDER: Final = re.compile(
    r'(?P<quote>"?)\[secret (?P<number>\d{1,4})(?: of (?P<version>[0-9a-f]{16}))?\](?P=quote)'
)
_MEMBER: Final = re.compile(r'"([^"\\\r\n]{1,80})"\s{0,9}:\s{0,9}("(?:[^"\\\r\n]|\\.)*"?)')
_NUMBER: Final = re.compile(r"-?[\d.eE+-]+")
_STRING_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True)
class HiddenSecrets:
    """A text in which each secret is replaced by `[secret 1]`, `[secret 2]`, and what stands there in truth.

    Secrets are what the reader of character files takes for one, and `known` values. A text that is no JSON is
    searched by names and patterns only. With a `version` it is `[secret 1 of VERSION]`, so that the secrets of
    several versions of a file can stand in one text.
    """

    text: str
    known: frozenset[str] = frozenset()
    version: str = ""

    @cached_property
    def visible_text(self) -> str:
        """The text without secrets; the same text gives the same numbers."""
        pieces, position = [], 0
        for number, (start, end) in enumerate(self._spans, 1):
            token = f"[secret {number} of {self.version}]" if self.version else f"[secret {number}]"
            token = f'"{token}"' if _is_token(self.text[start:end]) else token
            pieces += [self.text[position:start], token]
            position = end
        return "".join([*pieces, self.text[position:]])

    def restore(self, visible_text: str) -> str:
        """Return an edited text with the secrets of this version in their places again.

        Raises CharacterError for a number that this text does not have.
        """
        return _PLACEHOLDER.sub(self._restore_match, visible_text)

    def _restore_match(self, match: re.Match[str]) -> str:
        if (match["version"] or "") != self.version:
            return match[0]
        number = int(match["number"])
        if not 1 <= number <= len(self._spans):
            raise CharacterError(
                f"[secret {number}] stands for no secret of the file: write the value itself, or remove it"
            )
        start, end = self._spans[number - 1]
        hidden = self.text[start:end]
        if match["quote"]:
            return hidden if _is_token(hidden) else f'"{hidden}"'
        return hidden[1:-1] if hidden.startswith('"') else hidden

    @cached_property
    def _spans(self) -> list[Span]:
        """The places of the secrets, in order and without overlaps."""
        spans: list[Span] = []
        for start, end in sorted(chain(self._token_spans(), self._pattern_spans())):
            if spans and start < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((start, end))
        return spans

    def _token_spans(self) -> Iterator[Span]:
        """Yield the values that the reader of character files removes from the file."""
        source = SourceText("", self.text)
        try:
            root, _ = scan_json(source)
        except CharacterError:
            return
        clean_root, _ = extract_secrets(root, ReportCollector(source))
        clean_values = {leaf.offset: leaf.value for leaf in _leaves(clean_root)}
        for leaf in _leaves(root):
            is_removed = clean_values.get(leaf.offset) in (None, MASK)
            if is_removed and not isinstance(leaf.value, bool | None):
                yield leaf.offset, self._end_of(leaf)

    def _end_of(self, leaf: Node) -> int:
        if isinstance(leaf.value, str):
            return int(_STRING_DECODER.raw_decode(self.text, leaf.offset)[1])
        match = _NUMBER.match(self.text, leaf.offset)
        return match.end() if match else leaf.offset

    def _pattern_spans(self) -> Iterator[Span]:
        """Yield what looks like a secret, values of members that are called like one, and known values."""
        yield from find_secret_spans(self.text)
        yield from (match.span() for match in _PLACEHOLDER.finditer(self.text))
        for match in _MEMBER.finditer(self.text):
            if is_secret_name(match[1]) and len(match[2]) > 2 and not is_placeholder(match[2].strip('"')):
                yield match.span(2)
        for value in self.known:
            for form in {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]} - {""}:
                yield from (match.span() for match in re.finditer(re.escape(form), self.text))


def find_named_versions(visible_text: str) -> set[str]:
    """Return the versions whose secrets a text names."""
    return {match["version"] for match in _PLACEHOLDER.finditer(visible_text) if match["version"]}


def _is_token(text: str) -> bool:
    """Return whether a text is a whole value of JSON."""
    return _NUMBER.fullmatch(text) is not None or (len(text) > 1 and text.startswith('"') and text.endswith('"'))


def _leaves(node: Node) -> Iterator[Node]:
    value = node.value
    if isinstance(value, dict):
        for member in value.values():
            yield from _leaves(member)
    elif isinstance(value, tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield node
