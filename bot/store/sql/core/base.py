"""Base of the SQL stores: database access, the agent's row, shared opening, and the settings of the database.

The cache of each room's latest memories spares most turns reading them from the file. SQLite's writing connection
reports every memory that it inserts, changes or deletes; the cache is updated when that is committed.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar
from uuid import UUID

from pydantic import Field, SecretStr, field_validator
from sqlalchemy import Connection, bindparam, select
from sqlalchemy.exc import StatementError
from sqlalchemy.sql.expression import Executable

from bot.domain.environment import Room
from bot.domain.memory import Memory
from bot.errors import SettingError
from bot.settings import CommaList, Settings, SettingsModel
from bot.store.ledger import StoreHealth
from bot.store.sql.core.mapping import Row, insert_if_new
from bot.store.sql.core.schema import agents

MAX_BYTES = 16 * 2**20  # of all windows, as estimated by `_size_of` and WINDOW_BYTES
WINDOW_BYTES, MEMORY_BYTES = 400, 1_500  # of the objects, without the texts; a room has four windows, by kind
MAX_MEMORIES = 50  # longer windows are not cached
MAX_TEXT_LENGTH = 2_000  # of texts and metadata; a window with a larger memory is not cached
MAX_TRACKED_CHANGES = 10_000
INFO_KEY = "greenroom-recents-told"
SQL_FUNCTION = "greenroom_memory"
KEY_COLUMNS = "{row}.agent_id, {row}.room_id, {row}.kind"
REPORT_OLD, REPORT_NEW = (f"SELECT {SQL_FUNCTION}({KEY_COLUMNS.format(row=row)});" for row in ("old", "new"))
TRIGGERS = {"DELETE": REPORT_OLD, "UPDATE": REPORT_OLD + REPORT_NEW}


class WindowKey(NamedTuple):
    """Names the memories of one kind in a room."""

    agent: int
    room: bytes
    kind: str


@dataclass(slots=True)
class _Window:
    """The last `limit` memories of a key, oldest first; fewer if there are no more."""

    limit: int
    memories: list[Memory]
    sizes: list[int]

    @property
    def size(self) -> int:
        return WINDOW_BYTES + sum(self.sizes)

    def append(self, memory: Memory) -> None:
        self.memories.append(memory)
        self.sizes.append(_size_of(memory))
        if len(self.memories) > self.limit:
            del self.memories[0], self.sizes[0]


class RecentMemoryCache:
    """The windows of one file that were read last."""

    def __init__(self, as_stored: Callable[[Memory], Memory]) -> None:
        self._as_stored = as_stored
        self._lock = Lock()
        self._windows: dict[WindowKey, _Window] = {}  # the one that was read last is the last
        self._size = 0  # of all windows, in bytes
        self._changed_in: dict[WindowKey, int] = {}  # the version of each key's last change; `_first_version` if absent
        self._first_version = self._version = 0
        self._pending: list[tuple[WindowKey, Memory]] = []  # in the open transaction
        self._invalidated: set[WindowKey] = set()

    @property
    def version(self) -> int:
        """The number of changes so far; to be read before a window is read from the database."""
        return self._version

    def attach(self, connection: Connection) -> None:
        """Install triggers by which the writing connection reports changed and deleted memories."""
        driver: Any = connection.connection.driver_connection
        driver.create_function(SQL_FUNCTION, 3, lambda *columns: self._invalidated.add(WindowKey(*columns)))
        for event, action in TRIGGERS.items():
            name = f"{SQL_FUNCTION}_{event.lower()}"
            driver.execute(f"CREATE TEMP TRIGGER {name} AFTER {event} ON main.memories BEGIN {action} END")
        connection.info[INFO_KEY] = self

    def notify(self, agent: int, memories: Sequence[Memory]) -> None:
        """Record memories that are inserted."""
        self._pending += ((WindowKey(agent, memory.room_id.bytes, str(memory.kind)), memory) for memory in memories)

    def on_commit(self) -> None:
        """Apply the recorded changes."""
        if not self._pending and not self._invalidated:
            return
        pending, invalidated = self._pending, self._invalidated
        self._pending, self._invalidated = [], set()
        last_ids = {key: memory.id for key, memory in pending}
        with self._lock:
            self._version += 1
            for key in invalidated:
                self._changed_in[key] = self._version
                self._remove(key)
            for key, memory in pending:
                self._changed_in[key] = self._version
                window = self._windows.get(key)
                if window is not None and window.memories and window.memories[-1].id == last_ids[key]:
                    continue  # it was read after the commit
                if window is None or key in invalidated or not (stored := self._to_stored(memory)):
                    self._remove(key)
                else:
                    self._size -= window.size
                    window.append(stored)
                    self._size += window.size
                    if len(window.memories) > MAX_MEMORIES:
                        self._remove(key)
            self._limit_size()
            if len(self._changed_in) > MAX_TRACKED_CHANGES:
                self._changed_in, self._first_version = {}, self._version

    def _to_stored(self, memory: Memory) -> Memory | None:
        """Return a memory as it would be read; None if it is too large or unreadable."""
        try:
            return self._as_stored(memory) if is_small(memory) else None
        except Exception:  # reading it reports the error; the transaction is committed already
            return None

    def on_rollback(self) -> None:
        """Discard the recorded changes."""
        self._pending.clear()
        self._invalidated.clear()

    def invalidate(self) -> None:
        """Drop the windows of all recorded memories: some of them were rolled back."""
        self._invalidated |= {key for key, _ in self._pending}
        self._pending.clear()

    def clear(self) -> None:
        """Drop everything, because another program has changed the file."""
        with self._lock:
            self._version += 1
            self._first_version = self._version
            self._windows.clear()
            self._size = 0
            self._changed_in.clear()

    def get(self, key: WindowKey, limit: int) -> list[Memory] | None:
        """Return the last memories of a key, oldest first; None if they must be read."""
        with self._lock:
            window = self._windows.pop(key, None)
            if window is None:
                return None
            self._windows[key] = window  # now the last to be dropped
            return window.memories[-limit:] if 1 <= limit <= window.limit else None

    def find_replies(self, key: WindowKey, turn_id: UUID) -> list[Memory]:
        """Return the messages of a turn, all of them if the one that it answers is in the window too; else nothing."""
        with self._lock:
            window = self._windows.get(key)
            memories = [] if window is None else list(window.memories)
        replies = [memory for memory in memories if memory.turn_id == turn_id]
        is_whole = any(memory.id == replies[0].content.in_reply_to for memory in memories) if replies else False
        return replies if is_whole else []

    def store(self, key: WindowKey, limit: int, memories: Sequence[Memory], version: int) -> None:
        """Store what was read of a key at a version, unless it has changed since or one of the memories is large."""
        with self._lock:
            is_short = limit >= 1 and len(memories) <= MAX_MEMORIES
            if (
                not is_short
                or not all(map(is_small, memories))
                or self._changed_in.get(key, self._first_version) > version
            ):
                return
            self._remove(key)
            window = self._windows[key] = _Window(limit, list(memories), list(map(_size_of, memories)))
            self._size += window.size
            self._limit_size()

    def _limit_size(self) -> None:
        while self._size > MAX_BYTES:
            self._remove(next(iter(self._windows)))

    def _remove(self, key: WindowKey) -> None:
        window = self._windows.pop(key, None)
        if window is not None:
            self._size -= window.size


def is_small(memory: Memory) -> bool:
    """Return whether a memory is small enough to be cached."""
    return _size_of(memory) <= MEMORY_BYTES + MAX_TEXT_LENGTH


def _size_of(memory: Memory) -> int:
    content = memory.content
    size = MEMORY_BYTES + len(content.text)
    size += sum(len(str(metadata)) for metadata in (memory.metadata, content.metadata) if metadata)
    return size + sum(
        len(item.text) + len(item.description) + len(item.data or b"") for item in content.all_attachments
    )


T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Work = Callable[[Connection], T]
Item = TypeVar("Item")


@dataclass(slots=True, frozen=True)
class SharedWork(Generic[Item, T]):
    """Work on one item. `run` does it for all items that wait for the same commit, and returns a result for each.

    It takes a statement for all of them instead of one for each. If it fails, it is repeated for each item alone.
    """

    run: Callable[[Connection, Sequence[Item]], Sequence[T]]
    item: Item

    def __call__(self, connection: Connection) -> T:
        [result] = self.run(connection, [self.item])
        return result


INSERT_AGENT = insert_if_new(agents, ["key"])
FIND_AGENT = select(agents.c.id).where(agents.c.key == bindparam("key"))


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent's row: its id, and the small number that every key begins with.

    `not_read` are the people whose words no part of the store returns, `unnamed_rooms` their private chats;
    `SqlMarks` keeps both current.
    """

    id: UUID
    number: int
    not_read: set[UUID] = field(default_factory=set, compare=False)
    unnamed_rooms: set[UUID] = field(default_factory=set, compare=False)

    def hide_name(self, room: Room) -> Room:
        """Return a room, without its name if that is of a person who is not read, or a title that they made."""
        return replace(room, name="") if room.id in self.unnamed_rooms else room


def ensure_agent(connection: Connection, agent_id: UUID) -> AgentRow:
    """Return an agent's row; insert it if it is new."""
    INSERT_AGENT.execute(connection, {"key": agent_id})
    return AgentRow(agent_id, connection.execute(FIND_AGENT, {"key": agent_id}).scalar_one())


class Access(Protocol):
    """Runs synchronous work with a connection: off the event loop, but for a database in memory."""

    @property
    def health(self) -> StoreHealth:
        """Whether the database accepts writes at present."""

    @property
    def is_sole_writer(self) -> bool:
        """Whether no other process changes the stored data."""

    @property
    def recent_cache(self) -> RecentMemoryCache | None:
        """The cache of recent memories; None if other processes write too."""

    def write(self, work: Work[T], *, durable: bool = True) -> Awaitable[T]:
        """Run work that writes; return once it is committed.

        A write that is not `durable` survives a crash of the process, but a power cut only after a
        later durable write.
        """

    def read(self, work: Work[T]) -> Awaitable[T]:
        """Run short read-only work; it sees every write that has returned."""

    def search(self, work: Work[T]) -> Awaitable[T]:
        """Run read-only work that may take long; other calls do not wait for it."""

    async def truncate_log(self) -> None:
        """Remove from the database's own log, where this process can, what was stored before the last commits."""


class DirectAccess:
    """Runs work at once, in the thread of its caller, with one connection; see `Access`."""

    is_sole_writer = True
    recent_cache = None

    def __init__(self, connection: Connection, explain: Callable[[StatementError], BaseException]) -> None:
        self.health = StoreHealth()
        self._connection, self._explain = connection, explain
        self._driver: Any = connection.connection.driver_connection

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Run work that writes, in a transaction of its own."""
        self._driver.execute("BEGIN")
        try:
            result = self._run(work)
        except BaseException:
            self._driver.rollback()
            raise
        self._driver.commit()
        return result

    async def read(self, work: Work[T]) -> T:
        """Run read-only work."""
        return self._run(work)

    async def search(self, work: Work[T]) -> T:
        """Run read-only work."""
        return self._run(work)

    async def truncate_log(self) -> None:
        """Do nothing: there is no log."""

    def _run(self, work: Work[T]) -> T:
        try:
            return work(self._connection)
        except StatementError as error:
            raise self._explain(error) from error


class SqlStorePart:
    """A part of the store. What takes a connection runs where `Access` runs it: see `reads`."""

    def __init__(self, database: Access, agent_row: AgentRow) -> None:
        self._database = database
        self._agent_row = agent_row
        self._agent = agent_row.number

    async def _read(self, statement: Executable, **values: Any) -> Sequence[Row]:
        """Return the rows of a short statement about the agent."""
        return await self._database.read(self._fetch(statement, values))

    async def _search(self, statement: Executable, **values: Any) -> Sequence[Row]:
        """Return the rows of a statement about the agent that may take long."""
        return await self._database.search(self._fetch(statement, values))

    def _fetch(self, statement: Executable, values: Mapping[str, Any]) -> Work[Sequence[Row]]:
        return lambda connection: connection.execute(statement, {"agent": self._agent, **values}).all()


P = ParamSpec("P")
Part = TypeVar("Part", bound=SqlStorePart)


def _run_by(
    choose: Callable[[Access], Callable[[Work[Any]], Awaitable[Any]]],
) -> Callable[[Callable[Concatenate[Part, Connection, P], T]], Callable[Concatenate[Part, P], Coroutine[Any, Any, T]]]:
    """Return a decorator that makes an async method of one that takes a connection, run by a method of `Access`."""

    def decorate(
        operation: Callable[Concatenate[Part, Connection, P], T],
    ) -> Callable[Concatenate[Part, P], Coroutine[Any, Any, T]]:
        @wraps(operation)
        async def run(part: Part, /, *arguments: P.args, **options: P.kwargs) -> T:
            work = choose(part._database)
            result: T = await work(lambda connection: operation(part, connection, *arguments, **options))
            return result

        return run

    return decorate


# Of a method with a connection after `self`; it is called without one, and awaited. Its body may run in another thread,
# and again if the transaction has to be repeated.
reads = _run_by(lambda database: database.read)
searches = _run_by(lambda database: database.search)
writes = _run_by(lambda database: database.write)
writes_not_durably = _run_by(lambda database: partial(database.write, durable=False))


class Closable(Protocol):
    """A resource that is closed once, even if opening it failed."""

    async def close(self) -> None:
        """Release the resource."""


C = TypeVar("C", bound=Closable)


class SharedResource(Generic[K, C]):
    """Resources that several users share: the first user of a key creates one, the last user closes it."""

    def __init__(self) -> None:
        self._resources: dict[K, C] = {}
        self._users: dict[K, int] = {}

    @asynccontextmanager
    async def use(self, key: K, create: Callable[[], C]) -> AsyncIterator[C]:
        """Yield the resource of a key. Opening it, which must be repeatable, is left to each user."""
        if key not in self._resources:
            self._resources[key] = create()
        resource = self._resources[key]
        self._users[key] = self._users.get(key, 0) + 1
        try:
            yield resource
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._resources[key], self._users[key]
                await resource.close()


FILE_NAME = "greenroom.db"
# As it is copied, too: `psql 'postgresql://…'`, and with the name of a driver before or after the scheme.
POSTGRES_ADDRESS = re.compile(
    r"\s*(?:psql\s+)?(['\"]?)(?:jdbc:)?postgres(?:ql)?(?:\+\w+)?://(?P<rest>.*)\1\s*", re.DOTALL | re.IGNORECASE
)
SQLITE_PREFIXES = ("sqlite:///", "sqlite+pysqlite:///", "sqlite+aiosqlite:///")


class Synchronous(StrEnum):
    """When a commit counts as stored: FULL survives a power cut, NORMAL only the process."""

    NORMAL = "NORMAL"
    FULL = "FULL"
    EXTRA = "EXTRA"


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long finished rows are kept; receipts by age and by number, whichever keeps more.

    Messages are kept for `messages`, those of a room or world in `places` for as long as that says; None is for ever.
    """

    receipts: timedelta = timedelta(days=30)
    receipt_rows: int = 1_000_000
    deliveries: timedelta = timedelta(days=30)
    steps: timedelta = timedelta(days=7)
    action_results: timedelta = timedelta(days=30)
    logs: timedelta = timedelta(days=30)
    decisions: timedelta = timedelta(days=400)
    costs: timedelta = timedelta(days=400)
    messages: timedelta | None = None
    places: Mapping[str, timedelta | None] = field(default_factory=dict, hash=False)

    def message_lifetime(self, names: Iterable[str]) -> timedelta | None:
        """Return how long messages are kept in a room that has these names, the most specific first."""
        for name in names:
            if name in self.places:
                return self.places[name]
        return self.messages


DEFAULT_RETENTION = RetentionPolicy()


class SqlSettings(SettingsModel):
    """The database, its durability and retention."""

    CHARACTER_SETTINGS = frozenset()

    database_url: SecretStr | None = Field(
        None, description="The database; without it the SQLite file greenroom.db in BOT_DATA_DIR."
    )
    postgres_url: SecretStr | None = Field(
        None,
        description="A PostgreSQL database, as postgresql://user:password@host/database; wins over "
        "DATABASE_URL, which may name one too. Several processes may share it.",
    )
    postgres_direct_url: SecretStr | None = Field(
        None,
        description="The same database without a pooler, for processes that share the work; needed "
        "if POSTGRES_URL leads to pgbouncer (and says so, with ?prepared_statement_cache_size=0).",
    )
    sql_synchronous: Synchronous = Field(
        Synchronous.FULL,
        description="When a write counts as stored: FULL survives a power cut, NORMAL only the process.",
    )

    sql_receipt_days: int = Field(
        30,
        ge=30,
        description="For how many days a closed receipt is kept, to recognise its message; the "
        "newest million is always kept. Sent deliveries and results of actions are deleted after as many days.",
    )
    sql_log_days: int = Field(30, ge=1, description="For how many days log entries are kept.")

    sql_message_days: int = Field(
        0,
        ge=0,
        description="For how many days messages are kept, with the sent parts and log entries of their rooms; 0 for "
        "ever. What was learnt from them stays.",
    )
    sql_message_days_by_place: CommaList = Field(
        (),
        description="The same for rooms and worlds, by their ids on the platform or of the API, as in "
        "discord:1234=30, -10098=7; 0 for ever. A room's own number counts before that of its world.",
    )

    @property
    def retention(self) -> RetentionPolicy:
        """How long finished rows are kept."""
        days = timedelta(days=self.sql_receipt_days)
        logs = timedelta(days=self.sql_log_days)
        pairs = (item.rpartition("=") for item in self.sql_message_days_by_place)
        places = {name.strip(): _lifetime(int(number)) for name, _, number in pairs}
        messages = _lifetime(self.sql_message_days)
        return RetentionPolicy(
            receipts=days, deliveries=days, action_results=days, logs=logs, messages=messages, places=places
        )

    @field_validator("sql_message_days_by_place")
    @classmethod
    def _check_places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for item in value:
            name, _, number = item.rpartition("=")
            if not name.strip() or not number.strip().isdecimal():
                raise ValueError(f"{item!r} must look like discord:1234=30, an id and a number of days")
        return value

    @field_validator("sql_synchronous", mode="before")
    @classmethod
    def _to_upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value


def _lifetime(days: int) -> timedelta | None:
    return timedelta(days=days) if days else None


def find_postgres_variable(settings: Settings) -> str:
    """Return the variable that names a PostgreSQL database, or an empty text."""
    if settings.get("POSTGRES_URL"):
        return "POSTGRES_URL"
    return "DATABASE_URL" if POSTGRES_ADDRESS.fullmatch(settings.get("DATABASE_URL") or "") else ""


def find_database_file(settings: Settings) -> Path:
    """Return the SQLite file that the settings name; raise SettingError for an unknown address."""
    url = settings.get("DATABASE_URL")
    if url is None:
        return Path(settings.get("BOT_DATA_DIR") or "data") / FILE_NAME
    prefix = next((candidate for candidate in SQLITE_PREFIXES if url.startswith(candidate)), None)
    path = url.removeprefix(prefix or "").partition("?")[0]
    if prefix is None or path in ("", ":memory:"):
        raise SettingError(
            f"DATABASE_URL (in {settings.source_of('DATABASE_URL')}): it must look like "
            "sqlite:///path/to/file.db or postgresql://user:password@host/database; remove the sql plugin "
            "to keep everything in memory"
        )
    return Path(path)
