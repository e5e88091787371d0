"""Indexing and search of a character's documents.

The KEYED_KNOWLEDGE provider: texts of the character file that belong to words of the conversation.
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from random import Random
from uuid import UUID

from pydantic import Field

from bot import (
    Agent,
    Character,
    Memory,
    MemoryKind,
    ProviderResult,
    RecallScope,
    Service,
    SettingsModel,
    Turn,
    derived_id,
    provider,
)
from bot.models import ModelError, ModelType
from bot.platform import MemoryLimitReached
from bot.prompts import AUTHORS_KEY
from bot.store import MemoryMatch
from bot.text import escape_line, is_blank
from plugins.knowledge.documents import (
    COPIES,
    MAX_FILES,
    IndexedDocument,
    NewDocument,
    Source,
    UnreadableDocument,
    build_memories,
    list_sources,
    split_text,
)

logger = logging.getLogger(__name__)
MAX_PASSAGES = 4
SMALL_LIBRARY_LENGTH = 2_000
MIN_SIMILARITY = 0.2
FUSION_CONSTANT = 10
MAX_FRAGMENTS = 20_000
MAX_ADDED_DOCUMENTS = 1_000
EMBEDDING_BATCH_SIZE = 64
EMBEDDING_BYTES = 8 * 2**20  # of the vectors of a batch, in JSON and as numbers
INDEX_WAIT_TIMEOUT = 3.0
SPLITTING_VERSION = "1"  # change it to split all documents again


@dataclass(frozen=True, slots=True)
class Passage:
    """A fragment of a document with the document's name, its URL if it has one, and the authors of its words.

    Texts of the operator have no authors. `similarity` is None for one that was not found by its meaning.
    """

    name: str
    text: str
    url: str = ""
    authors: tuple[UUID, ...] = ()
    similarity: float | None = None
    memory_id: UUID | None = None


class KnowledgeIndex(Service):
    """Index of a character's documents: a memory per document and one per fragment.

    Those of the character file, and those that the operator adds, are visible to every user, because they were chosen
    for that; a document that was added in a chat is visible in the world of that chat.
    """

    capability = "look things up in its documents"

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._room_id = derived_id(agent.id, "knowledge")
        self._added_room_id = derived_id(agent.id, "knowledge", "added")
        self._adding = asyncio.Lock()
        self._updating = asyncio.Lock()
        self._fingerprints: dict[str, tuple[str, str]] = {}
        self._small_fragments: list[Memory] | None = None
        self._is_indexed = asyncio.Event()
        self.problems: dict[str, str] = {}  # of documents of the character file, by name

    async def update(self) -> None:
        """Index new and changed documents, and remove deleted ones.

        Raises ModelError if embedding failed; the documents are then found by words only.
        """
        try:
            async with self._updating:
                await self._update()
        finally:
            self._small_fragments = None
            self._is_indexed.set()

    async def list_documents(self) -> dict[str, Memory]:
        """Return the indexed documents by name."""
        store = self.agent.store.memories
        memories = await store.recent(self._room_id, MAX_FILES * 10, kind=MemoryKind.DOCUMENT)
        return {str(document.metadata["name"]): document for document in memories}

    async def list_added(self, world_id: UUID | None = None) -> list[Memory]:
        """Return the documents that were added while the bot ran, in a world or all, oldest first."""
        documents = await self.agent.store.memories.recent(
            self._added_room_id, MAX_ADDED_DOCUMENTS, kind=MemoryKind.DOCUMENT
        )
        return [document for document in documents if world_id in (None, document.world_id)]

    async def add(self, document: NewDocument) -> Memory:
        """Add a document, or replace one of the same name in the same world; return its memory.

        Raises UnreadableDocument for one without text and if there are too many, ModelError if embedding fails,
        MemoryLimitReached.
        """
        # The memory first: an upload that waits for the lock holds some.
        async with self.agent.memory.hold(len(document.text) + EMBEDDING_BYTES), self._adding:
            pieces = await asyncio.to_thread(split_text, document.text)
            if not pieces:
                raise UnreadableDocument(f"{document.name!r}: it has no text")
            stored = await self.list_added()
            fragment_count = await self.agent.store.memories.count(MemoryKind.FRAGMENT)
            if len(stored) >= MAX_ADDED_DOCUMENTS or fragment_count + len(pieces) > MAX_FRAGMENTS:
                raise UnreadableDocument("there are too many documents: delete some")
            vectors: Sequence[tuple[float, ...] | None] = [None] * len(pieces)
            model = ""
            if self.agent.models.has_handler_for(ModelType.TEXT_EMBEDDING):
                model = (await self.agent.models.embed(["knowledge"])).model
                vectors = await self._embed_pieces(pieces)
            digest = sha256(document.text.encode("utf-8", "replace")).hexdigest()
            entry = IndexedDocument(document.name, digest, pieces, vectors, model, document)
            memories = build_memories(entry, self.agent.id, self._added_room_id, self.agent.clock())
            added = memories[0]
            for old in stored:  # a document of a migrated group has the id of the world before
                if (old.metadata["name"], old.world_id) == (added.metadata["name"], added.world_id):
                    await self.remove_document(old)
            await self.agent.store.memories.add(memories)
            self._small_fragments = None
            return added

    async def remove_document(self, document: Memory) -> None:
        """Remove a document and its fragments."""
        fragments = [UUID(fragment_id) for fragment_id in document.metadata["fragments"]]
        await self.agent.store.memories.remove([document.id, *fragments])
        self._small_fragments = None

    async def read_again(self, document: Memory) -> None:
        """Read a document of the character file once more, whether it has changed or not. Raises ModelError."""
        name = str(document.metadata["name"])
        self._fingerprints.pop(name, None)
        self.problems.pop(name, None)
        await self.remove_document(document)
        await self.update()

    def clear_cache(self) -> None:
        """Read the stored fragments again at the next search: something else has deleted some."""
        self._small_fragments = None

    async def search(self, question: str, scope: RecallScope) -> list[Passage]:
        """Return the most relevant passages, best first; all passages, in their order, if they are few."""
        with suppress(TimeoutError):
            async with asyncio.timeout(INDEX_WAIT_TIMEOUT):
                await self._is_indexed.wait()
        self._is_indexed.set()  # later calls do not wait again
        if fragments := await self._small_documents():
            return [_to_passage(fragment) for fragment in fragments if scope.covers(fragment)]
        if is_blank(question):
            return []
        store = self.agent.store.memories
        by_words = await store.search(question, scope, MemoryKind.FRAGMENT, MAX_PASSAGES)
        matches = await self._search_by_embedding(question, scope)
        similarities = {match.memory.id: match.similarity for match in matches}
        ranked = _merge_rankings([match.memory for match in matches], by_words)
        return [_to_passage(fragment, similarities.get(fragment.id)) for fragment in ranked[:MAX_PASSAGES]]

    async def _update(self) -> None:
        sources = await asyncio.to_thread(list_sources, self.agent.character, self.agent.folder)
        stored = await self.list_documents()
        for name in stored.keys() - {source.name for source in sources}:
            await self.remove_document(stored[name])
        model, failure = await self._probe_embedding_model()
        count, self.problems = 0, {name: self.problems[name] for name in self.problems if name in self._fingerprints}
        for source in sources:
            document = stored.get(source.name)
            size = COPIES * await asyncio.to_thread(source.count_bytes) + EMBEDDING_BYTES
            try:
                async with self.agent.memory.hold(size):
                    document = await self._index_document(source, document, model)
            except (UnreadableDocument, MemoryLimitReached) as error:
                self.problems[source.name] = str(error)
                logger.warning("%s is skipped: %s", source.name, error, extra={"once": True})
            except ModelError as error:
                failure = error
            count += len(document.metadata["fragments"]) if document is not None else 0
            if count > MAX_FRAGMENTS:
                logger.warning(
                    "the documents after %s are skipped: there are too many fragments",
                    source.name,
                    extra={"once": True},
                )
                break
        if model:
            await self._embed_added(model)
        if failure is not None:
            raise failure

    async def _embed_added(self, model: str) -> None:
        """Embed the added documents again whose vectors are of another model. Raises ModelError."""
        store = self.agent.store.memories
        for document in await self.list_added():
            if document.metadata["model"] == model:
                continue
            ids = [UUID(fragment_id) for fragment_id in document.metadata["fragments"]]
            fragments = await store.memories(ids)
            vectors = await self._embed_pieces([fragment.content.text for fragment in fragments.values()])
            embedded = [
                replace(fragment, embedding=vector, embedding_model=model)
                for fragment, vector in zip(fragments.values(), vectors, strict=True)
            ]
            await store.add([replace(document, metadata={**document.metadata, "model": model}), *embedded])

    async def _probe_embedding_model(self) -> tuple[str | None, ModelError | None]:
        """Return the current embedding model: empty if there is none, None with its error if it fails."""
        if not self.agent.models.has_handler_for(ModelType.TEXT_EMBEDDING):
            return "", None
        try:
            return (await self.agent.models.embed(["knowledge"])).model, None
        except ModelError as error:
            return None, error

    async def _index_document(self, source: Source, stored: Memory | None, model: str | None) -> Memory | None:
        """Index a source if it has changed and return its document. Raises UnreadableDocument, ModelError."""
        fingerprint = (await asyncio.to_thread(source.fingerprint), model or "")
        if self._fingerprints.get(source.name) == fingerprint:
            return stored
        data = await asyncio.to_thread(source.read)
        digest = sha256(SPLITTING_VERSION.encode() + data).hexdigest()
        self._fingerprints[source.name] = fingerprint  # an unreadable file is not read again until it changes
        is_same = stored is not None and stored.metadata["digest"] == digest
        if stored is not None and is_same and model in (None, stored.metadata["model"]):
            return stored
        pieces = await source.split(self.agent, data)
        vectors: Sequence[tuple[float, ...] | None] = [None] * len(pieces)
        failure = None
        if model:
            try:
                vectors = await self._embed_pieces(pieces)
            except ModelError as error:
                model, failure = "", error
                del self._fingerprints[source.name]
        entry = IndexedDocument(source.name, digest, pieces, vectors, model or "")
        memories = build_memories(entry, self.agent.id, self._room_id, self.agent.clock())
        if stored is not None:
            await self.remove_document(stored)
        await self.agent.store.memories.add(memories)
        if failure is not None:
            raise failure
        return memories[0]

    async def _embed_pieces(self, pieces: Sequence[str]) -> list[tuple[float, ...]]:
        vectors: list[tuple[float, ...]] = []
        for start in range(0, len(pieces), EMBEDDING_BATCH_SIZE):
            vectors += (await self.agent.models.embed(pieces[start : start + EMBEDDING_BATCH_SIZE])).vectors
        return vectors

    async def _small_documents(self) -> list[Memory]:
        """Return all fragments in document order, or none if they are too long for one prompt."""
        if self._small_fragments is None:
            self._small_fragments = await self._load_small_documents()
        not_read = self.agent.store.marks.not_read
        return [fragment for fragment in self._small_fragments if fragment.entity_id not in not_read]

    async def _load_small_documents(self) -> list[Memory]:
        store = self.agent.store.memories
        rooms = (self._room_id, self._added_room_id)
        count = sum([await store.count(MemoryKind.FRAGMENT, room_id) for room_id in rooms])
        if count > SMALL_LIBRARY_LENGTH:  # each has at least one character
            return []
        fragments = [
            fragment
            for room_id in rooms
            for fragment in await store.recent(room_id, SMALL_LIBRARY_LENGTH, kind=MemoryKind.FRAGMENT)
        ]
        if sum(len(fragment.content.text) for fragment in fragments) > SMALL_LIBRARY_LENGTH:
            return []
        return sorted(fragments, key=lambda fragment: (fragment.metadata["name"], fragment.metadata["number"]))

    async def _search_by_embedding(self, question: str, scope: RecallScope) -> list[MemoryMatch]:
        models = self.agent.models
        if not models.has_handler_for(ModelType.TEXT_EMBEDDING):
            return []
        try:
            embedded = await models.embed([question], is_question=True)
        except ModelError as error:
            logger.info("documents are searched by words only: %s", error)
            return []
        matches = await self.agent.store.memories.recall(
            embedded.vectors[0], embedded.model, scope, MemoryKind.FRAGMENT, MAX_PASSAGES
        )
        return [match for match in matches if match.similarity >= MIN_SIMILARITY]


def _merge_rankings(*rankings: Sequence[Memory]) -> list[Memory]:
    """Merge rankings by reciprocal rank fusion."""
    memories = {memory.id: memory for ranking in rankings for memory in ranking}
    scores = dict.fromkeys(memories, 0.0)
    for ranking in rankings:
        for rank, memory in enumerate(ranking):
            scores[memory.id] += 1 / (FUSION_CONSTANT + rank)
    return sorted(memories.values(), key=lambda memory: -scores[memory.id])


def _to_passage(fragment: Memory, similarity: float | None = None) -> Passage:
    metadata = fragment.metadata
    authors = tuple(UUID(author) for author in metadata.get(AUTHORS_KEY, ()))
    name = str(metadata.get("name", "a document"))
    return Passage(name, fragment.content.text, metadata.get("url", ""), authors, similarity, fragment.id)


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
    logic: str
    probability: int

    def matches(self, found: Set[str]) -> bool:
        """Return whether one of its keys was found, and as many secondary keys as it says, or it needs none."""
        if self.always:
            return True
        return not self.keys.isdisjoint(found) and (not self.secondary_keys or self._allows(found))

    def _allows(self, found: Set[str]) -> bool:
        match self.logic:
            case "all":
                return self.secondary_keys <= found
            case "not all":
                return not self.secondary_keys <= found
            case "none":
                return self.secondary_keys.isdisjoint(found)
            case _:
                return not self.secondary_keys.isdisjoint(found)


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
                item.secondary_logic,
                item.probability,
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

    def choose_texts(self, messages: Sequence[str], settings: KnowledgeSettings, seed: str) -> list[str]:
        """Return the texts whose keys occur in the messages, as many as fit in, in ascending order.

        Where that is set, keys may also occur in the texts that were found by then. Of texts with a probability, the
        seed decides which may be chosen.
        """
        found_keys: dict[bool, set[str]] = {True: set(), False: set()}
        found, chance = list[_Entry](), Random(seed)
        others = [
            entry for entry in self.entries if entry.probability == 100 or entry.probability > chance.random() * 100
        ]
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
    texts = await asyncio.to_thread(lorebook.choose_texts, messages, settings, str(turn.message.id))
    if not texts:
        return ProviderResult(authors=())
    text = "\n".join([HEADING, *(f"- {escape_line(item)}" for item in texts)])
    return ProviderResult(text, {"keyedKnowledge": text}, authors=())
