"""Converts a character file of either elizaOS generation to the fields of `Character`.

Known keys, v0 keys, platform and adapter names of elizaOS.

Reads values in the type that their field needs, including example conversations.
"""

import re
from collections.abc import Callable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final
from uuid import UUID

from pydantic import JsonValue, ValidationError

from bot.characters.source import Format, KeyPath, Node, ReportCollector
from bot.domain.character import AVATAR_SETTING, Character, ContentRating, KnowledgeItem, Style
from bot.domain.ids import derived_id
from bot.domain.instructions import INSTRUCTION_KEYS, USAGE, RoomInstructions
from bot.text import find_closest, suggest

PATH_STARTS: Final = (".", "/", "~")  # of names of plugins and adapters that are paths
V0_KEYS: Final = frozenset(
    {"clients", "modelProvider", "lore", "people", "clientConfig", "twitterProfile", "nft", "extends"}
)

WITHOUT_EFFECT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "imageModelProvider": "images come from whichever model plugin offers them",
        "imageVisionModelProvider": "pictures are described by whichever model plugin offers it",
        "modelEndpointOverride": "set OPENAI_BASE_URL in settings instead",
        "twitterProfile": "the account of the X keys is used",
        "instagramProfile": "there is no Instagram here",
        "simsaiProfile": "there is no SimsAI here",
        "twitterSpaces": "there is no voice on X here",
        "nft": "no NFTs are made here",
        "people": "people are stored when they first write",
        "extends": "a character cannot extend another; copy the fields that it should inherit",
        "voice": "set VOICE_REPLIES, and the voice of the model plugin, such as OPENAI_TTS_VOICE",
    }
)

SETTINGS_WITHOUT_EFFECT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "voice": "set VOICE_REPLIES, and the voice of the model plugin, such as OPENAI_TTS_VOICE",
        "model": "set the model plugin's own name, such as OPENAI_LARGE_MODEL and OPENAI_SMALL_MODEL",
        "embeddingModel": "the model plugin chooses it",
        "modelConfig": "the model plugin chooses them",
        "imageSettings": "set the model plugin's own names",
        "ragKnowledge": "knowledge in the file itself is always in the prompt",
        "chains": "the plugins evm and solana are set by variables of the operator",
        "intiface": "there is no such client here",
        "buttplug": "there is no such client here",
    }
)

PLATFORM_SETTINGS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("discord", "shouldIgnoreBotMessages"): "DISCORD_SHOULD_IGNORE_BOT_MESSAGES",
        ("discord", "shouldIgnoreDirectMessages"): "DISCORD_SHOULD_IGNORE_DIRECT_MESSAGES",
        ("discord", "shouldRespondOnlyToMentions"): "DISCORD_SHOULD_RESPOND_ONLY_TO_MENTIONS",
        ("discord", "allowedChannelIds"): "CHANNEL_IDS",
        ("telegram", "allowedGroupIds"): "TELEGRAM_ALLOWED_CHATS",
    }
)

PLATFORMS: Final = frozenset(platform for platform, _ in PLATFORM_SETTINGS)

ADAPTER_ALIASES: Final[Mapping[str, str]] = MappingProxyType({"twitter": "x", "direct": "web", "rest": "web"})
_PACKAGE: Final = re.compile(r"(?:@[\w-]+/)?(?:client-|plugin-|adapter-)?", re.ASCII)
_ALIASES: Final = {field.alias or name: name for name, field in Character.model_fields.items()}
KEYS: Final = tuple(_ALIASES)
KNOWLEDGE_ALIASES: Final = {field.alias or name: name for name, field in KnowledgeItem.model_fields.items()}
STYLE_KEYS: Final = tuple(Style.model_fields)
FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {**{name: name for name in _ALIASES.values()}, **_ALIASES, "clients": "adapters"}
)
# The file's author names the contents of these fields, so that names decide what is a secret.
FREE_FIELDS: Final = frozenset({"settings", "secrets", "client_config", "twitter_profile", "nft"})


def to_adapter_name(client: str) -> str:
    """Return the adapter name of a v0 client: `twitter`, `@elizaos/client-twitter` -> `x`; a path as it is."""
    name = client.strip()
    if name.startswith(PATH_STARTS):
        return name
    name = name.lower()
    name = name[match.end() :] if (match := _PACKAGE.match(name)) else name
    return ADAPTER_ALIASES.get(name, name)


def to_json(node: Node) -> JsonValue:
    """Return the JSON value of a node, without positions."""
    value = node.value
    if isinstance(value, dict):
        return {key: to_json(member) for key, member in value.items()}
    return [to_json(item) for item in value] if isinstance(value, tuple) else value


def is_empty(node: Node) -> bool:
    """Whether a value is null, "", [] or {}."""
    return node.value is None or node.value in ("", (), {})


def to_setting(node: Node) -> JsonValue:
    """Return a value as settings store it: a list of scalars as comma-separated text."""
    if isinstance(node.value, tuple):
        return ",".join(text for item in node.value if (text := scalar_text(item)) is not None)
    return to_json(node)


class FieldReader:
    """Reads values of one type each, and reports conversions and mismatches."""

    def __init__(self, collector: ReportCollector) -> None:
        self._collector = collector

    def text(self, node: Node, path: KeyPath) -> str:
        """Read a text; numbers and booleans are converted."""
        if node.value is None:
            return ""
        text = scalar_text(node)
        if text is None:
            self._add_mismatch("text", node, path)
            return ""
        if not isinstance(node.value, str):
            self._collector.add_mapped(node.key_offset, path, f"{node.kind} read as text")
        return text

    def texts(self, node: Node, path: KeyPath) -> tuple[str, ...]:
        """Read a list of texts; one text is a list of one, null an empty list."""
        if node.value is None:
            return ()
        if not isinstance(node.value, tuple):
            text = scalar_text(node)
            if text is None:
                self._add_mismatch("a list of texts", node, path)
                return ()
            self._collector.add_mapped(node.key_offset, path, f"{node.kind} read as a list of one")
            return (text,) if text.strip() else ()
        return self._items(node.value, node, path)

    def mapping(self, node: Node, path: KeyPath) -> dict[str, Node]:
        """Read an object; null is an empty one."""
        if isinstance(node.value, dict):
            return node.value
        if node.value is not None:
            self._add_mismatch("an object", node, path)
        return {}

    def flag(self, node: Node, path: KeyPath) -> bool:
        """Read a boolean, also one written as text."""
        if isinstance(node.value, bool | None):
            return bool(node.value)
        text = scalar_text(node)
        if text is not None and text.strip().lower() in ("true", "false"):
            self._collector.add_mapped(node.key_offset, path, "text read as true or false")
            return text.strip().lower() == "true"
        self._add_mismatch("true or false", node, path)
        return False

    def _items(self, items: tuple[Node, ...], node: Node, path: KeyPath) -> tuple[str, ...]:
        texts, converted = [], 0
        for index, item in enumerate(items):
            text = scalar_text(item)
            if text is None and item.value is not None:
                self._add_mismatch("text", item, (*path, index))
            converted += not isinstance(item.value, str)
            if text is not None:
                texts.append(text)
        if converted:
            count = f"{converted} of {len(items)} entries"
            self._collector.add_mapped(
                node.key_offset, path, f"{count} are not text; numbers are converted, null is removed"
            )
        return tuple(texts)

    def _add_mismatch(self, expected: str, node: Node, path: KeyPath) -> None:
        self._collector.add_problem(node.offset, path, f"expected {expected}, found {node.kind}")


def scalar_text(node: Node) -> str | None:
    """Return a scalar as text; None for null, a list or an object."""
    value = node.value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


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
        self._v0_offsets: dict[str, list[int]] = {}  # of the keys of v0 in lines of examples
        self._suggestion_count = 0
        self._readers: dict[str, Callable[[Node, KeyPath], object]] = {
            "id": self._read_id,
            "name": reader.text,
            "username": reader.text,
            "system": reader.text,
            "templates": self._read_templates,
            "bio": reader.texts,
            "lore": self._read_lore,
            "message_examples": self._read_examples,
            "post_examples": reader.texts,
            "topics": reader.texts,
            "adjectives": reader.texts,
            "suggestions": self._read_suggestions,
            "picture": self._read_picture,
            "greetings": reader.texts,
            "group_greetings": reader.texts,
            "final_rules": reader.texts,
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
            "content": self._read_rating,
            "rooms": self._read_rooms,
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
                continue
            fields[key] = to_json(node)
            if key not in WITHOUT_EFFECT:
                self._collector.add_preserved(node.key_offset, (key,), "is not a field of a character; kept unchanged")
                self._suggest(key, KEYS, node, (key,))
        self._check_name(root, members, fields)
        self._convert_platform_settings(members, fields)
        is_v0 = bool(self._v0_offsets) or not V0_KEYS.isdisjoint(members)
        return fields, Format.V0 if is_v0 else Format.V1

    def _read_known_field(self, key: str, node: Node, fields: Fields) -> None:
        name = FIELDS[key]
        value = self._readers[name](node, (key,))
        if name in fields:
            self._collector.add_warning(
                node.key_offset, (key,), "appears twice, under two spellings; the last one is used"
            )
        fields[name] = value

    def _suggest(self, key: str, names: tuple[str, ...], node: Node, path: KeyPath) -> None:
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

    def _read_id(self, node: Node, path: KeyPath) -> UUID | None:
        text = self._reader.text(node, path).strip()
        if not text:
            return None
        try:
            return UUID(text)
        except ValueError:
            self._collector.add_warning(node.key_offset, path, "is not a UUID; a UUID is derived from it")
            return derived_id("character", text)

    def _read_templates(self, node: Node, path: KeyPath) -> dict[str, str]:
        members = self._reader.mapping(node, path)
        return {key: self._reader.text(member, (*path, key)) for key, member in members.items()}

    def _read_rooms(self, node: Node, path: KeyPath) -> JsonValue:
        """Return the instructions of rooms; each value that does not fit is a problem at its place in the file."""
        rooms = node.value
        if not isinstance(rooms, dict):
            self._collector.add_problem(node.offset, path, "it must name rooms or worlds, each with its instructions")
            return {}
        for name, entry in rooms.items():
            try:
                RoomInstructions.model_validate(to_json(entry))
            except ValidationError as error:
                for key in dict.fromkeys(str(fault["loc"][0]) if fault["loc"] else "" for fault in error.errors()):
                    place = entry.value.get(key, entry) if isinstance(entry.value, dict) else entry
                    keys = ", ".join(INSTRUCTION_KEYS)
                    message = f"it must be {USAGE[key]}" if key in USAGE else f"the instructions are {keys}"
                    self._collector.add_problem(place.offset, (*path, name, *filter(None, [key])), message)
        return to_json(node)

    def _read_rating(self, node: Node, path: KeyPath) -> str:
        text = self._reader.text(node, path).strip().lower()
        if text not in set(ContentRating):
            self._collector.add_problem(node.offset, path, f"must be one of {', '.join(ContentRating)}")
            return ContentRating.GENERAL
        return text

    def _read_suggestions(self, node: Node, path: KeyPath) -> tuple[str, ...]:
        if isinstance(node.value, dict):  # of another tool: older versions kept it
            self._collector.add_ignored(node.key_offset, path, "has no effect: it is an object, not a list of texts")
            return ()
        return self._reader.texts(node, path)

    def _read_picture(self, node: Node, path: KeyPath) -> str:
        if isinstance(node.value, dict | tuple):
            self._collector.add_ignored(node.key_offset, path, "has no effect: name one file or address")
            return ""
        return self._reader.text(node, path)

    def _read_object(self, node: Node, path: KeyPath) -> JsonValue:
        self._reader.mapping(node, path)
        return to_json(node) or {}

    def _read_lore(self, node: Node, path: KeyPath) -> tuple[str, ...]:
        lore = self._reader.texts(node, path)
        if lore:
            self._collector.add_mapped(node.key_offset, path, "kept as lore; added to the prompt after the bio")
        return lore

    def _read_model_provider(self, node: Node, path: KeyPath) -> str:
        provider = self._reader.text(node, path).strip().lower()
        if provider:
            self._collector.add_ignored(
                node.key_offset, path, "has no effect: the model plugin whose key or server is set is used"
            )
        return provider

    def _read_plugins(self, node: Node, path: KeyPath) -> tuple[str, ...]:
        """Read the names of plugins; of an object the name, else the package."""
        if not isinstance(node.value, tuple) or not any(isinstance(item.value, dict) for item in node.value):
            return self._reader.texts(node, path)
        names = [self._read_plugin(item, (*path, index)) for index, item in enumerate(node.value)]
        return tuple(filter(None, names))

    def _read_plugin(self, node: Node, path: KeyPath) -> str:
        if not isinstance(node.value, dict):
            return self._reader.text(node, path)
        for key in ("name", "package"):
            if key in node.value and (name := self._reader.text(node.value[key], (*path, key)).strip()):
                self._collector.add_mapped(node.offset, path, f"an object read as its {key}, {name}")
                return name
        self._collector.add_problem(node.offset, path, "is an object without a name; write the plugin's name")
        return ""

    def _read_adapters(self, node: Node, path: KeyPath) -> tuple[str, ...]:
        names = self._reader.texts(node, path)
        adapters = tuple(dict.fromkeys(name for name in map(to_adapter_name, names) if name))
        if path == ("clients",):
            listed = ", ".join(adapters) or "none named, so every platform with a token"
            self._collector.add_mapped(node.key_offset, path, f"read as adapters: {listed}")
        return adapters

    def _read_settings(self, node: Node, path: KeyPath) -> JsonValue:
        for key, member in self._reader.mapping(node, path).items():
            if key in SETTINGS_WITHOUT_EFFECT and not is_empty(member):
                reason = SETTINGS_WITHOUT_EFFECT[key]
                self._collector.add_ignored(member.key_offset, (*path, key), f"has no effect: {reason}")
            elif key == AVATAR_SETTING and isinstance(member.value, str) and member.value.strip():
                self._collector.add_mapped(member.key_offset, (*path, key), "read as the picture, where none is named")
        return to_json(node) or {}

    def _read_examples(self, node: Node, path: KeyPath) -> tuple[tuple[Fields, ...], ...]:
        """Read a list of conversations, each a list of lines."""
        if node.value is None:
            return ()
        if not isinstance(node.value, tuple):
            self._collector.add_problem(node.offset, path, f"expected a list of conversations, found {node.kind}")
            return ()
        if node.value and all(isinstance(item.value, dict) and "content" in item.value for item in node.value):
            self._collector.add_mapped(node.key_offset, path, "a list of lines read as one conversation")
            conversations = [self._read_lines(node.value, path)]
        else:
            items = enumerate(node.value)
            conversations = [self._read_conversation(item, (*path, index)) for index, item in items]
        for word, offsets in self._v0_offsets.items():
            new = {"user": "name", "action": "actions"}[word]
            times = "once" if len(offsets) == 1 else f"{len(offsets)} times"
            self._collector.add_mapped(offsets[0], (*path, word), f"read as {new}, {times}")
        return tuple(lines for lines in conversations if lines)

    def _read_conversation(self, node: Node, path: KeyPath) -> tuple[Fields, ...]:
        if isinstance(node.value, dict) and "examples" in node.value:
            node, path = node.value["examples"], (*path, "examples")
        if isinstance(node.value, tuple):
            return self._read_lines(node.value, path)
        if node.value is not None:
            self._collector.add_problem(node.offset, path, f"expected a list of messages, found {node.kind}")
        return ()

    def _read_lines(self, items: tuple[Node, ...], path: KeyPath) -> tuple[Fields, ...]:
        return tuple(self._read_line(item, (*path, index)) for index, item in enumerate(items))

    def _read_line(self, node: Node, path: KeyPath) -> Fields:
        members = node.value
        if not isinstance(members, dict):
            self._collector.add_problem(
                node.offset, path, f"expected an object with name and content, found {node.kind}"
            )
            return {}
        line: Fields = {
            key: to_json(member) for key, member in members.items() if key not in ("user", "name", "content")
        }
        line["name"] = self._read_speaker(members, node, path)
        if "content" in members:
            line["content"] = self._read_content(members["content"], (*path, "content"))
        else:
            self._collector.add_problem(node.offset, (*path, "content"), "is missing; it holds the message")
        return line

    def _read_speaker(self, members: dict[str, Node], node: Node, path: KeyPath) -> str:
        if "user" in members:
            self._v0_offsets.setdefault("user", []).append(members["user"].key_offset)
        for key in ("name", "user"):
            if key in members and (name := self._reader.text(members[key], (*path, key))):
                return name
        self._collector.add_problem(node.offset, (*path, "name"), "is missing; it names the speaker")
        return ""

    def _read_content(self, node: Node, path: KeyPath) -> Fields:
        if node.value is None:
            return {}
        members = self._reader.mapping(node, path)
        content: Fields = {key: to_json(member) for key, member in members.items() if key != "action"}
        if "text" in members:
            content["text"] = self._reader.text(members["text"], (*path, "text"))
        actions = self._reader.texts(members["actions"], (*path, "actions")) if "actions" in members else ()
        if "action" in members:
            self._v0_offsets.setdefault("action", []).append(members["action"].key_offset)
            actions += (self._reader.text(members["action"], (*path, "action")),)
        content["actions"] = tuple(dict.fromkeys(action for action in actions if action))
        return content

    def _read_style(self, node: Node, path: KeyPath) -> Fields:
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

    def _read_knowledge(self, node: Node, path: KeyPath) -> tuple[Fields, ...]:
        if not isinstance(node.value, tuple):
            return tuple({"content": text} for text in self._reader.texts(node, path))
        items = enumerate(node.value)
        return tuple(self._read_knowledge_item(item, (*path, index)) for index, item in items if not is_empty(item))

    def _read_knowledge_item(self, node: Node, path: KeyPath) -> Fields:
        if not isinstance(node.value, dict):
            return {"content": self._reader.text(node, path)}
        item: Fields = {}
        members = _unwrap_knowledge(node.value)
        for key, member in members.items():
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
        self, platform: str, members: dict[str, Node], path: KeyPath, settings: dict[str, JsonValue]
    ) -> None:
        for key, node in members.items():
            name = PLATFORM_SETTINGS.get((platform, key))
            if name is None:
                if path[0] == "clientConfig" or platform in PLATFORMS:
                    self._collector.add_ignored(node.key_offset, (*path, key), "has no counterpart here")
            elif name in settings:
                self._collector.add_ignored(
                    node.key_offset, (*path, key), f"settings.{name} is set already and is used"
                )
            elif not is_empty(node):
                settings[name] = to_setting(node)
                self._collector.add_mapped(node.key_offset, (*path, key), f"read as the setting {name}")


def _unwrap_knowledge(members: Mapping[str, Node]) -> Mapping[str, Node]:
    """Return the members of an item of knowledge; newer elizaOS has them as `{"item": {"case": …, "value": …}}`."""
    wrapped = members["item"].value if "item" in members else None
    if not isinstance(wrapped, dict) or not {"case", "value"} <= wrapped.keys():
        return members
    kind, value = str(wrapped["case"].value), wrapped["value"]
    return value.value if isinstance(value.value, dict) else {kind: value}
