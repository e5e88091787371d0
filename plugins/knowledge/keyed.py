"""The KEYED_KNOWLEDGE provider: texts of the character file that belong to words of the conversation."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import Field

from bot import Agent, Character, ProviderResult, Service, SettingsModel, Turn, provider
from bot.text import escape_line

HEADING = "# What you know about this"
MAX_ROUNDS = 4  # of texts whose words bring in further texts
MAX_SCANNED_LENGTH = 20_000
CHARACTERS_PER_TOKEN = 4
_WITHOUT_SPACES = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\U0010ffff]")


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


@dataclass(frozen=True, slots=True)
class _Entry:
    """A text of the file with the patterns of its keys."""

    text: str
    order: int
    always: bool
    keys: re.Pattern[str] | None
    secondary_keys: re.Pattern[str] | None

    def matches(self, text: str) -> bool:
        if self.keys is None or not self.keys.search(text):
            return False
        return self.secondary_keys is None or self.secondary_keys.search(text) is not None


class KeyedKnowledge(Service):
    """The knowledge with keys of the character file as it is now."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._character: Character | None = None
        self._entries: tuple[_Entry, ...] = ()

    def read_entries(self) -> Sequence[_Entry]:
        """Return the entries of the file; they are built again when it was read again."""
        character = self.agent.character
        if character is not self._character:
            self._character = character
            self._entries = tuple(
                _Entry(
                    item.content,
                    item.order,
                    item.always,
                    _compile(item.keys, item.case_sensitive),
                    _compile(item.secondary_keys, item.case_sensitive),
                )
                for item in character.knowledge
                if item.is_keyed
            )
        return self._entries


def choose_texts(entries: Sequence[_Entry], messages: Sequence[str], settings: KnowledgeSettings) -> list[str]:
    """Return the texts whose keys occur in the messages, as many as fit in, in ascending order."""
    scanned = "\n".join(messages)[-MAX_SCANNED_LENGTH:]
    found = [entry for entry in entries if entry.always or entry.matches(scanned)]
    for _ in range(MAX_ROUNDS if settings.keyed_knowledge_recursive else 0):
        words = "\n".join(entry.text for entry in found)[:MAX_SCANNED_LENGTH]
        more = [entry for entry in entries if entry not in found and entry.matches(words)]
        if not more:
            break
        found += more
    found.sort(key=lambda entry: (not entry.always, -entry.order))
    kept = _fitting(found, settings.keyed_knowledge_tokens * CHARACTERS_PER_TOKEN)
    return [entry.text for entry in sorted(kept, key=lambda entry: entry.order)]


def _fitting(entries: Sequence[_Entry], limit: int) -> Iterator[_Entry]:
    for entry in entries:
        if len(entry.text) <= limit:
            limit -= len(entry.text)
            yield entry


def _compile(keys: Sequence[str], is_case_sensitive: bool) -> re.Pattern[str] | None:
    """Return a pattern of any of the keys as whole words; None if there are none.

    In scripts that write no spaces between words, a key is found anywhere.
    """
    patterns = [_whole_word(key.strip()) for key in keys if key.strip()]
    return re.compile("|".join(patterns), 0 if is_case_sensitive else re.IGNORECASE) if patterns else None


def _whole_word(key: str) -> str:
    start = r"(?<!\w)" if key[0].isalnum() and not _WITHOUT_SPACES.match(key[0]) else ""
    end = r"(?!\w)" if key[-1].isalnum() and not _WITHOUT_SPACES.match(key[-1]) else ""
    return start + re.escape(key) + end


@provider("KEYED_KNOWLEDGE", "What the character's file says about words of the conversation.", position=104)
async def keyed_knowledge(turn: Turn) -> ProviderResult:
    """Return the texts of the file whose keys occur in the last messages; the operator has written them."""
    entries = turn.agent.services[KeyedKnowledge].read_entries()
    if not entries:
        return ProviderResult(authors=())
    settings = turn.agent.settings.load(KnowledgeSettings)
    limit = settings.keyed_knowledge_messages
    conversation = await turn.agent.store.memories.conversation(turn.room.id, limit)
    messages = [message.content.text for message in conversation.messages[-limit:]]
    messages += [turn_input.message.content.text for turn_input in turn.inputs]
    texts = choose_texts(entries, messages, settings)
    if not texts:
        return ProviderResult(authors=())
    text = "\n".join([HEADING, *(f"- {escape_line(item)}" for item in texts)])
    return ProviderResult(text, {"keyedKnowledge": text}, authors=())
