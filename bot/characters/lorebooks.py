"""`CardMacros`: replaces the macros of SillyTavern in the texts of a card or a lorebook.

Reads lorebooks ("world info") as knowledge with keys: those inside cards, and files that SillyTavern exports.
"""

import re
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from bot.characters.conversion import FieldReader, to_json
from bot.characters.source import KeyPath, Node, ReportCollector
from bot.domain.character import SecondaryLogic

MAX_NESTED_MACROS: Final = 5
MAX_VARIANTS: Final = 8  # of a greeting with alternatives
MAX_DICE: Final = 1_000
MAX_NAME_LENGTH: Final = 200
START_LENGTH: Final = 20  # of what before a macro decides whether it begins a sentence
OPEN, CLOSE = "\1", "\2"  # stand for the braces of a placeholder that stays

_MACRO: Final = re.compile(r"\{\{([^{}]*)\}\}|<(user|bot|char|group|charifnotgroup)>", re.IGNORECASE)
_MACRO_PARTS: Final = re.compile(r"\s*[#!?~>]*\s*(//|/?[^\s:]*)\s*:{0,2}(.*)", re.DOTALL)
_COMMENT_START: Final = re.compile(r"\{\{\s*//\s*\}\}")
_COMMENT_END: Final = re.compile(r"\{\{\s*///\s*\}\}")
_DICE: Final = re.compile(r"(?:(\d{0,3})d)?(\d{1,6})\s*([+-]\s*\d{1,6})?", re.IGNORECASE)
_ALTERNATIVES: Final = re.compile(r"(?<!\\),")
_WITHOUT_TEXT: Final = frozenset({"", "trim", "noop", "comment", "hidden_key", "original"})
_CHARACTER_MACROS: Final = frozenset({"char", "bot", "charifnotgroup", "group", "groupnotmuted"})
_TEXT_MACROS: Final[Mapping[str, str]] = MappingProxyType({"newline": "\n", "space": " "})
# What stands in a text in place of something that each prompt tells, or that the model sees.
_DESCRIBED_MACROS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "time": "the present time",
        "isotime": "the present time",
        "date": "the present date",
        "isodate": "the present date",
        "datetimeformat": "the present date and time",
        "weekday": "the present day of the week",
        "description": "the description of {char}",
        "personality": "the personality of {char}",
        "scenario": "the scenario",
        "chardescription": "the description of {char}",
        "charpersonality": "the personality of {char}",
        "charscenario": "the scenario",
        "mesexamples": "the examples",
        "persona": "what is known of the user",
        "idle_duration": "some time",
        "idleduration": "some time",
        "input": "the last message",
        "lastmessage": "the last message",
        "lastusermessage": "the last message of the user",
        "lastcharmessage": "the last message of {char}",
    }
)
OTHER_PERSON: Final = "random_user_"  # with a number, of Agnai
_TIME_IN_ZONE: Final = "time_utc"
_LOST: Final = "has no counterpart here and is left out"
_LOST_CONDITION: Final = "is left out, and the texts of all its cases stay: delete those that do not hold"
_LOST_VARIABLE: Final = "is left out: there are no variables here"


class CardMacros:
    """Replaces the macros in the texts of one file; those without a counterpart are removed and reported once.

    `char_name` is what `{{char}}` stands for.
    """

    def __init__(self, char_name: str = "") -> None:
        self.char_name = char_name[:MAX_NAME_LENGTH]  # it may stand in a text very often
        self._lost: dict[str, tuple[int, str]] = {}
        self._read: dict[str, tuple[int, str]] = {}
        self._choice_count = 1

    def replace(self, text: str, offset: int, user: str = "the user", *, choice: int | None = None) -> str:
        """Return a text without macros, stripped; it stands at `offset` of the file, `user` replaces `{{user}}`.

        Of alternatives (`{{random:a,b}}`) that at `choice` is taken; None takes the first and reports it.
        """
        text = _cut_comments(text.replace(OPEN, "").replace(CLOSE, ""))
        kept_user = user.replace("{{", OPEN).replace("}}", CLOSE)  # so that a macro around it is read too

        def replace(match: re.Match[str]) -> str:
            body = match[1] if match[2] is None else match[2]
            parts = _MACRO_PARTS.match(body)
            name, argument = (parts[1].lower(), parts[2]) if parts else ("", "")
            if name == "user" or (name == "name1" and user == "{{name1}}"):
                before = text[max(0, match.start() - START_LENGTH) : match.start()].rstrip(' *"')
                is_start = not before or before[-1] in ".!?\n"
                return kept_user[0].upper() + kept_user[1:] if is_start else kept_user
            if name in ("random", "pick"):
                return self._choose(argument, choice, offset)
            return self._replace_other(name, argument, body, offset)

        for _ in range(MAX_NESTED_MACROS):
            replaced = _MACRO.sub(replace, text)
            if replaced == text:
                break
            text = replaced
        text = self._cut_rest(text, offset)
        return text.replace(OPEN, "{{").replace(CLOSE, "}}").strip()

    def vary(self, text: str, offset: int, user: str) -> list[str]:
        """Return a text without macros, as `replace`: one for each alternative in it, the first first."""
        self._choice_count = 1
        texts = [self.replace(text, offset, user, choice=0)]
        texts += (self.replace(text, offset, user, choice=n) for n in range(1, min(self._choice_count, MAX_VARIANTS)))
        return texts

    def report(self, collector: ReportCollector, path: KeyPath) -> None:
        """Report the macros that were removed or read as something else, as parts of what stands at `path`."""
        for macro, (offset, message) in self._lost.items():
            collector.add_ignored(offset, path, f"{{{{{macro}}}}} {message}")
        for macro, (offset, message) in self._read.items():
            collector.add_mapped(offset, path, f"{{{{{macro}}}}} {message}")

    def _choose(self, argument: str, choice: int | None, offset: int) -> str:
        choices = argument.split("::") if "::" in argument else _ALTERNATIVES.split(argument)
        choices = [text.replace("\\,", ",").strip() for text in choices]
        self._choice_count = max(self._choice_count, len(choices))
        if choice is None and len(choices) > 1:
            self._lost.setdefault("random", (offset, "always has its first alternative here; the others are left out"))
        return choices[(choice or 0) % len(choices)]

    def _replace_other(self, name: str, argument: str, body: str, offset: int) -> str:
        if name in _CHARACTER_MACROS:
            return self.char_name
        if name in _WITHOUT_TEXT or name.startswith("//"):
            return ""
        if name in _TEXT_MACROS:
            return _TEXT_MACROS[name]
        if name.startswith(OTHER_PERSON):
            return "another person"
        if name == "reverse":
            return argument[::-1]
        if name == "roll" and (dice := _DICE.fullmatch(argument.strip())):
            result = str(_roll(dice, f"{self.char_name} {body}"))
            self._read.setdefault(body.strip()[:40], (offset, f"was rolled once, for good: {result}"))
            return result
        described = "time" if name.startswith(_TIME_IN_ZONE) else name
        if described in _DESCRIBED_MACROS:
            words = _DESCRIBED_MACROS[described].format(char=self.char_name)
            self._read.setdefault(name, (offset, f"is written as {words!r}, which the model knows"))
            return words
        self._note_lost(name, offset)
        return ""

    def _note_lost(self, name: str, offset: int) -> None:
        message = _LOST
        if name.lstrip("/") in ("if", "else", "elif", "each", "when"):
            name, message = "if", _LOST_CONDITION
        elif name.endswith("var") or name.startswith((".", "$")):
            message = _LOST_VARIABLE
        self._lost.setdefault(name[:40], (offset, message))

    def _cut_rest(self, text: str, offset: int) -> str:
        """Return a text without the braces that are left: macros that are nested too deeply or not closed."""
        parts, position = list[str](), 0
        while (start := text.find("{{", position)) >= 0 and (end := text.find("}}", start)) >= 0:
            parts.append(text[position:start])
            if (macro := _MACRO_PARTS.match(text[start:end].strip(" {}"))) and macro[1]:
                self._note_lost(macro[1].lower(), offset)
            position = end + 2
            while text.startswith("}", position):
                position += 1
        parts.append(text[position:])
        return "".join(parts).replace("{{", "").replace("}}", "")


def _roll(dice: re.Match[str], seed: str) -> int:
    count, sides, more = min(int(dice[1] or 1), MAX_DICE), max(int(dice[2]), 1), (dice[3] or "0").replace(" ", "")
    chance = Random(seed)
    return sum(chance.randint(1, sides) for _ in range(count)) + int(more)


def _cut_comments(text: str) -> str:
    """Return a text without the comments of several lines: those between `{{//}}` and `{{///}}`."""
    parts, position = list[str](), 0
    while (start := _COMMENT_START.search(text, position)) and (end := _COMMENT_END.search(text, start.end())):
        parts.append(text[position : start.start()])
        position = end.end()
    return "".join([*parts, text[position:]])


DEFAULT_ORDER: Final = 100
_ENTRY_NAMES: Final[Mapping[str, str]] = MappingProxyType(  # of an exported lorebook, by their names in a card
    {"keys": "key", "secondary_keys": "keysecondary", "insertion_order": "order", "case_sensitive": "caseSensitive"}
)
_BOOK_SETTINGS: Final[Mapping[str, tuple[str, int, int]]] = MappingProxyType(
    {  # the setting, and the limits of its value
        "token_budget": ("KEYED_KNOWLEDGE_TOKENS", 10, 20_000),
        "scan_depth": ("KEYED_KNOWLEDGE_MESSAGES", 1, 100),
        "recursive_scanning": ("KEYED_KNOWLEDGE_RECURSIVE", 0, 1),
    }
)
_REGEX_PROBLEM: Final = "regular expressions are not run, and this is not for a few words: write these"
_REGEX_READ: Final = "a regular expression read as the words that it stands for"
_REGEX: Final = re.compile(r"/(.+)/[gimsuy]*", re.DOTALL)  # a key of SillyTavern that is a regular expression
_REGEX_SIGN: Final = re.compile(r"[\\^$|?*+(){}\[\]]")  # in a key of other programs, which say so by `use_regex`
LOGICS: Final = (SecondaryLogic.ANY, SecondaryLogic.NOT_ALL, SecondaryLogic.NONE, SecondaryLogic.ALL)
_FIRST_OTHER_PLACE: Final = 2  # `position`: 0 and 1 are before and after the description of the character

_PLACES = "its place in the prompt is not kept: all such texts stand together after the conversation"
_RECURSION = "each text brings in others and is brought in by others"
_STICKY = "a text is shown only while its keys are among the last messages"
_COOLDOWN = "a text is shown each time that its keys are among the last messages"
_DELAY = "a text may be shown from the first message on"
_SOURCES = "keys are looked for in messages only"


def _is_other_place(value: JsonValue) -> bool:
    return isinstance(value, int) and value >= _FIRST_OTHER_PLACE


def _has_members(value: JsonValue) -> bool:
    return isinstance(value, dict) and any(value.values())


# What an entry may ask for and does not get here: by its name in a lorebook, below it that in a card; when it does so.
_LEFT_OUT: Final[Mapping[tuple[str, ...], tuple[str, Callable[[JsonValue], bool]]]] = MappingProxyType(
    {
        ("sticky",): (_STICKY, bool),
        ("cooldown",): (_COOLDOWN, bool),
        ("delay",): (_DELAY, bool),
        ("group",): ("all texts of a group are shown whose keys occur, not only one of them", bool),
        ("position",): (_PLACES, _is_other_place),
        ("scanDepth", "scan_depth"): (
            "KEYED_KNOWLEDGE_MESSAGES holds for all texts",
            lambda value: isinstance(value, int),
        ),
        ("matchWholeWords", "match_whole_words"): (
            "keys are whole words here: add their other forms as keys",
            lambda value: value is False,
        ),
        ("excludeRecursion", "exclude_recursion"): (_RECURSION, bool),
        ("preventRecursion", "prevent_recursion"): (_RECURSION, bool),
        ("delayUntilRecursion", "delay_until_recursion"): (_RECURSION, bool),
        ("characterFilter", "character_filter"): (
            "a text belongs to this character, whatever is filtered",
            _has_members,
        ),
        ("triggers",): ("a text is shown for every kind of answer", bool),
        ("automationId", "automation_id"): ("no script is run", bool),
        ("ignoreBudget", "ignore_budget"): ("KEYED_KNOWLEDGE_TOKENS holds for all texts", bool),
        ("priority",): ("`order` decides which texts stay within KEYED_KNOWLEDGE_TOKENS", bool),
        ("matchPersonaDescription", "match_persona_description"): (_SOURCES, bool),
        ("matchCharacterDescription", "match_character_description"): (_SOURCES, bool),
        ("matchCharacterPersonality", "match_character_personality"): (_SOURCES, bool),
        ("matchCharacterDepthPrompt", "match_character_depth_prompt"): (_SOURCES, bool),
        ("matchScenario", "match_scenario"): (_SOURCES, bool),
        ("matchCreatorNotes", "match_creator_notes"): (_SOURCES, bool),
    }
)
_LEFT_OUT_DECORATORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("depth", "reverse_depth", "instruct_depth", "reverse_instruct_depth"), _PLACES),
        **dict.fromkeys(("role", "position"), _PLACES),
        "keep_activate_after_match": _STICKY,
        "dont_activate_after_match": _COOLDOWN,
        **dict.fromkeys(("activate_only_after", "activate_only_every"), _DELAY),
        **dict.fromkeys(("scan_depth", "instruct_scan_depth"), "KEYED_KNOWLEDGE_MESSAGES holds for all texts"),
    }
)
_READ_DECORATORS: Final = frozenset({"activate", "dont_activate", "additional_keys", "exclude_keys"})

Fields = dict[str, JsonValue]


def read_lorebook(node: Node, path: KeyPath, collector: ReportCollector, macros: CardMacros) -> Fields:
    """Return the fields `knowledge` and `settings` for the lorebook that stands at `path` of a file."""
    return _LorebookConversion(node.key_offset, collector, macros).convert(node, path)


def is_lorebook(root: Node) -> bool:
    """Return whether a file is a lorebook alone, and no card or character."""
    members = root.value if isinstance(root.value, dict) else {}
    spec = members.get("spec")
    is_named = spec is not None and isinstance(spec.value, str) and spec.value.startswith("lorebook")
    return is_named or ("entries" in members and members.keys().isdisjoint({"bio", "data", "system"}))


class _LorebookConversion:
    def __init__(self, offset: int, collector: ReportCollector, macros: CardMacros) -> None:
        self._offset, self._collector, self._macros = offset, collector, macros
        self._reader = FieldReader(collector)
        self._left_out: dict[tuple[str, str], list[int]] = {}  # what of entries, and the message: their offsets
        self._is_recursive = False

    def convert(self, node: Node, path: KeyPath) -> Fields:
        book = self._reader.mapping(node, path)
        if "data" in book and "entries" not in book:  # a file of the format `lorebook_v3`
            path = (*path, "data")
            book = self._reader.mapping(book["data"], path)
        self._is_recursive = bool("recursive_scanning" in book and book["recursive_scanning"].value)
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
            message = f"{len(knowledge)} of {len(nodes)} entries read as knowledge, whose keys are found as whole words"
            self._collector.add_mapped(node.key_offset, path, message)
        for (name, message), offsets in self._left_out.items():
            count = "1 entry" if len(offsets) == 1 else f"{len(offsets)} entries"
            self._collector.add_ignored(offsets[0], path, f"{name} of {count}: {message}")
        fields: Fields = {"knowledge": list[JsonValue](knowledge)} if knowledge else {}
        return fields | ({"settings": settings} if settings and knowledge else {})

    def _read_entry(self, node: Node, path: KeyPath) -> Fields:
        """Return an entry of a lorebook as an item of knowledge; nothing for one that is switched off or empty."""
        entry = self._reader.mapping(node, path)
        content, decorators = _split_decorators(str(entry["content"].value if "content" in entry else ""))
        content, chance = self._macros.replace(content, self._offset), _read_probability(entry)
        is_off = ("enabled" in entry and not entry["enabled"].value) or ("disable" in entry and entry["disable"].value)
        is_off = is_off or chance <= 0 or ("dont_activate" in decorators and "activate" not in decorators)
        if is_off or not content:
            self._collector.add_ignored(node.offset, path, "is switched off" if is_off else "has no text")
            return {}
        keys, _ = self._read_keys(entry, "keys", path)
        is_constant = bool("constant" in entry and entry["constant"].value) or "activate" in decorators
        is_found_by_meaning = _is_set(entry, "vectorized")
        if not (keys or is_constant or is_found_by_meaning):
            self._collector.add_ignored(node.offset, path, "has no keys, and is not constant")
            return {}
        item: Fields = {"content": content}
        if keys:
            item["keys"] = keys
        if (secondary := self._read_secondary(entry, decorators, node, path)) is None:
            return {}
        self._note_left_out(entry, decorators, node)
        item |= secondary
        if is_constant:
            item["always"] = True
        sensitive = _member(entry, "case_sensitive") or _entry_extension(entry, "case_sensitive")
        if sensitive and sensitive.value is True:
            item["caseSensitive"] = True
        order = _member(entry, "insertion_order")
        if order and isinstance(order.value, int) and order.value != DEFAULT_ORDER:
            item["order"] = order.value
        if chance < 100:
            item["probability"] = max(round(chance), 1)
        return item

    def _read_secondary(
        self, entry: Mapping[str, Node], decorators: Mapping[str, str], node: Node, path: KeyPath
    ) -> Fields | None:
        """Return the secondary keys and what they decide; None where the text would be shown where it must not be."""
        logic, is_cut = LOGICS[0], False
        keys: list[JsonValue] = []
        if entry.get("selective", node).value:
            keys, is_cut = self._read_keys(entry, "secondary_keys", path)
            number = _number(entry, "selectiveLogic") or 0
            logic = LOGICS[int(number)] if number in range(len(LOGICS)) else logic
        for name, meaning in (("additional_keys", SecondaryLogic.ANY), ("exclude_keys", SecondaryLogic.NONE)):
            words = [word.strip() for word in decorators.get(name, "").split(",") if word.strip()]
            if words and keys:
                is_cut = is_cut or meaning is SecondaryLogic.NONE
                self._leave_out(f"@@{name}", "a text has secondary keys of a single kind", node)
            elif words:
                keys, logic = list[JsonValue](words), meaning
        if is_cut and logic is not SecondaryLogic.ANY:
            message = "would be shown where its secondary keys say that it must not be: write these as words"
            self._collector.add_ignored(node.offset, path, message)
            return None
        fields: Fields = {"secondaryKeys": keys} if keys else {}
        return fields | ({"secondaryLogic": logic.value} if keys and logic is not SecondaryLogic.ANY else {})

    def _note_left_out(self, entry: Mapping[str, Node], decorators: Mapping[str, str], node: Node) -> None:
        """Count what the entry asks for and does not get here."""
        for names, (message, is_asked_for) in _LEFT_OUT.items():
            found = next((member for name in names if (member := _entry_extension(entry, name))), None)
            is_felt = message != _RECURSION or self._is_recursive
            if found is not None and is_felt and is_asked_for(to_json(found)):
                self._leave_out(names[0], message, node)
        for name in decorators:
            if name not in _READ_DECORATORS:
                self._leave_out(f"@@{name[:40]}", _LEFT_OUT_DECORATORS.get(name, _LOST), node)

    def _leave_out(self, name: str, message: str, node: Node) -> None:
        self._left_out.setdefault((name, message), []).append(node.offset)

    def _read_keys(self, entry: Mapping[str, Node], key: str, path: KeyPath) -> tuple[list[JsonValue], bool]:
        """Return the words of an entry, and whether regular expressions were left out of them and reported.

        None is run; of those that stand for a few words, these are returned. SillyTavern sets `use_regex` on every
        entry, and a key is a regular expression there if it stands in slashes.
        """
        node = _member(entry, key)
        texts = self._reader.texts(node, (*path, key)) if node else ()
        is_regex = bool("use_regex" in entry and entry["use_regex"].value)
        words, is_cut = list[str](), False
        for text in (self._macros.replace(text, self._offset) for text in texts):
            pattern = match[1] if (match := _REGEX.fullmatch(text)) else text if is_regex else ""
            found = list_words(pattern) if pattern and (match or _REGEX_SIGN.search(text)) else [text]
            is_cut = is_cut or not found
            words += found
            if node and found and found != [text]:
                self._collector.add_mapped(node.offset, (*path, key), _REGEX_READ)
        if node and is_cut:
            self._collector.add_ignored(node.offset, (*path, key), _REGEX_PROBLEM)
        return [word for word in dict.fromkeys(words) if word], is_cut


def _split_decorators(content: str) -> tuple[str, dict[str, str]]:
    """Return a text without its decorators (`@@name value`), and their values by name.

    One with three `@` is used where the decorator before it has no counterpart here.
    """
    lines, decorators = list[str](), dict[str, str]()
    last = ""
    for line in content.splitlines():
        if not line.startswith("@@"):
            lines.append(line)
            continue
        name, _, value = line.lstrip("@").strip().partition(" ")
        if line.startswith("@@@"):
            if last in _READ_DECORATORS or name not in _READ_DECORATORS:
                continue
            decorators.pop(last, None)
        decorators.setdefault(name, value.strip())
        last = name
    return "\n".join(lines), decorators


def _read_probability(entry: Mapping[str, Node]) -> float:
    """Return in how many of a hundred cases an entry is shown where its keys occur."""
    switch, chance = _entry_extension(entry, "useProbability"), _number(entry, "probability")
    return 100.0 if chance is None or (switch is not None and switch.value is False) else float(chance)


def _entry_extension(entry: Mapping[str, Node], key: str) -> Node | None:
    """Return what SillyTavern keeps of an entry: in a card below `extensions`, in a lorebook beside the keys."""
    extensions = entry.get("extensions")
    found = extensions.value.get(key) if extensions and isinstance(extensions.value, dict) else None
    return found or entry.get(key)


def _is_set(entry: Mapping[str, Node], key: str) -> bool:
    node = _entry_extension(entry, key)
    return node is not None and node.value is True


def _number(entry: Mapping[str, Node], key: str) -> int | float | None:
    node = _entry_extension(entry, key)
    return node.value if node and isinstance(node.value, int | float) else None


def _member(entry: Mapping[str, Node], key: str) -> Node | None:
    """Return a member of an entry by its name in a card, or in an exported lorebook."""
    return entry.get(key) or entry.get(_ENTRY_NAMES[key])


MAX_PATTERN_LENGTH: Final = 300
MAX_PATTERN_DEPTH: Final = 10
MAX_PATTERN_WORDS: Final = 60
_ANCHORS: Final = frozenset("^$")
_SIGNS: Final = frozenset(".*+?{}")


class _EndlessPatternError(Exception):
    """The pattern stands for too many words, or for some that cannot be listed."""


def list_words(pattern: str) -> list[str]:
    """Return the words that match a regular expression; none if they are too many, or cannot be listed.

    Literal characters, groups, alternatives, `?`, sets without ranges, and boundaries are understood.
    """
    try:
        return _PatternReader(pattern[: MAX_PATTERN_LENGTH + 1]).read()
    except _EndlessPatternError:
        return []


class _PatternReader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self._depth = 0

    def read(self) -> list[str]:
        words = self._read_alternatives()
        if len(self._pattern) > MAX_PATTERN_LENGTH or self._position < len(self._pattern):
            raise _EndlessPatternError
        return [word for word in dict.fromkeys(" ".join(word.split()) for word in words) if word]

    def _read_alternatives(self) -> list[str]:
        words = self._read_sequence()
        while self._take("|"):
            words += self._read_sequence()
        return words

    def _read_sequence(self) -> list[str]:
        words = [""]
        while self._position < len(self._pattern) and self._pattern[self._position] not in "|)":
            parts = self._read_part()
            if self._take("?"):
                parts = ["", *parts]
                self._take("?")
            words = [word + part for word in words for part in parts]
            if len(words) > MAX_PATTERN_WORDS:
                raise _EndlessPatternError
        return words

    def _read_part(self) -> list[str]:
        sign = self._next()
        if sign == "(":
            return self._read_group()
        if sign == "[":
            return self._read_set()
        if sign == "\\":
            sign = self._next()
            if sign.isalnum() and sign not in "bs":
                raise _EndlessPatternError
            return [{"b": "", "s": " "}.get(sign, sign)]
        if sign in _SIGNS:
            raise _EndlessPatternError
        return [""] if sign in _ANCHORS else [sign]

    def _read_group(self) -> list[str]:
        self._depth += 1
        is_plain = self._take("?:") or not self._take("?")
        if not is_plain or self._depth > MAX_PATTERN_DEPTH:
            raise _EndlessPatternError
        words = self._read_alternatives()
        if not self._take(")"):
            raise _EndlessPatternError
        self._depth -= 1
        return words

    def _read_set(self) -> list[str]:
        end = self._pattern.find("]", self._position)
        members = self._pattern[self._position : end]
        if end < 0 or not members or members[0] == "^" or "\\" in members or "-" in members[1:-1]:
            raise _EndlessPatternError
        self._position = end + 1
        return list(members)

    def _take(self, text: str) -> bool:
        is_next = self._pattern.startswith(text, self._position)
        self._position += len(text) * is_next
        return is_next

    def _next(self) -> str:
        if self._position >= len(self._pattern):
            raise _EndlessPatternError
        self._position += 1
        return self._pattern[self._position - 1]
