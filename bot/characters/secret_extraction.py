"""Takes the secrets out of a character file before anything else looks at it."""

import re
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, auto

from bot.characters.elizaos_names import FIELDS, FREE_FIELDS
from bot.characters.json_scanner import Node, Scalar
from bot.characters.report import Findings
from bot.characters.secret_detection import (
    MASK,
    Secrets,
    is_placeholder,
    looks_like_wallet_key,
    looks_secret,
    names_a_secret,
    take_secrets,
)
from bot.characters.source_text import Path, path_text

_SETTING_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_BARE_NAMES = frozenset({"key", "token", "pat", "cookie", "cookies"})
_BARE_LENGTH = 8


class _Zone(Enum):
    """How secrets are told in a part of the file."""

    PROSE = auto()  # by their looks; masked inside the text
    SETTINGS = auto()  # by their looks or by their name; taken out whole
    SECRETS = auto()  # everything is one


class _Rank(IntEnum):
    """Which of several values of one name counts, the first one: as elizaOS looks settings up."""

    SECRETS = 0
    SETTINGS = 1
    SETTINGS_SECRETS = 2
    ELSEWHERE = 3


@dataclass(frozen=True, slots=True)
class _Found:
    value: str
    rank: _Rank
    at: int


def quarantine(root: Node, findings: Findings) -> tuple[Node, Secrets]:
    """Give the file without its secrets, and the secrets; the findings name places, never values."""
    if not isinstance(root.value, dict):
        return root, Secrets({})
    ward = _Ward(findings)
    members = {}
    for key, node in root.value.items():
        clean = ward.clean(node, (key,), _zone(key))
        if clean is not None:
            members[key] = clean
    return replace(root, value=members), ward.secrets()


def _zone(key: str) -> _Zone:
    if key in FIELDS and FIELDS[key] not in FREE_FIELDS:
        return _Zone.PROSE
    return _Zone.SECRETS if names_a_secret(key) else _Zone.SETTINGS


class _Ward:
    """Collects secrets by name while the tree is rebuilt without them."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._found: dict[str, _Found] = {}

    def secrets(self) -> Secrets:
        return Secrets({name: found.value for name, found in self._found.items()})

    def clean(self, node: Node, path: Path, zone: _Zone) -> Node | None:
        """Give the node without secrets; None where nothing of it may stay."""
        if path in (("secrets",), ("settings", "secrets")) and not isinstance(node.value, dict):
            if node.value is not None:
                self._findings.problem(node.at, path, f"expected an object, found {node.kind}")
            return None
        if isinstance(node.value, dict):
            return self._clean_object(node, node.value, path, zone)
        if isinstance(node.value, tuple):
            return self._clean_list(node, node.value, path, zone)
        return self._clean_scalar(node, node.value, path, zone)

    def _clean_object(self, node: Node, members: dict[str, Node], path: Path, zone: _Zone) -> Node | None:
        kept = {}
        for key, member in members.items():
            clean = self.clean(member, (*path, key), _member_zone(key, member, zone))
            if clean is not None:
                kept[key] = clean
        return None if zone is _Zone.SECRETS else replace(node, value=kept)

    def _clean_list(self, node: Node, items: tuple[Node, ...], path: Path, zone: _Zone) -> Node | None:
        kept = []
        for index, item in enumerate(items):
            clean = self.clean(item, (*path, index), zone)
            kept.append(replace(item, value=MASK) if clean is None else clean)
        return None if zone is _Zone.SECRETS else replace(node, value=tuple(kept))

    def _clean_scalar(self, node: Node, value: Scalar, path: Path, zone: _Zone) -> Node | None:
        if zone is _Zone.PROSE:
            return self._clean_prose(node, value, path) if isinstance(value, str) else node
        if zone is _Zone.SECRETS:
            self._take(node, path, _as_text(value))
            return None
        if isinstance(value, str):
            why = looks_secret(value) or ("a wallet's private key" if looks_like_wallet_key(value) else "")
            if why:
                self._take(node, path, value, why=why)
                return None
        return node

    def _clean_prose(self, node: Node, text: str, path: Path) -> Node:
        clean, taken = take_secrets(text)
        for index, secret in enumerate(taken):
            self._take(node, path if len(taken) == 1 else (*path, index), secret, why=looks_secret(secret))
        return replace(node, value=clean) if taken else node

    def _take(self, node: Node, path: Path, value: str, why: str = "") -> None:
        value = value.strip()
        if not value:
            return
        if is_placeholder(value):
            what = (
                "holds a placeholder, not a secret: passed over; set the real one in .env or the environment"
            )
            self._findings.warn(node.key_at, path, what)
            return
        name, found = _name(path), _Found(value, _rank(path), node.key_at)
        looks = f"looks like {why}; " if why else ""
        self._findings.secret(
            node.key_at, path, f"{looks}taken out of the character; settings find it as {name}"
        )
        earlier = self._found.setdefault(name, found)
        winner = min(earlier, found, key=lambda each: each.rank)
        self._found[name] = winner
        if earlier.value != value:
            lines = [self._findings.line(each.at) for each in (earlier, found, winner)]
            what = (
                f"{name} has two values, in lines {lines[0]} and {lines[1]}; that of line {lines[2]} counts"
            )
            self._findings.warn(node.key_at, path, what)


def _member_zone(key: str, member: Node, zone: _Zone) -> _Zone:
    if zone is not _Zone.SETTINGS or isinstance(member.value, bool) or not names_a_secret(key):
        return zone
    is_short = isinstance(member.value, str) and len(member.value) < _BARE_LENGTH
    return zone if is_short and key.lower() in _BARE_NAMES else _Zone.SECRETS


def _rank(path: Path) -> _Rank:
    if path[0] == "secrets":
        return _Rank.SECRETS
    if path[:2] == ("settings", "secrets"):
        return _Rank.SETTINGS_SECRETS
    return _Rank.SETTINGS if path[0] == "settings" and len(path) == 2 else _Rank.ELSEWHERE


def _name(path: Path) -> str:
    """Name a secret as a settings look-up would: by its key where that is a setting's name."""
    for prefix in (("secrets",), ("settings", "secrets"), ("settings",)):
        if path[: len(prefix)] == prefix and len(path) == len(prefix) + 1:
            return str(path[-1])
    last = path[-1]
    return last if isinstance(last, str) and _SETTING_NAME.fullmatch(last) else path_text(path)


def _as_text(value: Scalar) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
