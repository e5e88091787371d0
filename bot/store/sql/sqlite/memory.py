"""The store in memory: a SQLite database that exists as long as its object.

Work runs on the event loop: with a small database it takes less time than handing it to a thread.
"""

import sqlite3
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

import aiosqlite
from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import StatementError
from sqlalchemy.pool import NullPool, StaticPool

from bot.concurrency.clock import Clock, system_clock
from bot.store.ledger import StoreHealth
from bot.store.protocols import Schemas
from bot.store.sql.core.base import AgentRow, RetentionPolicy, Work, ensure_agent
from bot.store.sql.core.upgrade import SqlPluginTables, build_read_only_engine, upgrade_schemas
from bot.store.sql.sqlite.connection import driver_of
from bot.store.sql.sqlite.health import explain_error
from bot.store.sql.stores.retention import Retention
from bot.store.sql.stores.store import SqlStore

T = TypeVar("T")

LOCATION = Path(":memory:")
AGENT = AgentRow(UUID(int=0), 1)  # agents that share a store in memory share its rows
READ_ROWS = 64
RETENTION = RetentionPolicy(
    receipts=timedelta(),
    receipt_rows=10_000,
    deliveries=timedelta(days=1),
    steps=timedelta(hours=1),  # they hold the prompts
    logs=timedelta(days=1),
)


class MemoryDatabase:
    """Runs work at once, in the thread of its caller; see `Access`."""

    is_sole_writer = True
    recent_cache = None

    def __init__(self) -> None:
        self.health = StoreHealth()
        self._connection = _engine().connect()
        self._driver = driver_of(self._connection)

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

    def create_tables(self, schemas: Schemas) -> None:
        """Create the tables of plugins, or upgrade them. Raises PluginError for one that is not allowed."""
        upgrade_schemas(self._connection, LOCATION, schemas)

    async def open_copy(self) -> aiosqlite.Connection:
        """Return a connection to a copy of what is stored now."""
        copy = _copy(self._driver)
        return await aiosqlite.Connection(lambda: copy, READ_ROWS)

    def _run(self, work: Work[T]) -> T:
        try:
            return work(self._connection)
        except StatementError as error:
            raise explain_error(error, LOCATION) from error


class InMemoryStore(SqlStore):
    """Stores everything in this process; it keeps its content when it is opened again.

    While it is open, old rows are deleted.
    """

    def __init__(self, clock: Clock = system_clock) -> None:
        self.database = MemoryDatabase()
        build_engine = partial(
            build_read_only_engine, LOCATION, async_creator=self.database.open_copy, poolclass=NullPool
        )
        super().__init__(self.database, AGENT, SqlPluginTables(self.database, build_engine), clock)
        self._retention = Retention(self.database, AGENT, RETENTION, clock=clock)
        self._user_count = 0

    async def __aenter__(self) -> Self:
        self._user_count += 1
        if self._user_count == 1:
            await self._retention.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop deleting with the last user; the content stays for the next opening."""
        self._user_count -= 1
        if not self._user_count:
            await self._retention.__aexit__()


@lru_cache(maxsize=1)
def _engine() -> Engine:
    """Return the engine of all stores, which caches their statements; each connection is a new, empty database."""
    options = {"isolation_level": None, "check_same_thread": False}
    connection = create_engine("sqlite://", poolclass=StaticPool, connect_args=options).connect()
    upgrade_schemas(connection, LOCATION)
    ensure_agent(connection, AGENT.id)
    return create_engine(
        "sqlite://", creator=partial(_copy, driver_of(connection)), poolclass=NullPool, hide_parameters=True
    )


def _copy(source: sqlite3.Connection) -> sqlite3.Connection:
    """Return a copy of a database, which costs a tenth of creating its tables."""
    copy = sqlite3.connect(LOCATION, isolation_level=None, check_same_thread=False)
    source.backup(copy)
    copy.execute("PRAGMA foreign_keys = ON")
    return copy
