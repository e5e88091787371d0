"""Reads lorebooks ("world info") as knowledge with keys: those inside cards, and files that SillyTavern exports."""

import re
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from bot.characters.card_macros import CardMacros
from bot.characters.field_readers import FieldReader
from bot.characters.json_scanner import Node
from bot.characters.report import ReportCollector
from bot.characters.source_text import Path

DEFAULT_ORDER: Final = 100
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
_REGEX: Final = re.compile(r"/.+/[gimsuy]*", re.DOTALL)  # a key of SillyTavern that is a regular expression
_REGEX_SIGN: Final = re.compile(r"[\\^$|?*+(){}\[\]]")  # in a key of other programs, which say so by `use_regex`

Fields = dict[str, JsonValue]


def read_lorebook(node: Node, path: Path, collector: ReportCollector, macros: CardMacros) -> Fields:
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

    def convert(self, node: Node, path: Path) -> Fields:
        book = self._reader.mapping(node, path)
        if "data" in book and "entries" not in book:  # a file of the format `lorebook_v3`
            path = (*path, "data")
            book = self._reader.mapping(book["data"], path)
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
        content = self._macros.replace("\n".join(line for line in lines if not line.startswith("@@")), self._offset)
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
        return [word for word in (self._macros.replace(text, self._offset) for text in words) if word]


def _entry_extension(entry: Mapping[str, Node], key: str) -> Node | None:
    """Return what SillyTavern keeps of an entry: in a card below `extensions`, in a lorebook beside the keys."""
    extensions = entry.get("extensions")
    found = extensions.value.get(key) if extensions and isinstance(extensions.value, dict) else None
    return found or entry.get(key)


def _number(entry: Mapping[str, Node], key: str) -> int | float | None:
    node = _entry_extension(entry, key)
    return node.value if node and isinstance(node.value, int | float) else None


def _member(entry: Mapping[str, Node], key: str) -> Node | None:
    """Return a member of an entry by its name in a card, or in an exported lorebook."""
    return entry.get(key) or entry.get(_ENTRY_NAMES[key])
