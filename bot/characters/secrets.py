"""Takes the secrets out of a character file before anything else reads it.

`HiddenSecrets`: the text of a character file without its secrets, for editing, and the way back.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, auto
from functools import cached_property
from itertools import chain
from typing import Final

from bot.characters.conversion import FIELDS, FREE_FIELDS, scalar_text
from bot.characters.source import (
    MASK,
    KeyPath,
    Node,
    ReportCollector,
    Scalar,
    Secrets,
    SourceText,
    Span,
    find_secret_spans,
    format_path,
    is_placeholder,
    is_secret_name,
    is_wallet_key,
    mask_secrets,
    scan_json,
    secret_kind,
)
from bot.errors import CharacterError

_SETTING_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_AMBIGUOUS_NAMES = frozenset({"key", "token", "pat", "cookie", "cookies"})
_MIN_SECRET_LENGTH = 8


class _Zone(Enum):
    """How secrets are recognised in a part of the file."""

    PROSE = auto()  # by pattern; masked inside the text
    SETTINGS = auto()  # by pattern or name; the whole value is removed
    SECRETS = auto()  # every value is a secret


class _Rank(IntEnum):
    """Which of several values of one name counts (the lowest), in the order of elizaOS's look-up."""

    SECRETS = 0
    SETTINGS = 1
    SETTINGS_SECRETS = 2
    ELSEWHERE = 3


@dataclass(frozen=True, slots=True)
class _FoundSecret:
    value: str
    rank: _Rank
    offset: int


def extract_secrets(root: Node, collector: ReportCollector) -> tuple[Node, Secrets]:
    """Return the file without secrets, and the secrets; reports name positions, never values."""
    if not isinstance(root.value, dict):
        return root, Secrets({})
    extractor = _SecretExtractor(collector)
    members = {}
    for key, node in root.value.items():
        zone = _Zone.SECRETS if is_secret_name(key) else _Zone.SETTINGS
        clean = extractor.clean(node, (key,), _Zone.PROSE if _is_prose(key) else zone)
        if clean is not None:
            members[key] = clean
    return replace(root, value=members), Secrets({name: secret.value for name, secret in extractor.secrets.items()})


def _is_prose(key: str) -> bool:
    """Return whether a field holds texts; `card` is what a stranger wrote about a card."""
    return key == "card" or (key in FIELDS and FIELDS[key] not in FREE_FIELDS)


class _SecretExtractor:
    """Collects secrets by name and rebuilds the tree without them."""

    def __init__(self, collector: ReportCollector) -> None:
        self._collector = collector
        self.secrets: dict[str, _FoundSecret] = {}

    def clean(self, node: Node, path: KeyPath, zone: _Zone) -> Node | None:
        """Return the node without secrets; None if all of it is secret."""
        if path in (("secrets",), ("settings", "secrets")) and not isinstance(node.value, dict):
            if node.value is not None:
                self._collector.add_problem(node.offset, path, f"expected an object, found {node.kind}")
            return None
        if isinstance(node.value, dict):
            members = {
                key: clean
                for key, member in node.value.items()
                if (clean := self.clean(member, (*path, key), _member_zone(key, member, zone))) is not None
            }
            return None if zone is _Zone.SECRETS else replace(node, value=members)
        if isinstance(node.value, tuple):
            items = tuple(
                self.clean(item, (*path, index), zone) or replace(item, value=MASK)
                for index, item in enumerate(node.value)
            )
            return None if zone is _Zone.SECRETS else replace(node, value=items)
        return self._clean_scalar(node, node.value, path, zone)

    def _clean_scalar(self, node: Node, value: Scalar, path: KeyPath, zone: _Zone) -> Node | None:
        if zone is _Zone.SECRETS:
            self._add_secret(node, path, scalar_text(node) or "")
            return None
        if not isinstance(value, str):
            return node
        if zone is _Zone.PROSE:
            clean, secrets = mask_secrets(value)
            for index, secret in enumerate(secrets):
                self._add_secret(node, path if len(secrets) == 1 else (*path, index), secret, kind=secret_kind(secret))
            return replace(node, value=clean) if secrets else node
        kind = secret_kind(value) or ("a wallet's private key" if is_wallet_key(value) else "")
        if kind:
            self._add_secret(node, path, value, kind=kind)
        return None if kind else node

    def _add_secret(self, node: Node, path: KeyPath, value: str, kind: str = "") -> None:
        value = value.strip()
        if not value:
            return
        if is_placeholder(value):
            message = "holds a placeholder, not a secret; it is ignored: set the real secret in .env or the environment"
            self._collector.add_warning(node.key_offset, path, message)
            return
        name, secret = _setting_name(path), _FoundSecret(value, _rank_of(path), node.key_offset)
        prefix = f"looks like {kind}; " if kind else ""
        self._collector.add_secret(
            node.key_offset, path, f"{prefix}removed from the character; available as the setting {name}"
        )
        earlier = self.secrets.setdefault(name, secret)
        winner = min(earlier, secret, key=lambda candidate: candidate.rank)
        self.secrets[name] = winner
        if earlier.value != value:
            lines = [self._collector.line_of(candidate.offset) for candidate in (earlier, secret, winner)]
            message = f"{name} has two values, in lines {lines[0]} and {lines[1]}; the one in line {lines[2]} is used"
            self._collector.add_warning(node.key_offset, path, message)


def _member_zone(key: str, member: Node, zone: _Zone) -> _Zone:
    if zone is not _Zone.SETTINGS or isinstance(member.value, bool) or not is_secret_name(key):
        return zone
    is_short = isinstance(member.value, str) and len(member.value) < _MIN_SECRET_LENGTH
    return zone if is_short and key.lower() in _AMBIGUOUS_NAMES else _Zone.SECRETS


def _rank_of(path: KeyPath) -> _Rank:
    if path[0] == "secrets":
        return _Rank.SECRETS
    if path[:2] == ("settings", "secrets"):
        return _Rank.SETTINGS_SECRETS
    return _Rank.SETTINGS if path[0] == "settings" and len(path) == 2 else _Rank.ELSEWHERE


def _setting_name(path: KeyPath) -> str:
    """Return the setting's name of a secret: its key if that is such a name and no text's, else its path."""
    for prefix in (("secrets",), ("settings", "secrets"), ("settings",)):
        if path[: len(prefix)] == prefix and len(path) == len(prefix) + 1:
            return str(path[-1])
    last = path[-1]
    if _is_prose(str(path[0])):
        return format_path(path)
    return last if isinstance(last, str) and _SETTING_NAME.fullmatch(last) else format_path(path)


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
            if not is_removed or isinstance(leaf.value, bool | None):
                continue
            if isinstance(leaf.value, str):
                yield leaf.offset, _STRING_DECODER.raw_decode(self.text, leaf.offset)[1]
            elif match := _NUMBER.match(self.text, leaf.offset):
                yield match.span()

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
