"""In memory: worlds, rooms, entities, memories, tasks, cache, logs and costs; the ledger has a module of its own."""

import json
from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any
from uuid import UUID

from bot.concurrency.clock import Clock
from bot.domain.environment import Component, Entity, ParticipantState, PersonActivity, Relationship, Role, Room, World
from bot.domain.inbound import anonymize_entity, anonymize_private_chat
from bot.domain.ledger import CostDimension, CostEntry, CostKey, CostUsage, ErasedUsage, sum_costs
from bot.domain.memory import (
    MAX_CONVERSATION_REACTIONS,
    MAX_CONVERSATION_RESULTS,
    Conversation,
    Memory,
    MemoryKind,
    MemoryMatch,
)
from bot.domain.task import Task, TaskTag
from bot.store.protocols import MAX_NAME_MATCHES, LogEntry, MemoryPage, RecallScope, UnembeddedPage, recall_audience
from bot.store.similarity import (
    MAX_TRANSCRIPT_SCAN,
    TRANSCRIPT_KINDS,
    find_nearest,
    normalize_wording,
    rank_by_word_overlap,
)


class InMemoryEntities:
    """Implements `EntityStore`."""

    def __init__(self) -> None:
        self._entities: dict[UUID, Entity] = {}
        self._participants: defaultdict[UUID, dict[UUID, None]] = defaultdict(dict)
        self._components: defaultdict[UUID, dict[tuple[str, UUID | None, UUID | None], Component]]
        self._components = defaultdict(dict)
        self._relationships: defaultdict[UUID, dict[UUID, Relationship]] = defaultdict(dict)
        self._check_component: Callable[[Component], None] | None = None
        self._activity: dict[UUID, PersonActivity] = {}

    async def save_entities(self, entities: Sequence[Entity], room_id: UUID | None = None) -> None:
        for entity in entities:
            self.upsert(entity, room_id)

    async def entities(self, ids: Collection[UUID]) -> dict[UUID, Entity]:
        return {entity_id: self._entities[entity_id] for entity_id in ids if entity_id in self._entities}

    async def leave_rooms(self, entity_id: UUID, room_ids: Collection[UUID]) -> None:
        for room_id in room_ids:
            self._participants[room_id].pop(entity_id, None)

    async def participants(self, room_id: UUID, limit: int = 50) -> list[Entity]:
        latest = list(self._participants.get(room_id, ()))[: -limit - 1 : -1]
        return [self._entities[entity_id] for entity_id in latest]

    async def entities_by_name(self, name: str, *, platform: str | None = None, limit: int = 100) -> list[Entity]:
        entities = (entity for entity in self._entities.values() if platform in (None, entity.platform))
        return [entity for entity in entities if name in (*entity.names, entity.external_id)][:limit]

    def check_components(self, check: Callable[[Component], None]) -> None:
        self._check_component = check

    async def save_component(self, component: Component) -> None:
        if self._check_component is not None:
            self._check_component(component)
        key = (component.type, component.world_id, component.source_entity_id)
        self._components[component.entity_id][key] = component

    async def components(self, entity_id: UUID, kind: str | None = None) -> list[Component]:
        components = self._components.get(entity_id, {}).values()
        return [component for component in components if kind in (None, component.type)]

    async def save_relationship(self, relationship: Relationship) -> None:
        self._relationships[relationship.source_id][relationship.target_id] = relationship

    async def relationships(self, entity_id: UUID) -> list[Relationship]:
        relationships = self._relationships.get(entity_id, {}).values()
        return sorted(relationships, key=lambda relationship: -relationship.interactions)

    async def add_activity(self, activities: Sequence[PersonActivity]) -> None:
        for activity in activities:
            stored = self._activity.get(activity.entity_id)
            self._activity[activity.entity_id] = activity if stored is None else stored.plus(activity)

    async def activity(self, entity_id: UUID) -> PersonActivity | None:
        return self._activity.get(entity_id)

    async def active_entities(
        self, limit: int = 50, before: tuple[datetime, UUID] | None = None
    ) -> list[tuple[Entity, PersonActivity]]:
        known = (activity for activity in self._activity.values() if activity.entity_id in self._entities)
        latest = sorted(known, key=lambda activity: (activity.last_at, activity.entity_id), reverse=True)
        if before is not None:
            latest = [activity for activity in latest if (activity.last_at, activity.entity_id) < before]
        return [(self._entities[activity.entity_id], activity) for activity in latest[:limit]]

    def upsert(self, entity: Entity, room_id: UUID | None) -> Entity:
        """Insert or update an entity; new names come first, known ones after them."""
        stored = self._entities.get(entity.id)
        if stored is not None:
            names = tuple(dict.fromkeys((*entity.names, *stored.names)))[:MAX_NAME_MATCHES]
            if names != entity.names:
                entity = replace(entity, names=names)
        self._entities[entity.id] = entity
        if room_id is not None:
            self._participants[room_id].pop(entity.id, None)
            self._participants[room_id][entity.id] = None
        return entity

    def rooms_of(self, entity_id: UUID) -> frozenset[UUID]:
        """Return the rooms in which an entity takes part."""
        return frozenset(room for room, participants in self._participants.items() if entity_id in participants)

    def erase(self, entity_id: UUID, opt_out: Component) -> tuple[int, int]:
        """Delete the data of an entity; return the numbers of components and relationships."""
        if entity_id in self._entities:
            self._entities[entity_id] = anonymize_entity(self._entities[entity_id])
        for participants in self._participants.values():
            participants.pop(entity_id, None)
        self._activity.pop(entity_id, None)
        deleted = self._components.pop(entity_id, {}).values()
        component_count = sum(item.type != opt_out.type for item in deleted)
        for components in self._components.values():
            for key in [key for key, item in components.items() if item.source_entity_id == entity_id]:
                del components[key]
                component_count += 1
        self._components[entity_id][opt_out.type, None, None] = opt_out
        relationship_count = len(self._relationships.pop(entity_id, {}))
        return component_count, relationship_count + sum(
            item.pop(entity_id, None) is not None for item in self._relationships.values()
        )

    def migrate_room(self, room_id: UUID, new_room_id: UUID) -> None:
        """Assign everything of a room to another one."""
        participants = self._participants[new_room_id]
        self._participants[new_room_id] = {**self._participants.pop(room_id, {}), **participants}
        for components in self._components.values():
            components.update(
                (key, replace(component, room_id=new_room_id))
                for key, component in components.items()
                if component.room_id == room_id
            )

    def migrate_world(self, world_id: UUID, new_world_id: UUID) -> None:
        """Assign what is noted of people in a world to another one, where nothing is noted of them yet."""
        for components in self._components.values():
            for kind, world, source in [key for key in components if key[1] == world_id]:
                if (kind, new_world_id, source) not in components:
                    component = components.pop((kind, world, source))
                    components[kind, new_world_id, source] = replace(component, world_id=new_world_id)


class InMemoryWorlds:
    """Implements `WorldStore`."""

    def __init__(self, entities: InMemoryEntities) -> None:
        self._entities = entities
        self._worlds: dict[UUID, World] = {}
        self._rooms: dict[UUID, Room] = {}
        self._participant_states: dict[UUID, ParticipantState] = {}

    async def save_world(self, world: World, rooms: Sequence[Room] = ()) -> None:
        self.upsert(world, rooms)

    async def world(self, world_id: UUID) -> World | None:
        return self._worlds.get(world_id)

    async def room(self, room_id: UUID) -> Room | None:
        return self._rooms.get(room_id)

    async def worlds_by_id(self, ids: Collection[UUID]) -> dict[UUID, World]:
        return {world_id: self._worlds[world_id] for world_id in ids if world_id in self._worlds}

    async def rooms_by_id(self, ids: Collection[UUID]) -> dict[UUID, Room]:
        return {room_id: self._rooms[room_id] for room_id in ids if room_id in self._rooms}

    async def rooms(self, world_id: UUID | None = None) -> list[Room]:
        rooms = [room for room in self._rooms.values() if world_id in (None, room.world_id)]
        return rooms[::-1]

    async def rooms_of(self, entity_id: UUID) -> list[Room]:
        room_ids = self._entities.rooms_of(entity_id)
        return [room for room in await self.rooms() if room.id in room_ids]

    async def worlds_owned_by(self, entity_id: UUID) -> list[World]:
        owned = [world for world in self._worlds.values() if world.role_of(entity_id) is Role.OWNER]
        return sorted(owned, key=lambda world: (world.name, world.id))

    async def participant_state(self, room_id: UUID) -> ParticipantState:
        return self.participant_state_of(room_id)

    async def set_participant_state(self, room_id: UUID, state: ParticipantState) -> None:
        self._participant_states[room_id] = state

    async def set_role(self, world_id: UUID, entity_id: UUID, role: Role) -> None:
        world = self._worlds[world_id]
        self._worlds[world_id] = replace(world, grants={**world.grants, entity_id: role})

    async def set_setting(self, world_id: UUID, name: str, value: str) -> None:
        world = self._worlds[world_id]
        settings = {key: text for key, text in {**world.settings, name: value}.items() if text}
        self._worlds[world_id] = replace(world, settings=settings)

    def participant_state_of(self, room_id: UUID) -> ParticipantState:
        """Return what the agent has decided about a room."""
        return self._participant_states.get(room_id, ParticipantState.DEFAULT)

    def upsert(self, world: World, rooms: Sequence[Room]) -> tuple[World, list[Room]]:
        """Insert or update a world and rooms, which become the most active; return them as stored."""
        stored = self._worlds.get(world.id)
        if stored is not None:
            world = world.merge(stored)
        self._worlds[world.id] = world
        for room in rooms:
            stored_room = self._rooms.pop(room.id, None)
            self._rooms[room.id] = _keep_name(room, stored_room)
        return world, [self._rooms[room.id] for room in rooms]

    def add_rooms(self, rooms: Sequence[Room]) -> frozenset[UUID]:
        """Insert or update rooms without making them active; return the ids of the new ones."""
        new_rooms: dict[UUID, Room] = {}
        for room in rooms:
            if (stored := self._rooms.get(room.id)) is None:
                new_rooms[room.id] = room
            else:
                self._rooms[room.id] = _keep_name(room, stored)
        self._rooms = {**new_rooms, **self._rooms}
        return frozenset(new_rooms)

    def erase_names(self, entity_id: UUID) -> None:
        """Remove the names of an entity's private chats."""
        for room_id in self._entities.rooms_of(entity_id):
            room = self._rooms.get(room_id)
            if room is not None and room.type.is_direct:
                world, self._rooms[room_id] = anonymize_private_chat(self._worlds[room.world_id], room)
                self._worlds[world.id] = world

    def migrate_room(self, room_id: UUID, world: World, room: Room) -> UUID | None:
        """Continue a room under another id, with its participant state and its world's roles.

        Returns its earlier world if that has no other room.
        """
        previous_room = self._rooms.get(room_id)
        previous_world = self._worlds.get(previous_room.world_id) if previous_room else None
        if previous_world is not None:
            stored = self._worlds.get(world.id)  # what was decided there since counts more
            world = (world.merge(stored) if stored else world).merge(previous_world.migrate_room(room_id, room.id))
        self.upsert(world, [room])
        participant_state = self._participant_states.pop(room_id, None)
        if participant_state is not None:
            self._participant_states.setdefault(room.id, participant_state)
        if previous_world is None or previous_world.id == world.id:
            return None
        has_others = any(other.world_id == previous_world.id and other.id != room_id for other in self._rooms.values())
        return None if has_others else previous_world.id


def _keep_name(room: Room, stored: Room | None) -> Room:
    """Return a room with the name under which it is stored, if it has none itself."""
    return room if room.name or stored is None else replace(room, name=stored.name)


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


class InMemoryTasks:
    """Implements `TaskStore`."""

    def __init__(self) -> None:
        self._tasks: dict[UUID, Task] = {}
        self._watchers: list[Callable[[], None]] = []

    async def save_task(self, task: Task) -> None:
        stored = self._tasks.get(task.id)
        if stored is not None:
            task = replace(task, leased_until=stored.leased_until, fencing_token=stored.fencing_token)
        self._tasks[task.id] = task
        for on_saved in self._watchers:
            on_saved()

    def watch(self, on_saved: Callable[[], None]) -> None:
        self._watchers.append(on_saved)

    async def next_due(self, names: Collection[str]) -> datetime | None:
        due_times = (
            task.next_run
            for task in self._tasks.values()
            if task.name in names and _is_eligible(task) and task.leased_until is None
        )
        return min(due_times, default=None)

    async def count_tasks(self) -> Mapping[tuple[str, bool], int]:
        return Counter((task.name, task.is_parked) for task in self._tasks.values() if TaskTag.QUEUE in task.tags)

    async def task(self, task_id: UUID) -> Task | None:
        return self._tasks.get(task_id)

    async def tasks(
        self,
        *,
        name: str | None = None,
        room_id: UUID | None = None,
        entity_id: UUID | None = None,
        tags: Collection[str] = (),
    ) -> list[Task]:
        return [
            task
            for task in self._tasks.values()
            if name in (None, task.name)
            and room_id in (None, task.room_id)
            and entity_id in (None, task.entity_id)
            and task.tags.issuperset(tags)
        ]

    async def tasks_after(self, limit: int = 50, after: tuple[datetime, UUID] | None = None) -> list[Task]:
        ordered = sorted(self._tasks.values(), key=lambda task: (task.next_run, task.id))
        return [task for task in ordered if after is None or (task.next_run, task.id) > after][:limit]

    async def claim_tasks(
        self, leases: Mapping[str, timedelta], now: datetime, limit: int = 10, excluded_room_ids: Collection[UUID] = ()
    ) -> list[Task]:
        due = [
            task
            for task in self._tasks.values()
            if task.name in leases
            and _is_eligible(task)
            and task.room_id not in excluded_room_ids
            and task.next_run <= now
            and (task.leased_until is None or task.leased_until <= now)
        ]
        due.sort(key=lambda task: task.next_run)
        claimed = [task.lease(now + leases[task.name]) for task in due[:limit]]
        self._tasks.update((task.id, task) for task in claimed)
        return claimed

    async def complete_task(self, task: Task, replacement: Task | None) -> bool:
        stored = self._tasks.get(task.id)
        if stored is None or stored.fencing_token != task.fencing_token:
            return False
        if replacement is None:
            del self._tasks[task.id]
        else:
            self._tasks[task.id] = replace(replacement, leased_until=None, fencing_token=stored.fencing_token)
        return True

    async def delete_task(self, task_id: UUID) -> bool:
        return self._tasks.pop(task_id, None) is not None

    def erase(self, entity_id: UUID) -> int:
        """Delete the tasks for an entity; return their number."""
        remaining = {task.id: task for task in self._tasks.values() if task.entity_id != entity_id}
        count, self._tasks = len(self._tasks) - len(remaining), remaining
        return count

    def migrate_room(self, room_id: UUID, new_room_id: UUID) -> None:
        """Assign all tasks of a room to another one."""
        self._tasks = {
            task.id: replace(task, room_id=new_room_id) if task.room_id == room_id else task
            for task in self._tasks.values()
        }

    def migrate_world(self, world_id: UUID, new_world_id: UUID) -> None:
        """Assign all tasks of a world to another one."""
        self._tasks = {
            task.id: replace(task, world_id=new_world_id) if task.world_id == world_id else task
            for task in self._tasks.values()
        }


def _is_eligible(task: Task) -> bool:
    return TaskTag.QUEUE in task.tags and not task.is_parked


MAX_LOGS = 10_000
MIN_SWEEP_SIZE = 1000
MAX_COST_ENTRIES = 100_000


class InMemoryCache:
    """Implements `CacheStore`."""

    def __init__(self, clock: Clock) -> None:
        self._values: dict[str, tuple[str, datetime | None]] = {}
        self._clock = clock
        self._sweep_at = MIN_SWEEP_SIZE

    async def get(self, key: str) -> Any | None:
        text, expires_at = self._values.get(key, ("null", None))
        if expires_at is not None and expires_at <= self._clock():
            self._values.pop(key)
            return None
        return json.loads(text)

    async def set(self, key: str, value: Any, *, expires_at: datetime | None = None) -> None:
        self._values[key] = (json.dumps(value), expires_at)
        if len(self._values) >= self._sweep_at:
            self._sweep()

    async def delete(self, key: str) -> None:
        self._values.pop(key, None)

    def erase(self, entity_id: UUID) -> None:
        """Delete the values whose keys name a person."""
        self._values = {key: item for key, item in self._values.items() if str(entity_id) not in key}

    def add_if_absent(self, key: str, until: datetime) -> bool:
        """Store a key until a time; return False if it is stored already."""
        _, end = self._values.get(key, ("", self._clock()))
        if end is None or end > self._clock():
            return False
        self._values[key] = ("true", until)
        return True

    def _sweep(self) -> None:
        """Delete expired values that are never read again."""
        now = self._clock()
        expired = [key for key, (_, end) in self._values.items() if end is not None and end <= now]
        for key in expired:
            del self._values[key]
        self._sweep_at = max(MIN_SWEEP_SIZE, 2 * len(self._values))


class InMemoryLogs:
    """Implements `LogStore`, with the last ten thousand entries of each kind."""

    def __init__(self, clock: Clock) -> None:
        self._kinds: defaultdict[str, deque[tuple[int, dict[str, Any]]]]
        self._kinds = defaultdict(lambda: deque(maxlen=MAX_LOGS))
        self._count = 0
        self._clock = clock

    async def log(
        self, kind: str, body: Mapping[str, Any], *, room_id: UUID | None = None, entity_id: UUID | None = None
    ) -> None:
        entry = {"kind": kind, "at": self._clock(), "room_id": room_id, "entity_id": entity_id}
        self._count += 1
        self._kinds[kind].append((self._count, {**entry, "body": dict(body)}))

    async def log_all(self, entries: Sequence[LogEntry]) -> None:
        for entry in entries:
            await self.log(entry.kind, entry.body, room_id=entry.room_id, entity_id=entry.entity_id)

    async def logs(
        self, *, kind: str | None = None, room_id: UUID | None = None, entity_id: UUID | None = None, limit: int = 100
    ) -> list[Mapping[str, Any]]:
        queues = [reversed(entries) for name, entries in self._kinds.items() if kind in (None, name)]
        newest = merge(*queues, key=itemgetter(0), reverse=True)
        entries = (entry for _, entry in newest)
        matches = (
            entry
            for entry in entries
            if room_id in (None, entry["room_id"]) and entity_id in (None, entry["entity_id"])
        )
        return list(islice(matches, limit))

    def erase(self, entity_id: UUID) -> None:
        """Delete the entries about an entity."""
        for entries in self._kinds.values():
            remaining = [entry for entry in entries if entry[1]["entity_id"] != entity_id]
            entries.clear()
            entries.extend(remaining)


class InMemoryCosts:
    """Implements `CostStore`, with the latest sums."""

    def __init__(self) -> None:
        self._sums: dict[CostKey, CostEntry] = {}
        self._erased = ErasedUsage(date.min)

    async def add(self, entries: Sequence[CostEntry]) -> None:
        for entry in entries:
            total = self._sums.get(entry.key)
            self._sums[entry.key] = entry if total is None else total.plus(entry)
        while len(self._sums) > MAX_COST_ENTRIES:
            del self._sums[next(iter(self._sums))]

    def anonymize(self, person_id: UUID, today: date) -> int:
        """Add the costs of a person to those of no person; return the number of sums that named them.

        What they have used today is kept for `erased_usage`.
        """
        entries = [entry for entry in self._sums.values() if entry.person_id == person_id]
        self._erased = self._erased if self._erased.day == today else ErasedUsage(today)
        for entry in entries:
            if entry.day == today:
                self._erased = self._erased.plus(person_id, CostUsage(entry.cost, entry.tokens))
            del self._sums[entry.key]
            other = replace(entry, person_id=None)
            total = self._sums.get(other.key)
            self._sums[other.key] = other if total is None else total.plus(other)
        return len(entries)

    async def costs_between(self, since: date, until: date) -> list[CostEntry]:
        entries = (entry for entry in self._sums.values() if since <= entry.day <= until)
        return sorted(entries, key=lambda entry: entry.day)

    async def sums_between(self, since: date, until: date, by: Sequence[CostDimension]) -> list[CostEntry]:
        entries = await self.costs_between(since, until)
        return list(sum_costs(entries, lambda entry: tuple(getattr(entry, dimension) for dimension in by)).values())

    async def erased_usage(self, day: date) -> ErasedUsage:
        return self._erased if self._erased.day == day else ErasedUsage(day)
