"""The KEYED_KNOWLEDGE provider: texts of the character file that belong to words of the conversation."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from pydantic import Field

from bot import Agent, Character, ProviderResult, Service, SettingsModel, Turn, provider
from bot.text import escape_line

HEADING = "# What you know about this"
MAX_ROUNDS = 4  # of texts whose words bring in further texts
MAX_SCANNED_LENGTH = 20_000
MAX_START_LENGTH = 3  # of the characters by which keys are found
CHARACTERS_PER_TOKEN = 4
_WITHOUT_SPACES = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\U0010ffff]")
_WORD_START, _WORD_CHARACTER = re.compile(r"(?<!\w)\w"), re.compile(r"\w")


class KnowledgeSettings(SettingsModel):
    """How much of the knowledge with keys is in a prompt."""

    CHARACTER_SETTINGS = frozenset(["KEYED_KNOWLEDGE_MESSAGES", "KEYED_KNOWLEDGE_RECURSIVE", "KEYED_KNOWLEDGE_TOKENS"])

    keyed_knowledge_messages: int = Field(
        4, ge=1, le=100, description="In how many of the last messages the keys of knowledge are looked for."
    )
    keyed_knowledge_recursive: bool = Field(
        False, description="Whether keys are also looked for in the knowledge that was found by them."
    )
    keyed_knowledge_tokens: int = Field(
        600, ge=10, le=20_000, description="How many tokens of knowledge with keys are in a prompt at most, about."
    )


class _KeySearch:
    """Finds the keys that occur in a text, in a time that depends on the text and hardly on how many keys there are.

    They are found as whole words; in scripts that write no spaces between words, anywhere.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = frozenset(keys)
        # The lengths of keys by their first characters, and by whether they begin where a word does.
        self._lengths: dict[bool, dict[str, set[int]]] = {True: {}, False: {}}
        for key in self._keys:
            self._lengths[_needs_boundary(key[0])].setdefault(key[:MAX_START_LENGTH], set()).add(len(key))

    def find(self, text: str) -> Iterator[str]:
        if lengths := self._lengths[True]:
            for word in _WORD_START.finditer(text):
                yield from self._find_at(text, word.start(), lengths)
        if lengths := self._lengths[False]:
            for start in range(len(text)):
                yield from self._find_at(text, start, lengths)

    def _find_at(self, text: str, start: int, lengths: Mapping[str, Set[int]]) -> Iterator[str]:
        for end in range(start + 1, start + 1 + MAX_START_LENGTH):
            for length in lengths.get(text[start:end], ()):
                key = text[start : start + length]
                is_cut = _needs_boundary(key[-1]) and _WORD_CHARACTER.match(text, start + length)
                if key in self._keys and not is_cut:
                    yield key


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """A text of the file with its keys, as they are searched for."""

    text: str
    order: int
    always: bool
    is_case_sensitive: bool
    keys: frozenset[str]
    secondary_keys: frozenset[str]

    def matches(self, found: Set[str]) -> bool:
        """Return whether one of its keys was found, and one of the secondary keys if it has any, or it needs none."""
        if self.always:
            return True
        return not self.keys.isdisjoint(found) and not (self.secondary_keys and self.secondary_keys.isdisjoint(found))


class Lorebook:
    """The items of a character file that have keys, or are always shown, prepared to be searched."""

    def __init__(self, character: Character) -> None:
        self.entries = [
            _Entry(
                item.content,
                item.order,
                item.always,
                item.case_sensitive,
                _prepare_keys(item.keys, is_case_sensitive=item.case_sensitive),
                _prepare_keys(item.secondary_keys, is_case_sensitive=item.case_sensitive),
            )
            for item in character.knowledge
            if item.is_keyed
        ]
        self._searches = {
            is_exact: _KeySearch(
                key
                for entry in self.entries
                if entry.is_case_sensitive is is_exact
                for key in entry.keys | entry.secondary_keys
            )
            for is_exact in (True, False)
        }

    def choose_texts(self, messages: Sequence[str], settings: KnowledgeSettings) -> list[str]:
        """Return the texts whose keys occur in the messages, as many as fit in, in ascending order.

        Where that is set, keys may also occur in the texts that were found by then.
        """
        found_keys: dict[bool, set[str]] = {True: set(), False: set()}
        found, others = list[_Entry](), self.entries
        text = "\n".join(messages)[-MAX_SCANNED_LENGTH:]
        for _ in range(1 + MAX_ROUNDS * settings.keyed_knowledge_recursive):
            for is_exact, search in self._searches.items():
                found_keys[is_exact].update(search.find(text if is_exact else _fold(text)))
            more = [entry for entry in others if entry.matches(found_keys[entry.is_case_sensitive])]
            if not more:
                break
            found += more
            others = [entry for entry in others if not entry.matches(found_keys[entry.is_case_sensitive])]
            text = "\n".join(entry.text for entry in more)[:MAX_SCANNED_LENGTH]
        found.sort(key=lambda entry: (not entry.always, -entry.order))
        kept = _fitting(found, settings.keyed_knowledge_tokens * CHARACTERS_PER_TOKEN)
        return [entry.text for entry in sorted(kept, key=lambda entry: entry.order)]


def _fitting(entries: Sequence[_Entry], limit: int) -> Iterator[_Entry]:
    for entry in entries:
        if len(entry.text) <= limit:
            limit -= len(entry.text)
            yield entry


def _prepare_keys(keys: Iterable[str], *, is_case_sensitive: bool) -> frozenset[str]:
    words = filter(None, map(str.strip, keys))
    return frozenset(words if is_case_sensitive else map(_fold, words))


def _fold(text: str) -> str:
    """Return a text without differences of case, among them those of the two letters i of Turkish."""
    return text.replace("İ", "i").replace("ı", "i").casefold()


def _needs_boundary(char: str) -> bool:
    """Return whether a key that begins or ends with this character does so where a word does."""
    return char.isalnum() and not _WITHOUT_SPACES.match(char)


class KeyedKnowledge(Service):
    """The knowledge with keys of the character file as it is now."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._character: Character | None = None
        self._lorebook: Lorebook | None = None

    async def read_lorebook(self) -> Lorebook:
        """Return the items with keys; they are prepared again when the file was read again."""
        character, lorebook = self.agent.character, self._lorebook
        if lorebook is None or character is not self._character:
            lorebook = await asyncio.to_thread(Lorebook, character)
            self._character, self._lorebook = character, lorebook
        return lorebook


@provider("KEYED_KNOWLEDGE", "What the character's file says about words of the conversation.", position=104)
async def keyed_knowledge(turn: Turn) -> ProviderResult:
    """Return the texts of the file whose keys occur in the last messages; the operator has written them."""
    lorebook = await turn.agent.services[KeyedKnowledge].read_lorebook()
    if not lorebook.entries:
        return ProviderResult(authors=())
    settings = turn.agent.settings.load(KnowledgeSettings)
    limit = settings.keyed_knowledge_messages
    conversation = await turn.agent.store.memories.conversation(turn.room.id, limit)
    messages = [message.content.text for message in conversation.messages[-limit:]]
    messages += [turn_input.message.content.text for turn_input in turn.inputs]
    texts = await asyncio.to_thread(lorebook.choose_texts, messages, settings)
    if not texts:
        return ProviderResult(authors=())
    text = "\n".join([HEADING, *(f"- {escape_line(item)}" for item in texts)])
    return ProviderResult(text, {"keyedKnowledge": text}, authors=())
