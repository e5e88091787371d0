"""`People`: who writes to an agent, what they told, and what an operator may do with it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from bot.domain.environment import Component, Entity, PersonActivity, Relationship, Role, Room, World
from bot.domain.memory import Memory, MemoryKind
from bot.errors import ModelError
from bot.models.router import ModelRouter
from bot.models.types import ModelType
from bot.store.protocols import LogKind, MemoryPage, RecallScope, Store

MUTED_KEY = "people.muted"


async def load_muted_people(store: Store) -> set[UUID]:
    """Return the ids of the people whom an operator has muted."""
    return {UUID(muted_id) for muted_id in await store.cache.get(MUTED_KEY) or ()}


async def refresh_muted_people(store: Store, muted: set[UUID]) -> None:
    """Bring the ids up to date, which an operator may have changed at another process."""
    stored = await load_muted_people(store)
    muted &= stored
    muted |= stored


@dataclass(frozen=True, slots=True)
class Person:
    """An entity that wrote, and how many facts it told; without activity, one that never wrote."""

    entity: Entity
    activity: PersonActivity | None
    fact_count: int


@dataclass(frozen=True, slots=True)
class PersonWorld:
    """A world in which a person takes part, their role there, and the rooms in which they were active."""

    world: World
    role: Role
    rooms: tuple[Room, ...]


@dataclass(frozen=True, slots=True)
class FoundFact:
    """A fact found for a question; `similarity` is None if it was found by its words."""

    memory: Memory
    similarity: float | None


class People:
    """The people of one agent as an operator sees and changes them.

    `flush_activity` stores the counts of the last seconds; `source` in the methods that change something is
    where the operator did it, for the log of decisions.
    """

    def __init__(
        self,
        agent_id: UUID,
        *,
        store: Store,
        models: ModelRouter,
        flush_activity: Callable[[], Awaitable[None]],
        muted: set[UUID],
    ) -> None:
        self._agent_id = agent_id
        self._muted, self._mute_lock = muted, asyncio.Lock()
        self._store, self._models = store, models
        self._flush_activity = flush_activity

    async def latest(self, limit: int = 50, before: tuple[datetime, UUID] | None = None) -> list[Person]:
        """Return those who wrote, the last one first; `before` is when the last of a page wrote, and their id."""
        await self._flush_activity()
        listed = await self._store.entities.active_entities(limit, before)
        counts = await self._store.memories.count_facts([entity.id for entity, _ in listed])
        return [Person(entity, activity, counts.get(entity.id, 0)) for entity, activity in listed]

    async def find(self, entity_id: UUID) -> Person | None:
        """Return one person; None for an unknown id and for the agent itself."""
        entity = (await self.entities([entity_id])).get(entity_id)
        if entity is None or entity_id == self._agent_id:
            return None
        await self._flush_activity()
        counts = await self._store.memories.count_facts([entity_id])
        return Person(entity, await self._store.entities.activity(entity_id), counts.get(entity_id, 0))

    async def entities(self, ids: Collection[UUID]) -> dict[UUID, Entity]:
        """Return entities by id."""
        return await self._store.entities.entities(ids)

    async def rooms(self, ids: Collection[UUID]) -> dict[UUID, Room]:
        """Return rooms by id."""
        return await self._store.worlds.rooms_by_id(ids)

    async def worlds(self, entity_id: UUID) -> list[PersonWorld]:
        """Return the worlds in which a person takes part, the most recently active first."""
        rooms: dict[UUID, list[Room]] = {}
        for room in await self._store.worlds.rooms_of(entity_id):
            rooms.setdefault(room.world_id, []).append(room)
        worlds = await self._store.worlds.worlds_by_id(rooms)
        return [
            PersonWorld(worlds[world_id], worlds[world_id].role_of(entity_id), tuple(own_rooms))
            for world_id, own_rooms in rooms.items()
            if world_id in worlds
        ]

    async def components(self, entity_id: UUID) -> list[Component]:
        """Return what is stored about a person beside facts, such as how to reach them."""
        return await self._store.entities.components(entity_id)

    async def relationships(self, entity_id: UUID) -> list[Relationship]:
        """Return with whom a person talks, the most frequent contact first."""
        return await self._store.entities.relationships(entity_id)

    async def facts(self, entity_id: UUID, limit: int = 50, before: int | None = None) -> MemoryPage:
        """Return the facts that a person told, newest first."""
        return await self._store.memories.facts(entity_id, limit, before)

    async def fact(self, fact_id: UUID) -> Memory | None:
        """Return a fact; None where there is none."""
        memory = (await self._store.memories.memories([fact_id])).get(fact_id)
        return memory if memory is not None and memory.kind is MemoryKind.FACT else None

    async def find_facts(self, question: str, room: Room, limit: int = 10) -> list[FoundFact]:
        """Return the facts that a question finds among those that may be told in a room, best first."""
        scope = RecallScope(room.id, room.world_id)
        if self._models.has_handler_for(ModelType.TEXT_EMBEDDING):
            with suppress(ModelError):  # as in a turn, words are compared then
                embedded = await self._models.embed([question], is_urgent=True)
                matches = await self._store.memories.recall(
                    embedded.vectors[0], embedded.model, scope, MemoryKind.FACT, limit
                )
                return [FoundFact(match.memory, match.similarity) for match in matches]
        return [
            FoundFact(memory, None)
            for memory in await self._store.memories.search(question, scope, MemoryKind.FACT, limit)
        ]

    async def correct_fact(self, fact: Memory, text: str, *, source: str) -> Memory:
        """Store a fact with another text, and return it; it is found by the new words and their meaning."""
        corrected = replace(fact, content=replace(fact.content, text=text), embedding=None, embedding_model="")
        if self._models.has_handler_for(ModelType.TEXT_EMBEDDING):
            with suppress(ModelError):  # the missing vector is added later
                embedded = await self._models.embed([text])
                corrected = replace(corrected, embedding=embedded.vectors[0], embedding_model=embedded.model)
        await self._store.memories.add([corrected])
        await self._log("CORRECT_FACT", {"fact": str(fact.id)}, source, fact)
        return corrected

    async def delete_fact(self, fact: Memory, *, source: str) -> None:
        """Delete a fact."""
        await self._store.memories.remove([fact.id])
        await self._log("DELETE_FACT", {"fact": str(fact.id)}, source, fact)

    async def log_erasure(self, entity_id: UUID, *, source: str) -> None:
        """Record that an operator had a person's data deleted, which `EditReporter.erase_entity` does."""
        await self._log("FORGET_PERSON", {"person": str(entity_id)}, source)

    def is_muted(self, entity_id: UUID) -> bool:
        """Return whether a person's messages are stored and not answered."""
        return entity_id in self._muted

    async def mute(self, entity_id: UUID, *, is_muted: bool, source: str) -> None:
        """Store whether a person's messages are answered; it holds from the next one on, and after a restart."""
        async with self._mute_lock:
            await refresh_muted_people(self._store, self._muted)
            muted = self._muted | {entity_id} if is_muted else self._muted - {entity_id}
            await self._store.cache.set(MUTED_KEY, sorted(map(str, muted)))
            self._muted.clear()
            self._muted.update(muted)
        await self._log("MUTE_PERSON" if is_muted else "UNMUTE_PERSON", {"person": str(entity_id)}, source)

    async def export(self, entity_id: UUID) -> AsyncIterator[Sequence[Memory]]:
        """Yield all memories of a person, newest first, page by page; this reads the whole store."""
        before: int | None = None
        while True:
            page = await self._store.memories.of_entity(entity_id, before)
            if page.memories:
                yield page.memories
            before = page.before
            if before is None:
                return

    async def _log(self, action: str, arguments: Mapping[str, Any], source: str, fact: Memory | None = None) -> None:
        """Record who changed something, without the text that was changed."""
        body = {
            "action": action,
            "allowed": True,
            "reason": "",
            "role": Role.OWNER.value,
            "actors": [],
            "world": "" if fact is None else str(fact.world_id),
            "arguments": dict(arguments),
            "event": source,
        }
        room_id = None if fact is None else fact.room_id
        await self._store.logs.log(LogKind.AUTHORIZATION, body, room_id=room_id)
