"""Memories in memory."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from bot.domain.memory import Memory, MemoryKind, Recalled
from bot.store.protocols import Reach, Unembedded, audience_of
from bot.store.similarity import LAST_SAID, SAID, nearest, ranked_by_words, wording

WINDOW = 1000
EMBEDDED = (MemoryKind.MESSAGE, MemoryKind.FACT)


def _age(memory: Memory) -> tuple[datetime, UUID]:
    return (memory.created_at, memory.id)


def _likeness(memory: Memory) -> tuple[MemoryKind, UUID, UUID | None, str]:
    return memory.kind, memory.entity_id, audience_of(memory), wording(memory.content.text)


class InMemoryMemories:
    """Keeps memories, each room's in order of time; see `MemoryStore`."""

    def __init__(self) -> None:
        self._memories: dict[UUID, Memory] = {}
        self._rooms: defaultdict[tuple[UUID, MemoryKind], list[Memory]] = defaultdict(list)
        self._turns: defaultdict[UUID, dict[UUID, None]] = defaultdict(dict)

    async def add(self, memories: Sequence[Memory]) -> None:
        for memory in memories:
            self.put(memory)

    async def add_unique(self, memory: Memory) -> Memory:
        if memory.kind in SAID:
            raise ValueError(f"a {memory.kind} is told from others by its id: use add")
        found = (one for one in self._memories.values() if _likeness(one) == _likeness(memory))
        known = next(found, None)
        if known is None:
            self.put(memory)
        return known or memory

    async def memories(self, ids: Collection[UUID]) -> dict[UUID, Memory]:
        return {one: self._memories[one] for one in ids if one in self._memories}

    async def count(self, kind: MemoryKind, room_id: UUID | None = None) -> int:
        return sum(one.kind is kind and room_id in (None, one.room_id) for one in self._memories.values())

    async def recent(
        self,
        room_id: UUID,
        limit: int = 20,
        *,
        kind: MemoryKind = MemoryKind.MESSAGE,
        before: datetime | None = None,
    ) -> list[Memory]:
        lane = self._rooms.get((room_id, kind), [])
        if before is not None:
            lane = [memory for memory in lane if memory.created_at < before]
        return lane[-limit:] if limit else []

    async def by_turn(self, turn_id: UUID) -> list[Memory]:
        found = (self._memories.get(one) for one in self._turns.get(turn_id, ()))
        return sorted((memory for memory in found if memory is not None), key=_age)

    async def recall(
        self, embedding: Sequence[float], model: str, reach: Reach, kind: MemoryKind, limit: int = 10
    ) -> list[Recalled]:
        candidates = (
            (memory, memory.embedding)
            for memory in self._memories.values()
            if memory.kind is kind
            and memory.embedding is not None
            and memory.embedding_model == model
            and len(memory.embedding) == len(embedding)
            and reach.covers(memory)
        )
        return [Recalled(memory, score) for memory, score in nearest(embedding, candidates, limit)]

    async def search(self, text: str, reach: Reach, kind: MemoryKind, limit: int = 10) -> list[Memory]:
        if kind in SAID:
            found = self._rooms.get((reach.room_id, kind), [])[-LAST_SAID:]
        else:
            found = [one for one in self._memories.values() if one.kind is kind and reach.covers(one)]
        newest = found[::-1]
        return [newest[place] for place in ranked_by_words(text, [one.content.text for one in newest], limit)]

    async def set_embedding(self, memory_id: UUID, embedding: Sequence[float], model: str) -> None:
        memory = self._memories.get(memory_id)
        if memory is not None:
            self.put(replace(memory, embedding=tuple(embedding), embedding_model=model))

    async def unembedded(self, model: str, before: int | None = None) -> Unembedded:
        kept = list(self._memories.values())
        end = len(kept) if before is None else before
        start = max(0, end - WINDOW)
        bare = [
            memory
            for memory in reversed(kept[start:end])
            if memory.kind in EMBEDDED and (memory.embedding is None or memory.embedding_model != model)
        ]
        return Unembedded(tuple(bare), start or None)

    async def remove(self, ids: Collection[UUID]) -> int:
        removed = [self._memories.pop(one) for one in ids if one in self._memories]
        for memory in removed:
            self._take_out(memory)
        return len(removed)

    def all(self) -> list[Memory]:
        """List all memories."""
        return list(self._memories.values())

    def put(self, memory: Memory) -> None:
        """Insert, or replace the memory of that id."""
        lane = self._rooms[memory.room_id, memory.kind]
        known = self._memories.get(memory.id)
        if known is not None:
            self._take_out(known)
        if memory.turn_id is not None:
            self._turns[memory.turn_id][memory.id] = None
        self._memories[memory.id] = memory
        insort(lane, memory, key=_age)

    def _take_out(self, memory: Memory) -> None:
        lane = self._rooms[memory.room_id, memory.kind]
        del lane[bisect_left(lane, _age(memory), key=_age)]
        if memory.turn_id is not None:
            del self._turns[memory.turn_id][memory.id]
