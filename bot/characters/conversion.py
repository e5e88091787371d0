"""From a character file of either generation to the fields of `Character`."""

from collections.abc import Callable
from difflib import get_close_matches
from itertools import islice
from typing import Final
from uuid import UUID

from pydantic import JsonValue

from bot.characters.elizaos_names import (
    FIELDS,
    KEYS,
    PLATFORM_SETTINGS,
    SETTINGS_WITHOUT_EFFECT,
    STYLE_KEYS,
    V0_KEYS,
    WITHOUT_EFFECT,
    adapter_name,
)
from bot.characters.field_readers import Examples, Shapes, is_empty, plain, setting_text
from bot.characters.json_scanner import Node
from bot.characters.report import Findings, Format
from bot.characters.source_text import Path
from bot.domain.ids import derived_id

Fields = dict[str, object]

_SUGGESTION_LIMIT: Final = 40
_LONGEST_KEY: Final = 40


def convert(root: Node, findings: Findings) -> tuple[Fields, Format]:
    """Give the fields of a character, and which generation the file is of."""
    return _Conversion(findings).convert(root)


class _Conversion:
    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._shapes = shapes = Shapes(findings)
        self._examples = Examples(shapes, findings)
        self._suggested = 0
        self._readers: dict[str, Callable[[Node, Path], object]] = {
            "id": self._id,
            "name": shapes.text,
            "username": shapes.text,
            "system": shapes.text,
            "templates": self._templates,
            "bio": shapes.texts,
            "lore": self._lore,
            "message_examples": self._examples.read,
            "post_examples": shapes.texts,
            "topics": shapes.texts,
            "adjectives": shapes.texts,
            "knowledge": self._knowledge,
            "plugins": shapes.texts,
            "adapters": self._adapters,
            "settings": self._settings,
            "style": self._style,
            "model_provider": self._model_provider,
            "client_config": self._object,
            "twitter_profile": self._object,
            "nft": self._object,
            "people": shapes.texts,
            "extends": shapes.texts,
        }

    def convert(self, root: Node) -> tuple[Fields, Format]:
        if not isinstance(root.value, dict):
            self._findings.problem(root.at, "the file", f"expected an object, found {root.kind}")
            return {}, Format.V1
        fields: Fields = {}
        members = root.value
        for key, node in members.items():
            if key in WITHOUT_EFFECT and not is_empty(node):
                self._findings.ignored(node.key_at, (key,), f"has no effect: {WITHOUT_EFFECT[key]}")
            if key in FIELDS:
                self._known(key, node, fields)
            else:
                self._unknown(key, node, fields)
        self._require_name(root, members, fields)
        self._platform_settings(members, fields)
        is_old = self._examples.is_old or not V0_KEYS.isdisjoint(members)
        return fields, Format.V0 if is_old else Format.V1

    def _known(self, key: str, node: Node, fields: Fields) -> None:
        name = FIELDS[key]
        value = self._readers[name](node, (key,))
        if name in fields:
            self._findings.warn(node.key_at, (key,), "stands twice, under two spellings; the last one counts")
        fields[name] = value

    def _unknown(self, key: str, node: Node, fields: Fields) -> None:
        fields[key] = plain(node)
        if key not in WITHOUT_EFFECT:
            self._findings.kept(node.key_at, (key,), "is not a field of a character; kept as it is")
            self._suggest(key, KEYS, node, (key,))

    def _suggest(self, key: str, names: tuple[str, ...], node: Node, path: Path) -> None:
        """Warn where a key is nearly one that would have an effect."""
        if self._suggested >= _SUGGESTION_LIMIT or len(key) > _LONGEST_KEY:
            return
        self._suggested += 1
        if near := _nearest(key, names):
            self._findings.warn(node.key_at, path, f"is not a field; did you mean '{near}'?")

    def _require_name(self, root: Node, members: dict[str, Node], fields: Fields) -> None:
        if str(fields.get("name", "")).strip():
            return
        if "name" in members:
            if isinstance(members["name"].value, str | None):
                self._findings.problem(members["name"].at, ("name",), "is empty; every character has a name")
            return
        short = (key for key in islice(members, _SUGGESTION_LIMIT) if len(key) <= _LONGEST_KEY)
        near = next((key for key in short if _nearest(key, ("name",))), "")
        hint = f"; did you mean it by '{near}'?" if near else ""
        self._findings.problem(root.at, ("name",), f"is missing; every character has a name{hint}")

    def _id(self, node: Node, path: Path) -> UUID | None:
        text = self._shapes.text(node, path).strip()
        if not text:
            return None
        try:
            return UUID(text)
        except ValueError:
            self._findings.warn(node.key_at, path, "is not a UUID; one is derived from it, always the same")
            return derived_id("character", text)

    def _templates(self, node: Node, path: Path) -> dict[str, str]:
        members = self._shapes.mapping(node, path)
        return {key: self._shapes.text(member, (*path, key)) for key, member in members.items()}

    def _object(self, node: Node, path: Path) -> JsonValue:
        self._shapes.mapping(node, path)
        return plain(node) or {}

    def _lore(self, node: Node, path: Path) -> tuple[str, ...]:
        lore = self._shapes.texts(node, path)
        if lore:
            self._findings.mapped(node.key_at, path, "kept as lore, and told after the bio")
        return lore

    def _model_provider(self, node: Node, path: Path) -> str:
        provider = self._shapes.text(node, path).strip().lower()
        if provider:
            self._findings.ignored(node.key_at, path, "the model plugin whose key or server is set is used")
        return provider

    def _adapters(self, node: Node, path: Path) -> tuple[str, ...]:
        names = self._shapes.texts(node, path)
        adapters = tuple(dict.fromkeys(name for name in map(adapter_name, names) if name))
        if path == ("clients",):
            read = ", ".join(adapters) or "none named, so wherever a token is set"
            self._findings.mapped(node.key_at, path, f"read as adapters: {read}")
        return adapters

    def _settings(self, node: Node, path: Path) -> JsonValue:
        for key, member in self._shapes.mapping(node, path).items():
            if key in SETTINGS_WITHOUT_EFFECT and not is_empty(member):
                reason = SETTINGS_WITHOUT_EFFECT[key]
                self._findings.ignored(member.key_at, (*path, key), f"has no effect: {reason}")
        return plain(node) or {}

    def _style(self, node: Node, path: Path) -> Fields:
        if isinstance(node.value, str | tuple):
            self._findings.mapped(node.key_at, path, f"{node.kind} read as style.all")
            return {"all": self._shapes.texts(node, path)}
        style: Fields = {}
        for key, member in self._shapes.mapping(node, path).items():
            if key in STYLE_KEYS:
                style[key] = self._shapes.texts(member, (*path, key))
            else:
                style[key] = plain(member)
                self._findings.kept(member.key_at, (*path, key), "is not a part of style; kept as it is")
                self._suggest(key, STYLE_KEYS, member, (*path, key))
        return style

    def _knowledge(self, node: Node, path: Path) -> tuple[Fields, ...]:
        if not isinstance(node.value, tuple):
            return tuple({"content": text} for text in self._shapes.texts(node, path))
        items = enumerate(node.value)
        return tuple(
            self._knowledge_item(item, (*path, index)) for index, item in items if not is_empty(item)
        )

    def _knowledge_item(self, node: Node, path: Path) -> Fields:
        if not isinstance(node.value, dict):
            return {"content": self._shapes.text(node, path)}
        item: Fields = {}
        for key, member in node.value.items():
            if key in ("id", "content", "path", "directory"):
                item[key] = self._shapes.text(member, (*path, key))
            else:
                item[key] = self._shapes.flag(member, (*path, key)) if key == "shared" else plain(member)
        if not (item.get("content") or item.get("path") or item.get("directory")):
            self._findings.warn(
                node.at, path, "names neither content, path nor directory; nothing is learnt from it"
            )
        return item

    def _platform_settings(self, members: dict[str, Node], fields: Fields) -> None:
        """Carry over what old files say of a platform, allow-lists above all, to its settings."""
        settings = fields.get("settings", {})
        if not isinstance(settings, dict):
            return
        for key in ("clientConfig", "settings"):
            platforms = members[key].value if key in members else None
            for platform, node in platforms.items() if isinstance(platforms, dict) else ():
                if isinstance(node.value, dict):
                    self._platform(platform, node.value, (key, platform), settings)
                elif key == "clientConfig":
                    self._findings.ignored(node.key_at, (key, platform), "has no effect here")
        if settings:
            fields["settings"] = settings

    def _platform(
        self, platform: str, members: dict[str, Node], path: Path, settings: dict[str, JsonValue]
    ) -> None:
        for key, node in members.items():
            name = PLATFORM_SETTINGS.get((platform, key))
            if name is None:
                if path[0] == "clientConfig":
                    self._findings.ignored(node.key_at, (*path, key), "has no counterpart here")
            elif name in settings:
                self._findings.ignored(node.key_at, (*path, key), f"settings.{name} says it already")
            elif not is_empty(node):
                settings[name] = setting_text(node)
                self._findings.mapped(node.key_at, (*path, key), f"read as the setting {name}")


def _nearest(key: str, names: tuple[str, ...]) -> str:
    """Give the name that a misspelt key is most like, if it is like one."""
    by_lower = {name.lower(): name for name in names}
    near = get_close_matches(key.lower().replace("_", ""), by_lower, n=1, cutoff=0.82)
    return by_lower[near[0]] if near else ""
