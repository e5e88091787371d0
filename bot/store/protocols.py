"""Store protocols (worlds, entities, memories, tasks, cache, logs, costs), plugin tables.

Every method is one transaction. Times are aware datetimes; what is not found is None or empty. Open
data (`metadata`, `data`, `body`, a step's `result`, a cached value) is JSON.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

from bot.domain.costs import CostEntry
from bot.domain.environment import Component, Entity, ParticipantState, Relationship, Role, Room, World
from bot.domain.memory import Memory, MemoryKind, MemoryMatch, MemoryScope
from bot.domain.task import Task
from bot.store.ledger import EditStore, Ledger, WorkSharing

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a plugin, an SQLAlchemy `MetaData`; each is called `<plugin>_…`.

    Without a history what is missing is added at the start: tables, indexes, columns that may be empty.
    With one, `migrations` is the folder of Alembic's scripts (in its `versions`), and `version` the last.
    """

    metadata: Any
    version: str = ""
    migrations: Path | None = None


Schemas = Mapping[str, Schema]


class PluginTables(Protocol):
    """Reaches the plugins' tables; what is done there is a function of an SQLAlchemy `Connection`.

    Such a function neither commits nor waits for anything, and may be called again where a transaction
    has to be repeated.
    """

    async def read(self, work: Callable[[Any], T]) -> T:
        """Run a function that changes nothing."""

    async def write(self, work: Callable[[Any], T]) -> T:
        """Run a function in a transaction; what it wrote is kept once this returns."""

    @property
    def engine(self) -> Any:
        """Give an SQLAlchemy `AsyncEngine` that only reads: for pages and exports, where nobody waits."""


MAX_NAME_MATCHES = 20
RUN_LOG = "run"  # the kind of log entry for what happened in a run
AUDIT = "authority"  # the kind of log entry for what somebody was allowed, or denied


class WorldStore(Protocol):
    """Worlds, rooms, and what the agent has decided about them."""

    async def save_world(self, world: World, rooms: Sequence[Room] = ()) -> None:
        """Insert or update a world and some of its rooms, which become the most recently active.

        A blank name keeps the known one; roles, grants and settings are added to the known ones, the rest
        is replaced.
        """

    async def world(self, world_id: UUID) -> World | None:
        """Find a world."""

    async def room(self, room_id: UUID) -> Room | None:
        """Find a room."""

    async def rooms(self, world_id: UUID | None = None) -> list[Room]:
        """List the rooms of a world, or all, the most recently active first."""

    async def participant_state(self, room_id: UUID) -> ParticipantState:
        """Tell what the agent has decided about a room."""

    async def set_participant_state(self, room_id: UUID, state: ParticipantState) -> None:
        """Follow a room, mute it, or neither."""

    async def set_role(self, world_id: UUID, entity_id: UUID, role: Role) -> None:
        """Grant somebody a role in a world, whatever its platform says of them from now on.

        Raises LookupError where the world is unknown.
        """

    async def set_setting(self, world_id: UUID, name: str, value: str) -> None:
        """Set something for a world; a blank value takes it back. Raises LookupError likewise."""

    async def rooms_of(self, entity_id: UUID) -> list[Room]:
        """List the rooms in which somebody takes part, the most recently active first."""


class EntityStore(Protocol):
    """People, what is known of them, and how they stand to one another."""

    async def save_entities(self, entities: Sequence[Entity], room_id: UUID | None = None) -> None:
        """Insert or update people; with a room, they take part in it and are active there now.

        The names given come first, then the known ones, twenty in all; the rest is replaced.
        """

    async def entities(self, ids: Collection[UUID]) -> dict[UUID, Entity]:
        """Find people by id."""

    async def entities_by_name(
        self, name: str, *, platform: str | None = None, limit: int = 100
    ) -> list[Entity]:
        """Find those who go by a name or handle, or did, or have this id on their platform; exactly so."""

    async def leave_rooms(self, entity_id: UUID, room_ids: Collection[UUID]) -> None:
        """Note that somebody takes part in rooms no longer, until they are active there again."""

    async def participants(self, room_id: UUID, limit: int = 50) -> list[Entity]:
        """List who takes part in a room, the most recently active first."""

    async def save_component(self, component: Component) -> None:
        """Insert or replace one piece of knowledge: one a (entity, type, world or None, source or None)."""

    async def components(self, entity_id: UUID, kind: str | None = None) -> list[Component]:
        """List what is known of somebody."""

    async def save_relationship(self, relationship: Relationship) -> None:
        """Insert or replace how one entity stands to another."""

    async def relationships(self, entity_id: UUID) -> list[Relationship]:
        """List how somebody stands to others, the most frequent contact first."""


@dataclass(frozen=True, slots=True)
class RecallScope:
    """From where something is recalled: what was said elsewhere surfaces only as its scope allows."""

    room_id: UUID
    world_id: UUID

    def covers(self, memory: Memory) -> bool:
        """Tell whether a memory may surface here."""
        return recall_audience(memory) in (None, self.world_id, self.room_id)


def recall_audience(memory: Memory) -> UUID | None:
    """Name the place in which a memory may surface: its room, its world, or everywhere."""
    if memory.scope is MemoryScope.SHARED:
        return None
    return memory.world_id if memory.scope is MemoryScope.WORLD else memory.room_id


@dataclass(frozen=True, slots=True)
class UnembeddedPage:
    """Memories without a vector of some model, and where to look further; None at the end."""

    memories: tuple[Memory, ...] = ()
    before: int | None = None


class MemoryStore(Protocol):
    """What was said and what was learnt."""

    async def add(self, memories: Sequence[Memory]) -> None:
        """Keep memories; one whose id is known replaces the older."""

    async def add_unique(self, memory: Memory) -> Memory:
        """Keep a memory unless the same is kept already; gives the one that is there then.

        The same is what is of the same kind, about the same one and for the same place, in the same words
        but for their case and spacing. Raises ValueError for messages and reactions: their ids tell.
        """

    async def memories(self, ids: Collection[UUID]) -> dict[UUID, Memory]:
        """Find memories by id."""

    async def count(self, kind: MemoryKind, room_id: UUID | None = None) -> int:
        """Count the memories of a kind, in a room or in all."""

    async def recent(
        self,
        room_id: UUID,
        limit: int = 20,
        *,
        kind: MemoryKind = MemoryKind.MESSAGE,
        before: datetime | None = None,
    ) -> list[Memory]:
        """List the last memories of a room, oldest first: by their time, then by their id."""

    async def by_turn(self, turn_id: UUID) -> list[Memory]:
        """List what a turn has made, oldest first."""

    async def recall(
        self, embedding: Sequence[float], model: str, scope: RecallScope, kind: MemoryKind, limit: int = 10
    ) -> list[MemoryMatch]:
        """Find what is nearest in meaning, the nearest first, among what this place may see.

        Vectors of another model, or of another dimension, are passed over.
        """

    async def search(self, text: str, scope: RecallScope, kind: MemoryKind, limit: int = 10) -> list[Memory]:
        """Find what shares the most words with a text, the best first, among what this place may see.

        Rare words count more, and what most have does not count. Of messages and reactions the last five
        thousand of the room are looked at.
        """

    async def set_embedding(self, memory_id: UUID, embedding: Sequence[float], model: str) -> None:
        """Give a memory its vector; nothing happens where the memory is gone."""

    async def unembedded(self, model: str, before: int | None = None) -> UnembeddedPage:
        """Look for messages and facts that have no vector of this model, the newest first.

        Only so many memories are looked at in one go; `before` is where the last look ended.
        """

    async def remove(self, ids: Collection[UUID]) -> int:
        """Forget memories, and count them."""


class TaskStore(Protocol):
    """Work for later."""

    async def save_task(self, task: Task) -> None:
        """Insert a task, or replace what a known one says: its lease and its fence stay as they are."""

    def watch(self, on_saved: Callable[[], None]) -> None:
        """Have this called whenever a task has been saved in this process."""

    async def next_due(self, names: Collection[str]) -> datetime | None:
        """Find when the next task of these workers is to run that is queued, not parked and not leased."""

    async def count_tasks(self) -> Mapping[tuple[str, bool], int]:
        """Count the queued tasks by name, and by whether they are parked."""

    async def task(self, task_id: UUID) -> Task | None:
        """Find a task."""

    async def tasks(
        self,
        *,
        name: str | None = None,
        room_id: UUID | None = None,
        entity_id: UUID | None = None,
        tags: Collection[str] = (),
    ) -> list[Task]:
        """List the tasks that match everything given."""

    async def claim_tasks(
        self,
        names: Collection[str],
        now: datetime,
        until: datetime,
        limit: int = 10,
        excluded_room_ids: Collection[UUID] = (),
    ) -> list[Task]:
        """Lease due tasks whose workers are known here, the longest due first, each with its new fence.

        Due is what is tagged `queue`, not parked, not leased beyond `now`, and to run by then; those of the
        rooms in `besides`, at most a thousand, are left. A lease that has ended without its task being
        completed counts as one more of its `attempts`.
        """

    async def complete_task(self, task: Task, replacement: Task | None) -> bool:
        """Replace a leased task by its next state, or remove it, and end the lease.

        False, and nothing changes, where the task is gone or somebody else has claimed it since.
        """

    async def delete_task(self, task_id: UUID) -> bool:
        """Remove a task; False if there was none."""


class CacheStore(Protocol):
    """Small values by key, each with an end."""

    async def get(self, key: str) -> Any | None:
        """Find a value that has not expired."""

    async def set(self, key: str, value: Any, *, expires_at: datetime | None = None) -> None:
        """Keep a JSON value; raises TypeError for any other."""

    async def delete(self, key: str) -> None:
        """Forget a value."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Something that happened: of what kind, and what there is to say of it, as JSON."""

    kind: str
    body: Mapping[str, Any]
    room_id: UUID | None = None
    entity_id: UUID | None = None


class LogStore(Protocol):
    """What happened, for people who look later."""

    async def log(
        self,
        kind: str,
        body: Mapping[str, Any],
        *,
        room_id: UUID | None = None,
        entity_id: UUID | None = None,
    ) -> None:
        """Keep one entry."""

    async def log_all(self, entries: Sequence[LogEntry]) -> None:
        """Keep several together; a power cut soon afterwards may take them away again."""

    async def logs(
        self, *, kind: str | None = None, room_id: UUID | None = None, limit: int = 100
    ) -> list[Mapping[str, Any]]:
        """List the latest entries that match, newest first."""


class CostStore(Protocol):
    """What models have cost, in sums."""

    async def add(self, entries: Sequence[CostEntry]) -> None:
        """Add to the sums of these days, rooms, people and models."""

    async def costs_between(self, since: date, until: date) -> list[CostEntry]:
        """List the sums of some days, both ends included, the earliest day first."""


class Store(Protocol):
    """Everything that is kept for one agent; an async context manager is what opens it."""

    @property
    def worlds(self) -> WorldStore: ...
    @property
    def entities(self) -> EntityStore: ...
    @property
    def memories(self) -> MemoryStore: ...
    @property
    def tasks(self) -> TaskStore: ...
    @property
    def cache(self) -> CacheStore: ...
    @property
    def logs(self) -> LogStore: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def costs(self) -> CostStore: ...
    @property
    def edits(self) -> EditStore: ...
    @property
    def tables(self) -> PluginTables: ...
    @property
    def sharing(self) -> WorkSharing | None:
        """How the work is shared with other processes; None where there can be no others."""
