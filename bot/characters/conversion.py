"""Converts a character file of either elizaOS generation to the fields of `Character`."""

from collections.abc import Callable
from itertools import islice
from typing import Final
from uuid import UUID

from pydantic import JsonValue

from bot.characters.elizaos_names import (
    FIELDS,
    KEYS,
    KNOWLEDGE_ALIASES,
    PLATFORM_SETTINGS,
    SETTINGS_WITHOUT_EFFECT,
    STYLE_KEYS,
    V0_KEYS,
    WITHOUT_EFFECT,
    to_adapter_name,
)
from bot.characters.field_readers import ExampleReader, FieldReader, is_empty, to_json, to_setting
from bot.characters.json_scanner import Node
from bot.characters.report import Format, ReportCollector
from bot.characters.source_text import Path
from bot.domain.character import AVATAR_SETTING
from bot.domain.ids import derived_id
from bot.text import find_closest, suggest

Fields = dict[str, object]

_SUGGESTION_LIMIT: Final = 40
_MAX_KEY_LENGTH: Final = 40


def convert(root: Node, collector: ReportCollector) -> tuple[Fields, Format]:
    """Return the fields of a character and the generation of the file."""
    return _Conversion(collector).convert(root)


class _Conversion:
    def __init__(self, collector: ReportCollector) -> None:
        self._collector = collector
        self._reader = reader = FieldReader(collector)
        self._examples = ExampleReader(reader, collector)
        self._suggestion_count = 0
        self._readers: dict[str, Callable[[Node, Path], object]] = {
            "id": self._read_id,
            "name": reader.text,
            "username": reader.text,
            "system": reader.text,
            "templates": self._read_templates,
            "bio": reader.texts,
            "lore": self._read_lore,
            "message_examples": self._examples.read,
            "post_examples": reader.texts,
            "topics": reader.texts,
            "adjectives": reader.texts,
            "suggestions": self._read_suggestions,
            "picture": self._read_picture,
            "greetings": reader.texts,
            "knowledge": self._read_knowledge,
            "plugins": self._read_plugins,
            "adapters": self._read_adapters,
            "settings": self._read_settings,
            "style": self._read_style,
            "model_provider": self._read_model_provider,
            "client_config": self._read_object,
            "twitter_profile": self._read_object,
            "nft": self._read_object,
            "people": reader.texts,
            "extends": reader.texts,
        }

    def convert(self, root: Node) -> tuple[Fields, Format]:
        if not isinstance(root.value, dict):
            self._collector.add_problem(root.offset, "the file", f"expected an object, found {root.kind}")
            return {}, Format.V1
        fields: Fields = {}
        members = root.value
        for key, node in members.items():
            if key in WITHOUT_EFFECT and not is_empty(node):
                self._collector.add_ignored(node.key_offset, (key,), f"has no effect: {WITHOUT_EFFECT[key]}")
            if key in FIELDS:
                self._read_known_field(key, node, fields)
            else:
                self._preserve_unknown_field(key, node, fields)
        self._check_name(root, members, fields)
        self._convert_platform_settings(members, fields)
        is_v0 = self._examples.is_v0 or not V0_KEYS.isdisjoint(members)
        return fields, Format.V0 if is_v0 else Format.V1

    def _read_known_field(self, key: str, node: Node, fields: Fields) -> None:
        name = FIELDS[key]
        value = self._readers[name](node, (key,))
        if name in fields:
            self._collector.add_warning(
                node.key_offset, (key,), "appears twice, under two spellings; the last one is used"
            )
        fields[name] = value

    def _preserve_unknown_field(self, key: str, node: Node, fields: Fields) -> None:
        fields[key] = to_json(node)
        if key not in WITHOUT_EFFECT:
            self._collector.add_preserved(node.key_offset, (key,), "is not a field of a character; kept unchanged")
            self._suggest(key, KEYS, node, (key,))

    def _suggest(self, key: str, names: tuple[str, ...], node: Node, path: Path) -> None:
        """Warn about a key that resembles a known one."""
        if self._suggestion_count >= _SUGGESTION_LIMIT or len(key) > _MAX_KEY_LENGTH:
            return
        self._suggestion_count += 1
        if hint := suggest(key, names, start="is not a field; "):
            self._collector.add_warning(node.key_offset, path, hint)

    def _check_name(self, root: Node, members: dict[str, Node], fields: Fields) -> None:
        if str(fields.get("name", "")).strip():
            return
        if "name" in members:
            if isinstance(members["name"].value, str | None):
                self._collector.add_problem(members["name"].offset, ("name",), "is empty; every character has a name")
            return
        short_keys = (key for key in islice(members, _SUGGESTION_LIMIT) if len(key) <= _MAX_KEY_LENGTH)
        suggestion = next((key for key in short_keys if find_closest(key, ("name",))), "")
        hint = f"; did you mean it with '{suggestion}'?" if suggestion else ""
        self._collector.add_problem(root.offset, ("name",), f"is missing; every character has a name{hint}")

    def _read_id(self, node: Node, path: Path) -> UUID | None:
        text = self._reader.text(node, path).strip()
        if not text:
            return None
        try:
            return UUID(text)
        except ValueError:
            self._collector.add_warning(node.key_offset, path, "is not a UUID; a UUID is derived from it")
            return derived_id("character", text)

    def _read_templates(self, node: Node, path: Path) -> dict[str, str]:
        members = self._reader.mapping(node, path)
        return {key: self._reader.text(member, (*path, key)) for key, member in members.items()}

    def _read_suggestions(self, node: Node, path: Path) -> tuple[str, ...]:
        if isinstance(node.value, dict):  # of another tool: older versions kept it
            self._collector.add_ignored(node.key_offset, path, "has no effect: it is an object, not a list of texts")
            return ()
        return self._reader.texts(node, path)

    def _read_picture(self, node: Node, path: Path) -> str:
        if isinstance(node.value, dict | tuple):
            self._collector.add_ignored(node.key_offset, path, "has no effect: name one file or address")
            return ""
        return self._reader.text(node, path)

    def _read_object(self, node: Node, path: Path) -> JsonValue:
        self._reader.mapping(node, path)
        return to_json(node) or {}

    def _read_lore(self, node: Node, path: Path) -> tuple[str, ...]:
        lore = self._reader.texts(node, path)
        if lore:
            self._collector.add_mapped(node.key_offset, path, "kept as lore; added to the prompt after the bio")
        return lore

    def _read_model_provider(self, node: Node, path: Path) -> str:
        provider = self._reader.text(node, path).strip().lower()
        if provider:
            self._collector.add_ignored(
                node.key_offset, path, "has no effect: the model plugin whose key or server is set is used"
            )
        return provider

    def _read_plugins(self, node: Node, path: Path) -> tuple[str, ...]:
        """Read the names of plugins; of an object the name, else the package."""
        if not isinstance(node.value, tuple) or not any(isinstance(item.value, dict) for item in node.value):
            return self._reader.texts(node, path)
        names = [self._read_plugin(item, (*path, index)) for index, item in enumerate(node.value)]
        return tuple(filter(None, names))

    def _read_plugin(self, node: Node, path: Path) -> str:
        if not isinstance(node.value, dict):
            return self._reader.text(node, path)
        for key in ("name", "package"):
            if key in node.value and (name := self._reader.text(node.value[key], (*path, key)).strip()):
                self._collector.add_mapped(node.offset, path, f"an object read as its {key}, {name}")
                return name
        self._collector.add_problem(node.offset, path, "is an object without a name; write the plugin's name")
        return ""

    def _read_adapters(self, node: Node, path: Path) -> tuple[str, ...]:
        names = self._reader.texts(node, path)
        adapters = tuple(dict.fromkeys(name for name in map(to_adapter_name, names) if name))
        if path == ("clients",):
            listed = ", ".join(adapters) or "none named, so every platform with a token"
            self._collector.add_mapped(node.key_offset, path, f"read as adapters: {listed}")
        return adapters

    def _read_settings(self, node: Node, path: Path) -> JsonValue:
        for key, member in self._reader.mapping(node, path).items():
            if key in SETTINGS_WITHOUT_EFFECT and not is_empty(member):
                reason = SETTINGS_WITHOUT_EFFECT[key]
                self._collector.add_ignored(member.key_offset, (*path, key), f"has no effect: {reason}")
            elif key == AVATAR_SETTING and isinstance(member.value, str) and member.value.strip():
                self._collector.add_mapped(member.key_offset, (*path, key), "read as the picture, where none is named")
        return to_json(node) or {}

    def _read_style(self, node: Node, path: Path) -> Fields:
        if isinstance(node.value, str | tuple):
            self._collector.add_mapped(node.key_offset, path, f"{node.kind} read as style.all")
            return {"all": self._reader.texts(node, path)}
        style: Fields = {}
        for key, member in self._reader.mapping(node, path).items():
            if key in STYLE_KEYS:
                style[key] = self._reader.texts(member, (*path, key))
            else:
                style[key] = to_json(member)
                self._collector.add_preserved(member.key_offset, (*path, key), "is not a part of style; kept unchanged")
                self._suggest(key, STYLE_KEYS, member, (*path, key))
        return style

    def _read_knowledge(self, node: Node, path: Path) -> tuple[Fields, ...]:
        if not isinstance(node.value, tuple):
            return tuple({"content": text} for text in self._reader.texts(node, path))
        items = enumerate(node.value)
        return tuple(self._read_knowledge_item(item, (*path, index)) for index, item in items if not is_empty(item))

    def _read_knowledge_item(self, node: Node, path: Path) -> Fields:
        if not isinstance(node.value, dict):
            return {"content": self._reader.text(node, path)}
        item: Fields = {}
        for key, member in node.value.items():
            name = KNOWLEDGE_ALIASES.get(key, key)
            if name in ("id", "content", "path", "directory"):
                item[name] = self._reader.text(member, (*path, key))
            elif name in ("keys", "secondary_keys"):
                item[name] = self._reader.texts(member, (*path, key))
            elif name in ("shared", "always", "case_sensitive"):
                item[name] = self._reader.flag(member, (*path, key))
            else:
                item[name] = to_json(member)
        if not (item.get("content") or item.get("path") or item.get("directory")):
            self._collector.add_warning(node.offset, path, "has neither content, path nor directory; it is ignored")
        return item

    def _convert_platform_settings(self, members: dict[str, Node], fields: Fields) -> None:
        """Convert platform options of old files, such as allow-lists, to settings."""
        settings = fields.get("settings", {})
        if not isinstance(settings, dict):
            return
        for key in ("clientConfig", "settings"):
            platforms = members[key].value if key in members else None
            for platform, node in platforms.items() if isinstance(platforms, dict) else ():
                if isinstance(node.value, dict):
                    self._convert_platform(platform, node.value, (key, platform), settings)
                elif key == "clientConfig":
                    self._collector.add_ignored(node.key_offset, (key, platform), "has no effect here")
        if settings:
            fields["settings"] = settings

    def _convert_platform(
        self, platform: str, members: dict[str, Node], path: Path, settings: dict[str, JsonValue]
    ) -> None:
        for key, node in members.items():
            name = PLATFORM_SETTINGS.get((platform, key))
            if name is None:
                if path[0] == "clientConfig":
                    self._collector.add_ignored(node.key_offset, (*path, key), "has no counterpart here")
            elif name in settings:
                self._collector.add_ignored(
                    node.key_offset, (*path, key), f"settings.{name} is set already and is used"
                )
            elif not is_empty(node):
                settings[name] = to_setting(node)
                self._collector.add_mapped(node.key_offset, (*path, key), f"read as the setting {name}")
