"""Base of the SQL stores: database access, the agent's row, shared opening.

Settings of the database: its location, durability and retention.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from pydantic import Field, SecretStr, field_validator
from sqlalchemy import Connection, bindparam, select
from sqlalchemy.sql.expression import Executable

from bot.errors import SettingError
from bot.settings import CommaList, Settings, SettingsModel
from bot.store.ledger import StoreHealth
from bot.store.sql.core.mapping import Row, insert_if_new
from bot.store.sql.core.recent_cache import RecentMemoryCache
from bot.store.sql.core.schema import agents

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Work = Callable[[Connection], T]

INSERT_AGENT = insert_if_new(agents, ["key"])
FIND_AGENT = select(agents.c.id).where(agents.c.key == bindparam("key"))


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent's row: its id, and the small number that every key begins with."""

    id: UUID
    number: int


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


class SqlStorePart:
    """A part of the store. Code that takes a connection stands in module functions."""

    def __init__(self, database: Access, agent_row: AgentRow) -> None:
        self._database = database
        self._agent_row = agent_row
        self._agent = agent_row.number

    async def _read(self, statement: Executable, **values: Any) -> Sequence[Row]:
        """Return the rows of a short statement about the agent."""
        return await self._database.read(lambda db: db.execute(statement, {"agent": self._agent, **values}).all())

    async def _search(self, statement: Executable, **values: Any) -> Sequence[Row]:
        """Return the rows of a statement about the agent that may take long."""
        return await self._database.search(lambda db: db.execute(statement, {"agent": self._agent, **values}).all())


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
