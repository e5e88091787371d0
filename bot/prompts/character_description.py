"""Builds the description of a character for a prompt, and chooses what of a long one it holds.

Style, two examples and the first line of the bio are always in it. The other lines share the remaining length:
each section gets an equal part, and what one does not use goes to the others. Which lines of a section are
chosen depends on a seed only, so that the text stays the same for as long as the seed does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random
from typing import Any

from bot.domain.character import Character
from bot.errors import TemplateError
from bot.prompts.template_language import render_template
from bot.text import grapheme_boundary_before, sanitize_name

MAX_DESCRIPTION_LENGTH = 6_000
MAX_STYLE_LENGTH = 2_000  # of the style rules for everywhere that are always in the text
MAX_PLACE_STYLE_LENGTH = 1_200  # of those for chats or for posts
MAX_FINAL_RULES_LENGTH = 1_200  # of the rules after the conversation
MAX_EXAMPLE_LENGTH = 800  # of an example that is always in the text
MAX_BIO_LENGTH = 400  # of the line of the bio that is always in the text
MIN_CUT_LENGTH = 40  # less of a line is not worth having
MAX_ITEMS = 1_000  # of a section that are looked at
GUARANTEED_EXAMPLES = 2
MAX_EXAMPLES = 5
NAME_PLACEHOLDERS = ("Robin", "Sam", "Alex", "Kim", "Jo", "Max", "Chris", "Toni", "Sasha", "Mika")
SPARE_NAME = "Nico"  # for the one of them that is the character's own


@dataclass(frozen=True, slots=True)
class SectionUse:
    """How much of a section of the character's file a description holds: lines, and characters of them."""

    name: str
    kept: int
    count: int
    kept_length: int
    length: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the section is missing."""
        return self.kept == self.count and self.kept_length == self.length


@dataclass(frozen=True, slots=True)
class CharacterDescription:
    """A description for the prompt, and what it holds of each section that has lines."""

    text: str
    sections: tuple[SectionUse, ...]


_Kept = dict[int, str]  # what is kept of the items of a section, by position


@dataclass(frozen=True, slots=True)
class _Section:
    """Lines of the file. The first `guaranteed` are always kept: each and all in a bounded length.

    `count` is how many the file has. Where `is_ordered`, the first are preferred, else the seed decides.
    """

    name: str
    items: tuple[str, ...]
    count: int
    guaranteed: int = 0
    max_item_length: int = MAX_DESCRIPTION_LENGTH
    max_length: int = MAX_DESCRIPTION_LENGTH
    is_ordered: bool = False

    @property
    def length(self) -> int:
        return sum(map(len, self.items))

    def keep_guaranteed(self) -> _Kept:
        kept: _Kept = {}
        remaining = self.max_length
        for position, item in enumerate(self.items[: self.guaranteed]):
            if not (start := _cut(item, min(self.max_item_length, remaining))):
                break
            kept[position] = start
            remaining -= len(start)
        return kept

    def keep_more(self, kept: _Kept, *, seed: str, share: int, separator_length: int) -> None:
        """Add the items that fit into the share; where nothing is whole then, the beginning of one item."""
        order = list(range(len(self.items)))
        if not self.is_ordered:
            Random(f"{seed} {self.name}").shuffle(order)
            order.sort(key=lambda position: position not in kept)
        too_long: int | None = None
        for position in order:
            item = self.items[position]
            cost = _cost(item, kept.get(position), separator_length)
            if cost <= share:
                kept[position] = item
                share -= cost
            elif too_long is None:
                too_long = position
        if too_long is not None and (too_long in kept or not kept):
            start = kept.get(too_long, "")
            longer = _cut(self.items[too_long], len(start) + share - (0 if start else separator_length))
            if len(longer) > len(start):
                kept[too_long] = longer


@dataclass(frozen=True, slots=True)
class _Block:
    """Sections under one heading."""

    heading: str
    separator: str
    sections: tuple[_Section, ...]
    ending: str = ""

    @property
    def overhead(self) -> int:
        return len(self.heading) + len(self.ending) + 2 if any(section.items for section in self.sections) else 0

    def build_text(self, kept: Mapping[str, _Kept]) -> str:
        items = [item for section in self.sections for _, item in sorted(kept[section.name].items())]
        return f"{self.heading}{self.separator.join(items)}{self.ending}" if items else ""


class _Prose:
    """The lines of one character for chats or for feeds, with their placeholders filled in."""

    def __init__(self, blocks: Sequence[_Block]) -> None:
        self._blocks = blocks
        self._sections = [(section, len(block.separator)) for block in blocks for section in block.sections]
        whole = self._describe({section.name: dict(enumerate(section.items)) for section, _ in self._sections})
        self.whole = whole if len(whole.text) <= MAX_DESCRIPTION_LENGTH else None

    def choose(self, seed: str) -> CharacterDescription:
        """Return a description within the limit; the same seed gives the same one."""
        kept = {section.name: section.keep_guaranteed() for section, _ in self._sections}
        missing = {section.name: section.length - _length(kept[section.name]) for section, _ in self._sections}
        waiting = sorted(
            (pair for pair in self._sections if missing[pair[0].name]), key=lambda pair: missing[pair[0].name]
        )
        for position, (section, separator_length) in enumerate(waiting):
            share = max(self._remaining_length(kept), 0) // (len(waiting) - position)
            section.keep_more(kept[section.name], seed=seed, share=share, separator_length=separator_length)
        return self._describe(kept)

    def _remaining_length(self, kept: Mapping[str, _Kept]) -> int:
        used = sum(block.overhead for block in self._blocks)
        used += sum(_length(kept[section.name]) + len(kept[section.name]) * width for section, width in self._sections)
        return MAX_DESCRIPTION_LENGTH - used

    def _describe(self, kept: Mapping[str, _Kept]) -> CharacterDescription:
        texts = [block.build_text(kept) for block in self._blocks]
        uses = tuple(
            SectionUse(
                section.name, len(kept[section.name]), section.count, _length(kept[section.name]), section.length
            )
            for section, _ in self._sections
            if section.items
        )
        return CharacterDescription("\n\n".join(text for text in texts if text), uses)


def describe_character(
    character: Character, *, seed: str = "", is_feed: bool = False, has_knowledge_index: bool = False
) -> CharacterDescription:
    """Return the description of a character, with the style and examples of feeds or of chats.

    It has at most `MAX_DESCRIPTION_LENGTH` characters; of a longer one, lines are chosen by the seed. With
    `has_knowledge_index` the knowledge of the file is left out, because it is searched. Descriptions are cached.
    """
    prose = _prose(_ByIdentity(character), is_feed, has_knowledge_index)
    return prose.whole or _choose(prose, seed)


def describe_final_rules(character: Character) -> CharacterDescription:
    """Return the rules that stand after the conversation, in at most `MAX_FINAL_RULES_LENGTH` characters; cached."""
    return _final_rules(_ByIdentity(character))


@lru_cache(maxsize=64)
def _final_rules(key: "_ByIdentity") -> CharacterDescription:
    rules = _read_section(
        "finalRules",
        key.character.final_rules,
        values=_placeholder_values(key.character),
        guaranteed=MAX_ITEMS,
        max_length=MAX_FINAL_RULES_LENGTH,
    )
    block = _Block("# Rules for the next message\n- ", "\n- ", (rules,))
    kept = rules.keep_guaranteed()
    use = SectionUse(rules.name, len(kept), rules.count, _length(kept), rules.length)
    return CharacterDescription(block.build_text({rules.name: kept}), (use,) if rules.items else ())


class _ByIdentity:
    """A character as a key: characters hold mappings and have no hash."""

    __slots__ = ("character",)

    def __init__(self, character: Character) -> None:
        self.character = character

    def __hash__(self) -> int:
        return id(self.character)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.character is self.character


@lru_cache(maxsize=512)
def _choose(prose: _Prose, seed: str) -> CharacterDescription:
    return prose.choose(seed)


@lru_cache(maxsize=64)
def _prose(key: _ByIdentity, is_feed: bool, has_knowledge_index: bool) -> _Prose:
    character = key.character
    name, values = sanitize_name(character.name), _placeholder_values(character)
    read = partial(_read_section, values=values)
    knowledge = () if has_knowledge_index else tuple(item.content for item in character.knowledge if not item.is_keyed)
    style = partial(read, guaranteed=MAX_ITEMS, is_ordered=True)
    return _Prose(
        [
            _Block(
                f"# About {name}\n- ",
                "\n- ",
                (
                    read("bio", character.bio, guaranteed=1, max_item_length=MAX_BIO_LENGTH),
                    read("lore", character.lore),
                ),
            ),
            _Block(f"{name} is: ", ", ", (read("adjectives", character.adjectives),), "."),
            _Block(f"{name} knows about and likes to talk about: ", ", ", (read("topics", character.topics),), "."),
            _Block("# Facts\n- ", "\n- ", (read("knowledge texts", knowledge),)),
            _Block(
                "# How to write\n- ",
                "\n- ",
                (
                    style("style.all", character.style.all, max_length=MAX_STYLE_LENGTH),
                    style("style.post", character.style.post, max_length=MAX_PLACE_STYLE_LENGTH)
                    if is_feed
                    else style("style.chat", character.style.chat, max_length=MAX_PLACE_STYLE_LENGTH),
                ),
            ),
            _post_examples(character, values) if is_feed else _message_examples(character, values),
        ]
    )


def _placeholder_values(character: Character) -> dict[str, str]:
    """Return what the placeholders in the texts of a character stand for: its own name, and first names of people."""
    name = sanitize_name(character.name)
    own = name.casefold().split()
    others = [SPARE_NAME if other.casefold() in own else other for other in NAME_PLACEHOLDERS]
    placeholders = {f"{kind}{number}": other for number, other in enumerate(others, 1) for kind in ("user", "name")}
    return {**dict.fromkeys(("agentName", "agent", "char"), name), "user": others[0], **placeholders}


def _message_examples(character: Character, values: Mapping[str, str]) -> _Block:
    conversations = [
        "\n".join(f"{line.name}: {line.content.text}" for line in conversation)
        for conversation in character.message_examples
    ]
    return _Block("# Talks that sound right\n\n", "\n\n", (_examples("messageExamples", conversations, values),))


def _post_examples(character: Character, values: Mapping[str, str]) -> _Block:
    section = _examples("postExamples", character.post_examples, values)
    return _Block("# Posts that sound right\n- ", "\n- ", (section,))


def _examples(name: str, texts: Sequence[str], values: Mapping[str, str]) -> _Section:
    return _read_section(
        name,
        texts,
        values=values,
        max_items=MAX_EXAMPLES,
        guaranteed=GUARANTEED_EXAMPLES,
        max_item_length=MAX_EXAMPLE_LENGTH,
        is_ordered=True,
    )


def _read_section(
    name: str, texts: Sequence[str], *, values: Mapping[str, str], max_items: int = MAX_ITEMS, **limits: Any
) -> _Section:
    lines = [line for text in texts if (line := text.strip())]
    items = tuple(_render(line, values) if "{{" in line else line for line in lines[:max_items])
    return _Section(name, items, len(lines), **limits)


def _render(text: str, values: Mapping[str, str]) -> str:
    """Fill in placeholders; a text that is no valid template is returned unchanged."""
    try:
        return render_template(text, values)
    except TemplateError:
        return text


def _length(kept: _Kept) -> int:
    return sum(map(len, kept.values()))


def _cost(item: str, start: str | None, separator_length: int) -> int:
    """Return what the whole item adds in characters where its `start` is kept already."""
    return len(item) + separator_length if start is None else len(item) - len(start)


def _cut(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters, cut after a word; nothing if that is too little."""
    if len(text) <= limit:
        return text
    if limit < MIN_CUT_LENGTH:
        return ""
    start = text[: grapheme_boundary_before(text, limit - 1)]
    return f"{start.rpartition(' ')[0].rstrip() or start}…"
