"""Store protocols (worlds, entities, memories, tasks, cache, logs, costs), plugin tables.

Every method is one transaction. Times are aware datetimes; what does not exist is None or empty. Open data
(`metadata`, `data`, `body`, a step's `result`, a cached value) is JSON.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

from bot.domain.ledger import CostDimension, CostEntry, ErasedUsage
from bot.domain.memory import Conversation, Memory, MemoryKind, MemoryMatch, Summary
from bot.domain.task import Task
from bot.store.activity import ActivityStore
from bot.store.environment import EntityStore, MarkStore, TakeOverStore, WorldStore
from bot.store.ledger import EditStore, Ledger, WorkSharing
from bot.store.lists import ListStore
from bot.store.search import SearchQuery, SearchResult, recall_audience

T = TypeVar("T")
MAX_NAME_MATCHES = 20


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a plugin, an SQLAlchemy `MetaData`; each is named `<plugin>_…`.

    Without migrations, missing tables, indexes and nullable columns are added at start. With them,
    `migrations` is the folder of Alembic's scripts (in its `versions`), and `version` the last one. Code from version
    `compatible_from` on can work with these tables, while processes are upgraded one after another; "": this code only.
    """

    metadata: Any
    version: str = ""
    migrations: Path | None = None
    compatible_from: str = ""


Schemas = Mapping[str, Schema]


class PluginTables(Protocol):
    """Access to the plugins' tables, by functions that receive an SQLAlchemy `Connection`.

    Such a function neither commits nor waits, and may be called again if a transaction has to be repeated.
    """

    async def read(self, work: Callable[[Any], T]) -> T:
        """Run a function that changes nothing, and return its result."""

    async def write(self, work: Callable[[Any], T]) -> T:
        """Run a function in a transaction, and return its result after the commit."""

    @property
    def engine(self) -> Any:
        """An SQLAlchemy `AsyncEngine` that only reads, for pages and exports without time limits."""


class LogKind(StrEnum):
    """The kinds of log entries with a fixed meaning; plugins may use others."""

    AUTHORIZATION = "authority"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class RecallScope:
    """The room and world that recall something; memories of other rooms only if their scope allows it.

    `also` are further rooms and worlds whose memories may be recalled, such as all those of the person who asks.
    """

    room_id: UUID
    world_id: UUID
    also: frozenset[UUID] = frozenset()

    @property
    def audiences(self) -> tuple[UUID, ...]:
        """The rooms and worlds whose memories may be recalled."""
        return tuple(dict.fromkeys((self.world_id, self.room_id, *sorted(self.also))))

    def covers(self, memory: Memory) -> bool:
        """Return whether a memory may be recalled here."""
        audience = recall_audience(memory)
        return audience in (None, self.world_id, self.room_id) or audience in self.also


@dataclass(frozen=True, slots=True)
class UnembeddedPage:
    """Memories without an embedding of some model, and where the next page begins; None at the end."""

    memories: tuple[Memory, ...] = ()
    before: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """Memories, newest first, with their positions in the store, and where the next page begins; None at the end."""

    memories: tuple[Memory, ...] = ()
    before: int | None = None
    positions: tuple[int, ...] = ()


class MemoryStore(Protocol):
    """Messages and everything derived from them.

    What people have written who are not read (`MarkStore.not_read`) is replaced as it is read, as `hide_memory` does,
    and found by no search.
    """

    async def add(self, memories: Sequence[Memory]) -> None:
        """Store memories; one whose id is known replaces the older."""

    async def add_unique(self, memory: Memory) -> Memory:
        """Store a memory unless the same is stored already; return the stored one.

        The same are memories of one kind, entity and audience with the same words, whatever their case and
        spacing. Raises ValueError for messages and reactions, which are identified by their ids.
        """

    async def memories(self, ids: Collection[UUID]) -> dict[UUID, Memory]:
        """Return memories by id."""

    async def count(self, kind: MemoryKind, room_id: UUID | None = None) -> int:
        """Return the number of memories of a kind, in a room or in all."""

    async def recent(
        self, room_id: UUID, limit: int = 20, *, kind: MemoryKind = MemoryKind.MESSAGE, before: datetime | None = None
    ) -> list[Memory]:
        """Return the last memories of a room in the order of their arrival, which their times do not change.

        A memory that is replaced keeps its place. With `before`, later times are left out.
        """

    async def conversation(self, room_id: UUID, limit: int = 20) -> Conversation:
        """Return the last messages of a room, with results of actions and reactions, by one query."""

    async def by_turn(self, turn_id: UUID, room_id: UUID | None = None) -> list[Memory]:
        """Return what a turn has created, in the order in which it was stored.

        With a room, only the messages that it has written there; their vectors may be left out.
        """

    async def facts(self, entity_id: UUID, limit: int = 50, before: int | None = None) -> MemoryPage:
        """Return the facts that an entity told, newest first; `before` is where the last page ended."""

    async def count_facts(self, entity_ids: Collection[UUID]) -> dict[UUID, int]:
        """Return how many facts each of these entities told, if any."""

    async def of_entity(self, entity_id: UUID, before: int | None = None, *, with_hidden: bool = False) -> MemoryPage:
        """Return memories of all kinds that are an entity's, newest first, for an export.

        Each call examines a limited number of memories, so a page may be empty before the end. `with_hidden` returns
        the words of an entity that is not read too, for an export of its own.
        """

    async def recall(
        self, embedding: Sequence[float], model: str, scope: RecallScope, kind: MemoryKind, limit: int = 10
    ) -> list[MemoryMatch]:
        """Return the memories nearest in meaning, nearest first, among those that the scope covers.

        Vectors of another model or dimension are skipped.
        """

    async def find(
        self, query: SearchQuery, scope: RecallScope, kind: MemoryKind, limit: int = 10
    ) -> list[SearchResult]:
        """Return the memories that a question most likely means, best first, among those that the scope covers.

        Words are compared by their stems, rare ones count more; with a vector, the meaning counts as much as they do.
        """

    async def search(self, text: str, scope: RecallScope, kind: MemoryKind, limit: int = 10) -> list[Memory]:
        """Return the memories that share the most words with a text, as `find` compares them."""

    async def set_embedding(self, memory_id: UUID, embedding: Sequence[float], model: str) -> None:
        """Store the embedding of a memory; do nothing if the memory is gone."""

    async def set_embeddings(self, embeddings: Mapping[UUID, Sequence[float]], model: str) -> None:
        """Store the embeddings of memories, by their ids, together; those whose memory is gone are left out."""

    async def unembedded(self, model: str, before: int | None = None) -> UnembeddedPage:
        """Return messages and facts without an embedding of this model, newest first.

        Each call examines a limited number of memories; `before` is where the last page ended.
        """

    async def expired(self, kind: MemoryKind, before: datetime, limit: int = 500) -> list[UUID]:
        """Return the ids of some memories of a kind that were created before a time."""

    async def remove(self, ids: Collection[UUID]) -> int:
        """Delete memories; return their number."""


class SummaryStore(Protocol):
    """Summaries of rooms, one each.

    One is emptied when a message that it covers is changed or deleted, when one of the people whose words it may repeat
    is erased or not read any more, and when it is older than messages are kept.
    """

    async def begin(self, room_id: UUID) -> Summary:
        """Return the summary of a room, an empty one if there is none: to be called before its messages are read."""

    async def find(self, room_id: UUID) -> Summary | None:
        """Return the summary of a room; None if there is none, or it was emptied."""

    async def save(self, summary: Summary) -> bool:
        """Replace the summary that `begin` returned; False if messages of the room were changed or deleted since."""


class TaskStore(Protocol):
    """Tasks."""

    async def save_task(self, task: Task) -> None:
        """Insert or update a task; the lease and the fencing token of a known one do not change."""

    def watch(self, on_saved: Callable[[], None]) -> None:
        """Call `on_saved` whenever a task is saved in this process."""

    async def next_due(self, names: Collection[str]) -> datetime | None:
        """Return when the next task of these workers is due that is queued, not parked and not leased."""

    async def count_tasks(self) -> Mapping[tuple[str, bool], int]:
        """Return the number of queued tasks by name and by whether they are parked."""

    async def task(self, task_id: UUID) -> Task | None:
        """Return a task."""

    async def tasks(
        self,
        *,
        name: str | None = None,
        room_id: UUID | None = None,
        entity_id: UUID | None = None,
        tags: Collection[str] = (),
    ) -> list[Task]:
        """Return the tasks that match all given values."""

    async def tasks_after(self, limit: int = 50, after: tuple[datetime, UUID] | None = None) -> list[Task]:
        """Return tasks by the time of their next run, the earliest first, then by id.

        With `after`, the next run and the id of a task, those that come after it.
        """

    async def claim_tasks(
        self, leases: Mapping[str, timedelta], now: datetime, limit: int = 10, excluded_room_ids: Collection[UUID] = ()
    ) -> list[Task]:
        """Lease due tasks, the longest due first; return them with their new fencing tokens.

        `leases` has the names of the workers whose tasks are wanted, and how long each may have its task.
        Due are tasks that are queued, not parked, not leased beyond `now`, and scheduled by then; those of
        `excluded_room_ids`, at most a thousand, are skipped. A lease that expired before its task was
        completed counts as one more of its `attempts`.
        """

    async def complete_task(self, task: Task, replacement: Task | None) -> bool:
        """Replace a leased task by its next state, or delete it, and end the lease.

        Return False and change nothing if the task is gone or another process has claimed it since.
        """

    async def delete_task(self, task_id: UUID) -> bool:
        """Delete a task; return False if there was none."""


class CacheStore(Protocol):
    """Small values by key, each with an optional expiry time.

    Where a key contains the id of a person, erasing the person deletes its value.
    """

    async def get(self, key: str) -> Any | None:
        """Return a value that has not expired."""

    async def set(self, key: str, value: Any, *, expires_at: datetime | None = None) -> None:
        """Store a JSON value; raises TypeError for any other."""

    async def delete(self, key: str) -> None:
        """Delete a value."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A log entry: its kind, and its content as JSON."""

    kind: str
    body: Mapping[str, Any]
    room_id: UUID | None = None
    entity_id: UUID | None = None


class LogStore(Protocol):
    """A log of what happened, for operators."""

    async def log(
        self, kind: str, body: Mapping[str, Any], *, room_id: UUID | None = None, entity_id: UUID | None = None
    ) -> None:
        """Store one entry."""

    async def log_all(self, entries: Sequence[LogEntry]) -> None:
        """Store several entries together; a power cut shortly afterwards may lose them."""

    async def logs(
        self, *, kind: str | None = None, room_id: UUID | None = None, entity_id: UUID | None = None, limit: int = 100
    ) -> list[Mapping[str, Any]]:
        """Return the latest entries that match, newest first; of people who are not read without arguments."""


class CostStore(Protocol):
    """Costs of model calls, in sums."""

    async def add(self, entries: Sequence[CostEntry]) -> None:
        """Add to the sums of these days, rooms, people, models and purposes."""

    async def costs_between(self, since: date, until: date) -> list[CostEntry]:
        """Return the sums of some days, both ends included, the earliest day first."""

    async def sums_between(self, since: date, until: date, by: Sequence[CostDimension]) -> list[CostEntry]:
        """Return the costs of some days, both ends included, summed by these dimensions.

        Of the fields that identify an entry only those have a meaning.
        """

    async def erased_usage(self, day: date) -> ErasedUsage:
        """Return what erased people had used on a day; nothing of a day before the last on which one was erased."""


class Store(Protocol):
    """All stores of one agent, opened by an async context manager."""

    @property
    def worlds(self) -> WorldStore: ...
    @property
    def entities(self) -> EntityStore: ...
    @property
    def marks(self) -> MarkStore: ...
    @property
    def take_overs(self) -> TakeOverStore: ...
    @property
    def memories(self) -> MemoryStore: ...
    @property
    def summaries(self) -> SummaryStore: ...
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
    def lists(self) -> ListStore: ...
    @property
    def activity(self) -> ActivityStore: ...
    @property
    def edits(self) -> EditStore: ...
    @property
    def tables(self) -> PluginTables: ...
    @property
    def sharing(self) -> WorkSharing | None:
        """Sharing of work with other processes; None if there can be no others."""
