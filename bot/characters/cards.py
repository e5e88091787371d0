"""Reads SillyTavern character cards, V1 to V3, as the fields of a character file.

The formats: the character card specifications V2 (`chara_card_v2`) and V3 (`chara_card_v3`).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import JsonValue

from bot.characters.card_macros import CardMacros
from bot.characters.field_readers import FieldReader, is_empty, to_json
from bot.characters.json_scanner import Node
from bot.characters.lorebooks import Fields, read_lorebook
from bot.characters.report import Format, ReportCollector
from bot.characters.source_text import Path

EXTENSION: Final = "greenroom"  # the extension of a card that holds fields which a card has no place for
EXTENSION_FIELDS: Final = ("username", "topics", "postExamples", "style", "suggestions")
PERSONALITY, SCENARIO = "Personality: ", "Scenario: "  # begin those lines of a bio
MAX_ADJECTIVES_LENGTH: Final = 300

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
_READ_KEYS: Final = frozenset(
    {*_ABOUT_CARD, "name", "nickname", "description", "personality", "scenario", "first_mes", "mes_example"}
    | {"system_prompt", "post_history_instructions", "alternate_greetings", "character_book", "extensions"}
    | {"char_name", "char_persona", "char_greeting", "world_scenario", "example_dialogue", "metadata", "spec_version"}
    | {"assets"}  # see `exchange`
)
_LANGUAGE: Final = re.compile(r"[a-z]{2,3}(?:-[A-Za-z]{2,4})?")
_START: Final = re.compile(r"<START>", re.IGNORECASE)
_SPEAKER: Final = re.compile(
    r"[ \t]*(\{\{(?:user|char|bot)\}\}|<(?:USER|BOT|CHAR)>|[^\n:：{}]{1,60})[:：][ \t\u3000]*", re.IGNORECASE
)


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


class _CardConversion:
    """The conversion of one card: of its members, which stand at `path` of the file."""

    def __init__(
        self, collector: ReportCollector, reader: FieldReader, path: Path, members: Mapping[str, Node]
    ) -> None:
        self._collector, self._reader = collector, reader
        self._path, self._members = path, members
        self._name = self._full_name = ""  # a nickname is what {{char}} stands for
        self._macros = CardMacros()

    def convert(self, root: Node) -> Fields:
        name = self._text("name", "char_name").strip()
        self._full_name, self._name = name, self._text("nickname").strip() or name
        if not name:
            self._collector.add_problem(root.offset, (*self._path, "name"), "is missing; every character has a name")
            return {}
        self._macros = CardMacros(self._name)
        fields: Fields = {"name": name, **self._read_prompts(), **self._read_talk(), **self._read_extension()}
        if self._name != name:
            fields["username"] = self._name
            self._note_mapped("read as username: a second name that people may call", "nickname")
        if "character_book" in self._members:
            path = (*self._path, "character_book")
            fields |= read_lorebook(self._members["character_book"], path, self._collector, self._macros)
        about = {key: _plain(to_json(node)) for key, node in self._members.items() if key in _ABOUT_CARD}
        about = {key: value for key, value in about.items() if value not in (None, "", [], {})}
        if about:
            fields["card"] = about
            self._collector.add_preserved(root.offset, self._path, f"kept as card, without effect: {', '.join(about)}")
        for key, node in self._members.items():
            if key not in _READ_KEYS and not is_empty(node):
                self._collector.add_ignored(node.key_offset, (*self._path, key), "has no counterpart here")
        self._macros.report_lost(self._collector, self._path)
        return fields

    def _read_prompts(self) -> Fields:
        """Return who the character is: system, bio, lore, adjectives and rules of style."""
        fields: Fields = {}
        system = self._text("system_prompt").replace("{{original}}", f"You are {self._name}.")
        if system := self._replace_macros("system_prompt", system):
            fields["system"] = system
            self._note_mapped("read as system", "system_prompt")
        bio = self._paragraphs("description", "char_persona")
        self._note_mapped("read as bio, a line for each paragraph", "description", "char_persona")
        personality = self._replace_macros("personality", self._text("personality"))
        words = [word.strip(" .") for word in personality.split(",")]
        if len(words) > 1 and len(personality) <= MAX_ADJECTIVES_LENGTH and all(len(word) <= 40 for word in words):
            fields["adjectives"] = [word for word in words if word]
            self._note_mapped("read as adjectives", "personality")
        elif personality:
            bio.append(f"{PERSONALITY}{personality}")
            self._note_mapped("added to bio", "personality")
        if scenario := " ".join(self._paragraphs("scenario", "world_scenario")):
            bio.append(f"{SCENARIO}{scenario}")
            self._note_mapped("added to bio", "scenario", "world_scenario")
        if bio:
            fields["bio"] = list[JsonValue](bio)
        rules = self._paragraphs("post_history_instructions")
        if note := self._depth_prompt():
            rules.append(note)
        if rules:
            fields["style"] = {"all": list[JsonValue](rules)}
            self._note_mapped("read as style.all, which stands near the end of a prompt", "post_history_instructions")
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
            self._note_mapped("read as greetings, of which /start sends one", "first_mes", "char_greeting")
        examples = list(self._read_examples(self._text("mes_example", "example_dialogue")))
        if examples:
            self._note_mapped(f"read as {len(examples)} messageExamples", "mes_example", "example_dialogue")
        elif greetings:
            opening = self._replace_macros("first_mes", greetings[0].replace("{{user}}", "{{name1}}"), "{{name1}}")
            examples = [[_line("{{name1}}", "Hello!"), _line(self._full_name, opening)]]
        if examples:
            fields["messageExamples"] = list[JsonValue](examples)
        return fields

    def _read_examples(self, text: str) -> Iterator[JsonValue]:
        """Yield the conversations of a card, which `<START>` separates; lines without a speaker continue the last.

        Those before the first speaker are the character's own, as narration is.
        """
        leading_count = 0
        for block in _START.split(text):
            lines: list[tuple[str, list[str]]] = []
            for line in block.strip().splitlines():
                speaker = _SPEAKER.match(line)
                if speaker and (name := self._speaker(speaker[1])):
                    lines.append((name, [line[speaker.end() :]]))
                elif lines:
                    lines[-1][1].append(line)
                else:
                    leading_count += 1
                    lines.append((self._full_name, [line]))
            conversation: list[JsonValue] = [
                _line(name, words)
                for name, parts in lines
                if (words := self._replace_macros("mes_example", "\n".join(parts), "{{name1}}"))
            ]
            if conversation:
                yield conversation
        if leading_count:
            message = f"text before the first speaker is read as {self._full_name}'s, in {leading_count} examples"
            self._note_mapped(message, "mes_example", "example_dialogue")

    def _speaker(self, label: str) -> str:
        """Return the name of a speaker of an example; empty if the label is only a part of a text."""
        word = label.strip("{}<> ").lower()
        if word in ("char", "bot", self._name.lower(), self._full_name.lower()):
            return self._full_name
        return "{{name1}}" if word in ("user", "you") else ""

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
        node = self._members.get(key)
        return self._macros.replace(text, node.key_offset if node else 0, user)

    def _note_mapped(self, message: str, *keys: str) -> None:
        """Report what was read from the first of the keys that the card has."""
        for key in keys:
            if (node := self._members.get(key)) is not None and not is_empty(node):
                self._collector.add_mapped(node.key_offset, (*self._path, key), message)
                return


def _line(name: str, text: str) -> Fields:
    return {"name": name, "content": {"text": text}}


def _plain(value: JsonValue) -> JsonValue:
    """Return a text, a number or a list of them; of translations those by language; None for anything else."""
    if isinstance(value, list):
        return [item for item in value if isinstance(item, str | int | float)]
    if isinstance(value, dict):
        return {key: text for key, text in value.items() if _LANGUAGE.fullmatch(key) and isinstance(text, str)} or None
    return value
