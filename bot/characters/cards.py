"""Reads SillyTavern character cards, V1 to V3, as the fields of a character file.

The formats: the character card specifications V2 (`chara_card_v2`) and V3 (`chara_card_v3`), and the lorebooks
("world info") that SillyTavern exports.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import JsonValue

from bot.characters.field_readers import FieldReader, is_empty, to_json
from bot.characters.json_scanner import Node
from bot.characters.report import Format, ReportCollector
from bot.characters.source_text import Path

EXTENSION: Final = "greenroom"  # the extension of a card that holds fields which a card has no place for
EXTENSION_FIELDS: Final = ("username", "topics", "postExamples", "style", "suggestions")
PERSONALITY, SCENARIO = "Personality: ", "Scenario: "  # begin those lines of a bio
MAX_ADJECTIVES_LENGTH: Final = 300
DEFAULT_ORDER: Final = 100
MAX_NESTED_MACROS: Final = 5
OPEN, CLOSE = "\1", "\2"  # stand for the braces of a placeholder that stays

Fields = dict[str, JsonValue]

_CARD_FORMATS: Final[Mapping[str, Format]] = {"chara_card_v2": Format.CARD_V2, "chara_card_v3": Format.CARD_V3}
_V1_KEYS: Final = frozenset({"first_mes", "mes_example", "char_greeting", "example_dialogue"})
_ABOUT_CARD: Final = (
    "creator",
    "creator_notes",
    "creator_notes_multilingual",
    "character_version",
    "tags",
    "source",
    "group_only_greetings",
    "creation_date",
    "modification_date",
)
_ENTRY_NAMES: Final[Mapping[str, str]] = {  # of an exported lorebook, by their names in a card
    "keys": "key",
    "secondary_keys": "keysecondary",
    "insertion_order": "order",
    "case_sensitive": "caseSensitive",
}
_BOOK_SETTINGS: Final[Mapping[str, tuple[str, int, int]]] = {  # the setting, and the limits of its value
    "token_budget": ("KEYED_KNOWLEDGE_TOKENS", 10, 20_000),
    "scan_depth": ("KEYED_KNOWLEDGE_MESSAGES", 1, 100),
    "recursive_scanning": ("KEYED_KNOWLEDGE_RECURSIVE", 0, 1),
}
_REGEX_PROBLEM: Final = "its regular expressions are not run: write the words that they stand for"
_NEGATED_LOGIC: Final = (1, 2)  # `selectiveLogic`: not all, and none, of the secondary keys
ALL_SECONDARY: Final = 3
_READ_KEYS: Final = frozenset(
    {*_ABOUT_CARD, "name", "nickname", "description", "personality", "scenario", "first_mes", "mes_example"}
    | {"system_prompt", "post_history_instructions", "alternate_greetings", "character_book", "extensions"}
    | {"char_name", "char_persona", "char_greeting", "world_scenario", "example_dialogue", "metadata", "spec_version"}
)
_MACRO: Final = re.compile(r"\{\{([^{}]*)\}\}|<(user|bot|char)>", re.IGNORECASE)
_LANGUAGE: Final = re.compile(r"[a-z]{2,3}(?:-[A-Za-z]{2,4})?")
_REGEX: Final = re.compile(r"/.+/[gimsuy]*", re.DOTALL)  # a key of SillyTavern that is a regular expression
_REGEX_SIGN: Final = re.compile(r"[\\^$|?*+(){}\[\]]")  # in a key of other programs, which say so by `use_regex`
_START: Final = re.compile(r"^[^\S\n]*<START>[^\S\n]*$", re.IGNORECASE | re.MULTILINE)
_SPEAKER: Final = re.compile(r"^(\{\{(?:user|char)\}\}|<(?:USER|BOT)>|[^\n:{}]{1,60}):[ \t]*", re.IGNORECASE)


def is_card(root: Node) -> bool:
    """Return whether a file is a card and not a character file."""
    members = root.value if isinstance(root.value, dict) else {}
    spec = members.get("spec")
    is_known = spec is not None and isinstance(spec.value, str) and spec.value.startswith("chara_card_v")
    return is_known or ("bio" not in members and not _V1_KEYS.isdisjoint(members))


def read_card(root: Node, collector: ReportCollector) -> tuple[Fields, Format]:
    """Return the fields of a character file for a card, and the version of its format.

    The report of `collector` tells what became of each part of the card.
    """
    reader = FieldReader(collector)
    members = reader.mapping(root, ())
    path: Path = ()
    format = Format.CARD_V1
    if "data" in members and "spec" in members:
        format = _CARD_FORMATS.get(str(members["spec"].value), Format.CARD_V3)
        path = ("data",)
        members = reader.mapping(members["data"], path)
    return _CardConversion(collector, reader, path, members).convert(root), format


def read_lorebook(root: Node, collector: ReportCollector, name: str) -> Fields:
    """Return the fields `knowledge` and `settings` for an exported lorebook of the character `name`."""
    reader = FieldReader(collector)
    return _CardConversion(collector, reader, (), {}, name).read_book(root, ())


class _CardConversion:
    """The conversion of one card: of its members, which stand at `path` of the file."""

    def __init__(
        self, collector: ReportCollector, reader: FieldReader, path: Path, members: Mapping[str, Node], name: str = ""
    ) -> None:
        self._collector, self._reader = collector, reader
        self._path, self._members = path, members
        self._name = self._full_name = name  # a nickname is what {{char}} stands for
        self._lost_macros: dict[str, int] = {}

    def convert(self, root: Node) -> Fields:
        name = self._text("name", "char_name").strip()
        self._full_name, self._name = name, self._text("nickname").strip() or name
        if not name:
            self._collector.add_problem(root.offset, (*self._path, "name"), "is missing; every character has a name")
            return {}
        fields: Fields = {"name": name, **self._read_prompts(), **self._read_talk(), **self._read_extension()}
        if "character_book" in self._members:
            fields |= self.read_book(self._members["character_book"], (*self._path, "character_book"))
        about = {key: _plain(to_json(node)) for key, node in self._members.items() if key in _ABOUT_CARD}
        about = {key: value for key, value in about.items() if value not in (None, "", [], {})}
        if about:
            fields["card"] = about
            self._collector.add_preserved(root.offset, self._path, f"kept as card, without effect: {', '.join(about)}")
        for key, node in self._members.items():
            if key not in _READ_KEYS and not is_empty(node):
                self._collector.add_ignored(node.key_offset, (*self._path, key), "has no counterpart here")
        for macro, offset in self._lost_macros.items():
            self._collector.add_ignored(offset, self._path, f"{{{{{macro}}}}} has no counterpart here and is left out")
        return fields

    def _read_prompts(self) -> Fields:
        """Return who the character is: system, bio, lore, adjectives and rules of style."""
        fields: Fields = {}
        system = self._text("system_prompt").replace("{{original}}", f"You are {self._name}.")
        if system := self._replace_macros("system_prompt", system):
            fields["system"] = system
            self._note_mapped("system_prompt", "read as system")
        bio = self._paragraphs("description", "char_persona")
        self._note_mapped("description", "read as bio, a line for each paragraph")
        personality = self._replace_macros("personality", self._text("personality"))
        words = [word.strip(" .") for word in personality.split(",")]
        if len(words) > 1 and len(personality) <= MAX_ADJECTIVES_LENGTH and all(len(word) <= 40 for word in words):
            fields["adjectives"] = [word for word in words if word]
            self._note_mapped("personality", "read as adjectives")
        elif personality:
            bio.append(f"{PERSONALITY}{personality}")
            self._note_mapped("personality", "added to bio")
        if scenario := " ".join(self._paragraphs("scenario", "world_scenario")):
            bio.append(f"{SCENARIO}{scenario}")
            self._note_mapped("scenario", "added to bio")
        if bio:
            fields["bio"] = list[JsonValue](bio)
        rules = self._paragraphs("post_history_instructions")
        if note := self._depth_prompt():
            rules.append(note)
        if rules:
            fields["style"] = {"all": list[JsonValue](rules)}
            self._note_mapped("post_history_instructions", "read as style.all, which stands near the end of a prompt")
        return fields

    def _read_talk(self) -> Fields:
        """Return the greetings and the example conversations."""
        fields: Fields = {}
        nodes = self._members.get("alternate_greetings")
        texts = [self._text("first_mes", "char_greeting")]
        texts += self._reader.texts(nodes, (*self._path, "alternate_greetings")) if nodes else ()
        greetings = [text for text in (self._replace_macros("first_mes", text, "{{user}}") for text in texts) if text]
        if greetings:
            fields["greetings"] = list[JsonValue](greetings)
            self._note_mapped("first_mes", "read as greetings, of which /start sends one")
        examples = list(self._read_examples(self._text("mes_example", "example_dialogue")))
        if examples:
            self._note_mapped("mes_example", f"read as {len(examples)} messageExamples")
        elif greetings:
            opening = self._replace_macros("first_mes", greetings[0].replace("{{user}}", "{{name1}}"), "{{name1}}")
            examples = [[_line("{{name1}}", "Hello!"), _line(self._full_name, opening)]]
        if examples:
            fields["messageExamples"] = list[JsonValue](examples)
        return fields

    def _read_examples(self, text: str) -> Iterator[JsonValue]:
        """Yield the conversations of a card, which `<START>` separates; lines without a speaker continue the last."""
        for block in _START.split(text):
            lines: list[tuple[str, list[str]]] = []
            for line in block.strip().splitlines():
                speaker = _SPEAKER.match(line)
                if speaker and (name := self._speaker(speaker[1])):
                    lines.append((name, [line[speaker.end() :]]))
                elif lines:
                    lines[-1][1].append(line)
            conversation: list[JsonValue] = [
                _line(name, words)
                for name, parts in lines
                if (words := self._replace_macros("mes_example", "\n".join(parts), "{{name1}}"))
            ]
            if conversation:
                yield conversation

    def _speaker(self, label: str) -> str:
        """Return the name of a speaker of an example; empty if the label is only a part of a text."""
        word = label.strip("{}<> ").lower()
        if word in ("char", "bot", self._name.lower(), self._full_name.lower()):
            return self._full_name
        return "{{name1}}" if word == "user" else ""

    def _read_extension(self) -> Fields:
        """Return the fields that an export of this program wrote into the card."""
        own = self._extension(EXTENSION)
        fields: Fields = {key: _plain(to_json(own[key])) for key in EXTENSION_FIELDS if key in own and key != "style"}
        style = to_json(own["style"]) if "style" in own else None
        if isinstance(style, dict):
            fields["style"] = {place: _plain(style[place]) for place in ("all", "chat", "post") if place in style}
        return {key: value for key, value in fields.items() if value is not None}

    def _depth_prompt(self) -> str:
        """Return the note that SillyTavern inserts between the last messages."""
        prompt = self._extension("depth_prompt").get("prompt")
        return self._replace_macros("extensions", prompt.value) if prompt and isinstance(prompt.value, str) else ""

    def _extension(self, name: str) -> Mapping[str, Node]:
        extensions = self._members.get("extensions")
        found = extensions.value.get(name) if extensions and isinstance(extensions.value, dict) else None
        return found.value if found and isinstance(found.value, dict) else {}

    def read_book(self, node: Node, path: Path) -> Fields:
        """Return the fields `knowledge` and `settings` for a lorebook."""
        book = self._reader.mapping(node, path)
        entries = book.get("entries")
        nodes: list[tuple[str | int, Node]] = []
        if entries is not None and isinstance(entries.value, dict):
            nodes = list(entries.value.items())
        elif entries is not None and isinstance(entries.value, tuple):
            nodes = list(enumerate(entries.value))
        knowledge = [item for key, entry in nodes if (item := self._read_entry(entry, (*path, "entries", key)))]
        settings: Fields = {}
        for key, (name, lowest, highest) in _BOOK_SETTINGS.items():
            value = book[key].value if key in book else None
            if value and isinstance(value, bool | int):
                settings[name] = "true" if value is True else str(min(max(value, lowest), highest))
                self._collector.add_mapped(book[key].key_offset, (*path, key), f"read as settings.{name}")
        if knowledge:
            self._collector.add_mapped(
                node.key_offset, path, f"{len(knowledge)} of {len(nodes)} entries read as knowledge"
            )
        fields: Fields = {"knowledge": list[JsonValue](knowledge)} if knowledge else {}
        return fields | ({"settings": settings} if settings and knowledge else {})

    def _read_entry(self, node: Node, path: Path) -> Fields:
        """Return an entry of a lorebook as an item of knowledge; nothing for one that is switched off or empty."""
        entry = self._reader.mapping(node, path)
        is_off = ("enabled" in entry and not entry["enabled"].value) or ("disable" in entry and entry["disable"].value)
        lines = str(entry["content"].value if "content" in entry else "").splitlines()
        is_off = is_off or "@@dont_activate" in lines or _number(entry, "probability") == 0
        content = self._replace_macros("character_book", "\n".join(line for line in lines if not line.startswith("@@")))
        if is_off or not content:
            self._collector.add_ignored(node.offset, path, "is switched off" if is_off else "has no text")
            return {}
        keys = self._read_keys(entry, "keys", path)
        secondary = self._read_keys(entry, "secondary_keys", path) if entry.get("selective", node).value else []
        is_constant = bool("constant" in entry and entry["constant"].value)
        if not (keys or is_constant):
            self._collector.add_ignored(node.offset, path, "has no keys, and is not constant")
            return {}
        if not self._can_be_shown(entry, len(secondary), node, path):
            return {}
        item: Fields = {"content": content}
        if keys:
            item["keys"] = keys
        if secondary:
            item["secondaryKeys"] = secondary
        if is_constant:
            item["always"] = True
        sensitive = _member(entry, "case_sensitive") or _entry_extension(entry, "case_sensitive")
        if sensitive and sensitive.value is True:
            item["caseSensitive"] = True
        order = _member(entry, "insertion_order")
        if order and isinstance(order.value, int) and order.value != DEFAULT_ORDER:
            item["order"] = order.value
        return item

    def _can_be_shown(self, entry: Mapping[str, Node], secondary_count: int, node: Node, path: Path) -> bool:
        """Return False for an entry that would be shown where it must not be; report what else differs."""
        logic, chance = _number(entry, "selectiveLogic"), _number(entry, "probability")
        if secondary_count and logic in _NEGATED_LOGIC:
            message = "is shown where its secondary keys do not occur, which has no counterpart here"
            self._collector.add_ignored(node.offset, path, message)
            return False
        if logic == ALL_SECONDARY and secondary_count > 1:
            self._collector.add_warning(node.offset, path, "needs all of its secondary keys: here one is enough")
        if chance is not None and chance < 100:
            self._collector.add_warning(node.offset, path, f"is shown in {chance} % of the cases: here in all")
        return True

    def _read_keys(self, entry: Mapping[str, Node], key: str, path: Path) -> list[JsonValue]:
        """Return the words of an entry; regular expressions are left out and reported.

        SillyTavern sets `use_regex` on every entry, and a key is one there if it stands in slashes.
        """
        node = _member(entry, key)
        texts = self._reader.texts(node, (*path, key)) if node else ()
        is_regex = bool("use_regex" in entry and entry["use_regex"].value)
        words = [text for text in texts if not (_REGEX.fullmatch(text) or (is_regex and _REGEX_SIGN.search(text)))]
        if node and len(words) < len(texts):
            self._collector.add_ignored(node.offset, (*path, key), _REGEX_PROBLEM)
        return [word for word in (self._replace_macros("character_book", text) for text in words) if word]

    def _text(self, *keys: str) -> str:
        """Return the text of the first of the keys that the card has."""
        for key in keys:
            if key in self._members and (text := self._reader.text(self._members[key], (*self._path, key))):
                return text.replace("\r\n", "\n")
        return ""

    def _paragraphs(self, *keys: str) -> list[str]:
        text = self._replace_macros(keys[0], self._text(*keys))
        return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]

    def _replace_macros(self, key: str, text: str, user: str = "the user") -> str:
        """Return a text with the macros of cards replaced; those without a counterpart are removed and reported."""
        text = text.replace(OPEN, "").replace(CLOSE, "")
        kept_user = user.replace("{{", OPEN).replace("}}", CLOSE)  # so that a macro around it is read too

        def replace(match: re.Match[str]) -> str:
            name, _, argument = (match[1] or match[2] or "").partition(":")
            match name.strip().lower():
                case "char" | "bot":
                    return self._name
                case "user":
                    before = text[: match.start()].rstrip(' *"')
                    is_start = not before or before[-1] in ".!?\n"
                    return kept_user[0].upper() + kept_user[1:] if is_start else kept_user
                case "newline":
                    return "\n"
                case "random" | "pick":
                    return re.split(r"::|,", argument.removeprefix(":"))[0].strip()
                case "name1" if user == "{{name1}}":
                    return kept_user
                case word if word.startswith("//") or word in ("", "trim", "noop", "comment", "hidden_key"):
                    return ""
            node = self._members.get(key)
            self._lost_macros.setdefault(name.strip()[:40], node.key_offset if node else 0)
            return ""

        for _ in range(MAX_NESTED_MACROS):
            replaced = _MACRO.sub(replace, text)
            if replaced == text:
                break
            text = replaced
        return text.replace(OPEN, "{{").replace(CLOSE, "}}").strip()

    def _note_mapped(self, key: str, message: str) -> None:
        if (node := self._members.get(key)) is not None and not is_empty(node):
            self._collector.add_mapped(node.key_offset, (*self._path, key), message)


def _line(name: str, text: str) -> Fields:
    return {"name": name, "content": {"text": text}}


def _entry_extension(entry: Mapping[str, Node], key: str) -> Node | None:
    """Return what SillyTavern keeps of an entry: in a card below `extensions`, in a lorebook beside the keys."""
    extensions = entry.get("extensions")
    found = extensions.value.get(key) if extensions and isinstance(extensions.value, dict) else None
    return found or entry.get(key)


def _number(entry: Mapping[str, Node], key: str) -> int | float | None:
    node = _entry_extension(entry, key)
    return node.value if node and isinstance(node.value, int | float) else None


def _plain(value: JsonValue) -> JsonValue:
    """Return a text, a number or a list of them; of translations those by language; None for anything else."""
    if isinstance(value, list):
        return [item for item in value if isinstance(item, str | int | float)]
    if isinstance(value, dict):
        return {key: text for key, text in value.items() if _LANGUAGE.fullmatch(key) and isinstance(text, str)} or None
    return value


def _member(entry: Mapping[str, Node], key: str) -> Node | None:
    """Return a member of an entry by its name in a card, or in an exported lorebook."""
    return entry.get(key) or entry.get(_ENTRY_NAMES[key])
