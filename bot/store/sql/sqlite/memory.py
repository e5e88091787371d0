"""The store in memory: a SQLite database that exists as long as its object.

Work runs on the event loop: with a small database it takes less time than handing it to a thread.
"""

import sqlite3
import weakref
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

import aiosqlite
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import NullPool, QueuePool, StaticPool

from bot.concurrency.clock import Clock, system_clock
from bot.store.protocols import Schemas
from bot.store.sql.core.base import AgentRow, DirectAccess, RetentionPolicy
from bot.store.sql.core.upgrade import SqlPluginTables, build_read_only_engine, upgrade_schemas
from bot.store.sql.sqlite.connection import driver_of
from bot.store.sql.sqlite.health import explain_error
from bot.store.sql.stores.retention import Retention
from bot.store.sql.stores.store import SqlStore
from bot.store.storage import NO_SCHEMAS

LOCATION = Path(":memory:")
ALL_AGENTS = AgentRow(UUID(int=0), 1)  # agents that share a store in memory share its rows
SPARE_DATABASES = 16
FETCHED_ROWS = 64
RETENTION = RetentionPolicy(
    receipts=timedelta(),
    receipt_rows=10_000,
    deliveries=timedelta(days=1),
    steps=timedelta(hours=1),  # they hold prompts
    logs=timedelta(days=1),
)


class MemoryDatabase(DirectAccess):
    """The connection of one store."""

    def __init__(self) -> None:
        super().__init__(_engine().connect(), partial(explain_error, path=LOCATION))
        weakref.finalize(self, self._connection.close)

    def create_tables(self, schemas: Schemas) -> None:
        """Create or upgrade the tables of plugins. Raises PluginError for one that is not allowed."""
        if schemas:
            self._connection.detach()  # no other store shall have these tables
            upgrade_schemas(self._connection, LOCATION, schemas)

    async def open_copy(self) -> aiosqlite.Connection:
        """Return a connection to a copy of what is stored now."""
        copy = _copy(self._driver)
        return await aiosqlite.Connection(lambda: copy, FETCHED_ROWS)


class InMemoryStore(SqlStore):
    """Stores everything in this process; it keeps its content when it is opened again.

    While it is open, finished rows are deleted sooner than in a file; see RETENTION. `schemas` are the tables of
    plugins; `AgentConfig.open_store` creates those of its plugins in a store that was built without them.
    """

    def __init__(self, clock: Clock = system_clock, schemas: Schemas = NO_SCHEMAS) -> None:
        self.database = MemoryDatabase()
        self.database.create_tables(schemas)
        make_engine = partial(
            build_read_only_engine, LOCATION, async_creator=self.database.open_copy, poolclass=NullPool
        )
        agent_row = replace(ALL_AGENTS, not_read=set(), unnamed_rooms=set())  # each store has people of its own
        super().__init__(self.database, agent_row, SqlPluginTables(self.database, make_engine), clock)
        self._retention = Retention(self.database, ALL_AGENTS, RETENTION, clock=clock)
        self._user_count = 0

    async def __aenter__(self) -> Self:
        self._user_count += 1
        if self._user_count == 1:
            await self._retention.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close nothing: the content stays for the next opening."""
        self._user_count -= 1
        if not self._user_count:
            await self._retention.__aexit__()


@lru_cache(maxsize=1)
def _engine() -> Engine:
    """Return the engine of all stores, each of which has one of its connections.

    They share compiled statements. A connection whose store is gone is emptied for another one: preparing its
    statements again would take longer than most tests.
    """
    options = {"isolation_level": None, "check_same_thread": False}
    template = create_engine("sqlite://", poolclass=StaticPool, connect_args=options).connect()
    upgrade_schemas(template, LOCATION)
    _empty(driver_of(template), None)
    engine = create_engine(
        "sqlite://",
        creator=partial(_copy, driver_of(template)),
        poolclass=QueuePool,
        pool_size=SPARE_DATABASES,
        max_overflow=-1,
        pool_use_lifo=True,
        hide_parameters=True,
    )
    event.listen(engine, "checkin", _empty)
    return engine


def _copy(source: sqlite3.Connection) -> sqlite3.Connection:
    """Return a copy of a database, which takes a tenth of the time of creating its tables."""
    copy = sqlite3.connect(LOCATION, isolation_level=None, check_same_thread=False)
    source.backup(copy)
    copy.execute("PRAGMA foreign_keys = ON")
    copy.execute("PRAGMA temp_store = MEMORY")
    return copy


def _empty(connection: sqlite3.Connection, record: object) -> None:
    """Delete the row of all agents, and with it all that belongs to them; insert it again."""
    connection.execute("BEGIN")
    connection.execute("DELETE FROM agents")
    connection.execute("INSERT INTO agents VALUES (?, ?)", (ALL_AGENTS.number, ALL_AGENTS.id.bytes))
    connection.commit()
