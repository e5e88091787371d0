"""The documents of a character: taken in where they are new or changed, and searched."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from bot import Agent, Memory, MemoryKind, Reach, Service, derived_id
from bot.models import ModelError, ModelType
from bot.text import is_blank
from plugins.knowledge.chunks import Entry, written
from plugins.knowledge.documents import MOST_FILES, Source, Unreadable, sources_of

logger = logging.getLogger(__name__)
MOST_PASSAGES = 4
TOLD_WHOLE = 2_000
LEAST_LIKENESS = 0.2
FUSION = 10
MOST_FRAGMENTS = 20_000
BATCH = 64
PATIENCE = 3.0
CUTTING = "1"  # renewed with how documents are cut, so that all are cut anew


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document, and the document's name."""

    name: str
    text: str


class Library(Service):
    """Keeps a document as a memory of its own and its fragments as memories drawn from it.

    All of them are for everybody the character talks to: whoever wrote its file chose them for that.
    """

    capability = "look things up in its documents"

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._place = derived_id(agent.id, "knowledge")
        self._stamps: dict[str, tuple[str, str]] = {}
        self._whole: list[Memory] | None = None
        self._is_read = asyncio.Event()

    async def index(self) -> None:
        """Take in what is new or changed, and forget what is gone.

        Raises ModelError where vectors could not be made; found by its words it is all the same.
        """
        try:
            await self._index()
        finally:
            self._whole = None
            self._is_read.set()

    async def documents(self) -> dict[str, Memory]:
        """List what was taken in, by name."""
        store = self.agent.store.memories
        found = await store.recent(self._place, MOST_FILES * 10, kind=MemoryKind.DOCUMENT)
        return {str(document.metadata["name"]): document for document in found}

    async def forget(self, document: Memory) -> None:
        """Forget a document and every fragment of it."""
        fragments = [UUID(one) for one in document.metadata["fragments"]]
        await self.agent.store.memories.remove([document.id, *fragments])
        self._whole = None

    async def search(self, question: str, reach: Reach) -> list[Passage]:
        """Find what bears on a question, the best first; a small library is told whole, in its own order."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._is_read.wait()
        self._is_read.set()  # whoever comes later does not wait again
        if whole := await self._told_whole():
            return list(map(_passage, whole))
        if is_blank(question):
            return []
        store = self.agent.store.memories
        by_words = await store.search(question, reach, MemoryKind.FRAGMENT, MOST_PASSAGES)
        found = _merged(await self._by_meaning(question, reach), by_words)
        return list(map(_passage, found[:MOST_PASSAGES]))

    async def _index(self) -> None:
        sources = await asyncio.to_thread(sources_of, self.agent.character, self.agent.folder)
        known = await self.documents()
        for name in known.keys() - {source.name for source in sources}:
            await self.forget(known[name])
        model, fault = await self._model()
        count = 0
        for source in sources:
            document = known.get(source.name)
            try:
                document = await self._take_in(source, document, model)
            except Unreadable as error:
                logger.warning("%s is not read: %s", source.name, error)
            except ModelError as error:
                fault = error
            count += len(document.metadata["fragments"]) if document is not None else 0
            if count > MOST_FRAGMENTS:
                logger.warning("what comes after %s is not read: it is too much", source.name)
                break
        if fault is not None:
            raise fault

    async def _model(self) -> tuple[str | None, ModelError | None]:
        """Tell which model makes vectors now: an empty name where none does, None where it fails."""
        if not self.agent.models.serves(ModelType.TEXT_EMBEDDING):
            return "", None
        try:
            return (await self.agent.models.embed(["knowledge"])).model, None
        except ModelError as error:
            return None, error

    async def _take_in(self, source: Source, known: Memory | None, model: str | None) -> Memory | None:
        """Take a source in unless that was done; gives its document. Raises Unreadable, ModelError."""
        stamp = (await asyncio.to_thread(source.stamp), model or "")
        if self._stamps.get(source.name) == stamp:
            return known
        data = await asyncio.to_thread(source.read)
        digest = sha256(CUTTING.encode() + data).hexdigest()
        self._stamps[source.name] = stamp  # what cannot be read is not tried again until it changes
        is_same = known is not None and known.metadata["digest"] == digest
        if known is not None and is_same and model in (None, known.metadata["model"]):
            return known
        pieces = await asyncio.to_thread(source.pieces, data)
        vectors: Sequence[tuple[float, ...] | None] = [None] * len(pieces)
        fault = None
        if model:
            try:
                vectors = await self._vectors(pieces)
            except ModelError as error:
                model, fault = "", error
                del self._stamps[source.name]
        entry = Entry(source.name, digest, pieces, vectors, model or "")
        kept = written(entry, self.agent.id, self._place, self.agent.clock())
        if known is not None:
            await self.forget(known)
        await self.agent.store.memories.add(kept)
        if fault is not None:
            raise fault
        return kept[0]

    async def _vectors(self, pieces: Sequence[str]) -> list[tuple[float, ...]]:
        vectors: list[tuple[float, ...]] = []
        for start in range(0, len(pieces), BATCH):
            vectors += (await self.agent.models.embed(pieces[start : start + BATCH])).vectors
        return vectors

    async def _told_whole(self) -> list[Memory]:
        """List all fragments in the order of the documents; none where that is more than is told at once."""
        if self._whole is None:
            self._whole = await self._all_fragments()
        return self._whole

    async def _all_fragments(self) -> list[Memory]:
        store = self.agent.store.memories
        if await store.count(MemoryKind.FRAGMENT, self._place) > TOLD_WHOLE:  # each has a character or more
            return []
        found = await store.recent(self._place, TOLD_WHOLE, kind=MemoryKind.FRAGMENT)
        if sum(len(one.content.text) for one in found) > TOLD_WHOLE:
            return []
        return sorted(found, key=lambda one: (one.metadata["name"], one.metadata["number"]))

    async def _by_meaning(self, question: str, reach: Reach) -> list[Memory]:
        models = self.agent.models
        if not models.serves(ModelType.TEXT_EMBEDDING):
            return []
        try:
            asked = await models.embed([question], is_urgent=True)
        except ModelError as error:
            logger.info("documents are searched by words alone: %s", error)
            return []
        found = await self.agent.store.memories.recall(
            asked.vectors[0], asked.model, reach, MemoryKind.FRAGMENT, MOST_PASSAGES
        )
        return [one.memory for one in found if one.similarity >= LEAST_LIKENESS]


def _merged(*rankings: Sequence[Memory]) -> list[Memory]:
    """Merge rankings: what stands high in several comes first (reciprocal rank fusion)."""
    found = {one.id: one for ranking in rankings for one in ranking}
    scores = dict.fromkeys(found, 0.0)
    for ranking in rankings:
        for rank, one in enumerate(ranking):
            scores[one.id] += 1 / (FUSION + rank)
    return sorted(found.values(), key=lambda one: -scores[one.id])


def _passage(fragment: Memory) -> Passage:
    return Passage(str(fragment.metadata.get("name", "a document")), fragment.content.text)
