"""Memories in memory."""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from bot.domain.memory import (
    MAX_CONVERSATION_REACTIONS,
    MAX_CONVERSATION_RESULTS,
    Conversation,
    Memory,
    MemoryKind,
    MemoryMatch,
)
from bot.store.protocols import MemoryPage, RecallScope, UnembeddedPage, recall_audience
from bot.store.similarity import (
    MAX_TRANSCRIPT_SCAN,
    TRANSCRIPT_KINDS,
    find_nearest,
    normalize_wording,
    rank_by_word_overlap,
)

PAGE_SIZE = 1000
EMBEDDED_KINDS = (MemoryKind.MESSAGE, MemoryKind.FACT)


def _identity_key(memory: Memory) -> tuple[MemoryKind, UUID, UUID | None, str]:
    return memory.kind, memory.entity_id, recall_audience(memory), normalize_wording(memory.content.text)


class InMemoryMemories:
    """Implements `MemoryStore`; the memories of each room are sorted by their arrival."""

    def __init__(self) -> None:
        self._memories: dict[UUID, Memory] = {}
        self._arrivals: dict[UUID, int] = {}  # the number of each memory, in the order of insertion
        self._last_arrival = 0
        self._rooms: defaultdict[tuple[UUID, MemoryKind], list[Memory]] = defaultdict(list)
        self._turns: defaultdict[UUID, dict[UUID, None]] = defaultdict(dict)

    async def add(self, memories: Sequence[Memory]) -> None:
        for memory in memories:
            self.upsert(memory)

    async def add_unique(self, memory: Memory) -> Memory:
        if memory.kind in TRANSCRIPT_KINDS:
            raise ValueError(f"a {memory.kind} is identified by its id: use add")
        matches = (other for other in self._memories.values() if _identity_key(other) == _identity_key(memory))
        existing = next(matches, None)
        if existing is None:
            self.upsert(memory)
        return existing or memory

    async def memories(self, ids: Collection[UUID]) -> dict[UUID, Memory]:
        return {memory_id: self._memories[memory_id] for memory_id in ids if memory_id in self._memories}

    async def count(self, kind: MemoryKind, room_id: UUID | None = None) -> int:
        return sum(memory.kind == kind and room_id in (None, memory.room_id) for memory in self._memories.values())

    async def recent(
        self, room_id: UUID, limit: int = 20, *, kind: MemoryKind = MemoryKind.MESSAGE, before: datetime | None = None
    ) -> list[Memory]:
        room_memories = self._rooms.get((room_id, kind), [])
        if before is not None:
            room_memories = [memory for memory in room_memories if memory.created_at < before]
        return room_memories[-limit:] if limit else []

    async def conversation(self, room_id: UUID, limit: int = 20) -> Conversation:
        return Conversation(
            await self.recent(room_id, limit),
            self._rooms.get((room_id, MemoryKind.ACTION_RESULT), [])[-MAX_CONVERSATION_RESULTS:],
            self._rooms.get((room_id, MemoryKind.REACTION), [])[-MAX_CONVERSATION_REACTIONS:],
        )

    async def by_turn(self, turn_id: UUID, room_id: UUID | None = None) -> list[Memory]:
        memories = (self._memories.get(memory_id) for memory_id in self._turns.get(turn_id, ()))
        found = sorted((memory for memory in memories if memory is not None), key=self._sort_key)
        wanted = (MemoryKind.MESSAGE, room_id)
        return [memory for memory in found if room_id is None or (memory.kind, memory.room_id) == wanted]

    async def facts(self, entity_id: UUID, limit: int = 50, before: int | None = None) -> MemoryPage:
        facts = [memory for memory in self._of_entity(entity_id, before) if memory.kind is MemoryKind.FACT]
        positions = tuple(self._arrivals[fact.id] for fact in facts[:limit])
        return MemoryPage(tuple(facts[:limit]), positions[-1] if len(facts) > limit else None, positions)

    async def count_facts(self, entity_ids: Collection[UUID]) -> dict[UUID, int]:
        facts = (memory for memory in self._memories.values() if memory.kind is MemoryKind.FACT)
        return dict(Counter(fact.entity_id for fact in facts if fact.entity_id in entity_ids))

    async def of_entity(self, entity_id: UUID, before: int | None = None) -> MemoryPage:
        memories = self._of_entity(entity_id, before)
        is_last = len(memories) <= PAGE_SIZE
        return MemoryPage(tuple(memories[:PAGE_SIZE]), None if is_last else self._arrivals[memories[PAGE_SIZE - 1].id])

    async def recall(
        self, embedding: Sequence[float], model: str, scope: RecallScope, kind: MemoryKind, limit: int = 10
    ) -> list[MemoryMatch]:
        candidates = (
            (memory, memory.embedding)
            for memory in self._memories.values()
            if memory.kind == kind
            and memory.embedding is not None
            and memory.embedding_model == model
            and len(memory.embedding) == len(embedding)
            and scope.covers(memory)
        )
        return [MemoryMatch(memory, score) for memory, score in find_nearest(embedding, candidates, limit)]

    async def search(self, text: str, scope: RecallScope, kind: MemoryKind, limit: int = 10) -> list[Memory]:
        if kind in TRANSCRIPT_KINDS:
            limit_per_room = MAX_TRANSCRIPT_SCAN // (len(scope.also) + 1)
            rooms = [self._rooms.get((room_id, kind), []) for room_id in scope.audiences]
            candidates = [memory for memories in rooms for memory in memories[-limit_per_room:]]
        else:
            candidates = [memory for memory in self._memories.values() if memory.kind == kind and scope.covers(memory)]
        newest, is_transcript = candidates[::-1], kind in TRANSCRIPT_KINDS
        texts = [memory.content.text for memory in newest]
        return [newest[index] for index in rank_by_word_overlap(text, texts, limit, is_transcript=is_transcript)]

    async def set_embedding(self, memory_id: UUID, embedding: Sequence[float], model: str) -> None:
        await self.set_embeddings({memory_id: embedding}, model)

    async def set_embeddings(self, embeddings: Mapping[UUID, Sequence[float]], model: str) -> None:
        for memory_id, embedding in embeddings.items():
            memory = self._memories.get(memory_id)
            if memory is not None:
                self.upsert(replace(memory, embedding=tuple(embedding), embedding_model=model))

    async def unembedded(self, model: str, before: int | None = None) -> UnembeddedPage:
        memories = list(self._memories.values())
        end = len(memories) if before is None else before
        start = max(0, end - PAGE_SIZE)
        unembedded = [
            memory
            for memory in reversed(memories[start:end])
            if memory.kind in EMBEDDED_KINDS and (memory.embedding is None or memory.embedding_model != model)
        ]
        return UnembeddedPage(tuple(unembedded), start or None)

    async def expired(self, kind: MemoryKind, before: datetime, limit: int = 500) -> list[UUID]:
        stored = self._memories.values()
        return [memory.id for memory in stored if memory.kind == kind and memory.created_at < before][:limit]

    async def remove(self, ids: Collection[UUID]) -> int:
        removed = [self._memories.pop(memory_id) for memory_id in ids if memory_id in self._memories]
        for memory in removed:
            self._remove_from_indexes(memory)
            del self._arrivals[memory.id]
        return len(removed)

    def all(self) -> list[Memory]:
        """Return all memories."""
        return list(self._memories.values())

    def arrivals(self, room_id: UUID, kind: MemoryKind) -> list[tuple[int, Memory]]:
        """Return the memories of a room in the order of their arrival, with the number of each."""
        return [(self._arrivals[memory.id], memory) for memory in self._rooms.get((room_id, kind), [])]

    def upsert(self, memory: Memory) -> None:
        """Insert a memory, or replace the one with its id."""
        room_memories = self._rooms[memory.room_id, memory.kind]
        stored = self._memories.get(memory.id)
        if stored is not None:
            self._remove_from_indexes(stored)
        else:
            self._last_arrival += 1
            self._arrivals[memory.id] = self._last_arrival
        if memory.turn_id is not None:
            self._turns[memory.turn_id][memory.id] = None
        self._memories[memory.id] = memory
        if stored is None:
            room_memories.append(memory)
        else:
            insort(room_memories, memory, key=self._sort_key)

    def _of_entity(self, entity_id: UUID, before: int | None) -> list[Memory]:
        """Return the memories of an entity that arrived before a number, newest first."""
        end = self._last_arrival + 1 if before is None else before
        memories = (memory for memory in self._memories.values() if memory.entity_id == entity_id)
        return sorted(
            (memory for memory in memories if self._arrivals[memory.id] < end), key=self._sort_key, reverse=True
        )

    def _remove_from_indexes(self, memory: Memory) -> None:
        room_memories = self._rooms[memory.room_id, memory.kind]
        del room_memories[bisect_left(room_memories, self._sort_key(memory), key=self._sort_key)]
        if memory.turn_id is not None:
            del self._turns[memory.turn_id][memory.id]

    def _sort_key(self, memory: Memory) -> int:
        return self._arrivals[memory.id]
