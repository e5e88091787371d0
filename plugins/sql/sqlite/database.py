"""An open SQLite file with its reader and writer threads, shared by the agents of a process."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection

from bot import Clock, PluginError, system_clock
from bot.store import NO_SCHEMAS, Schemas, StoreHealth
from plugins.sql.core.base import SharedResource, Work, ensure_agent
from plugins.sql.core.plugin_tables import SqlPluginTables, build_read_only_engine
from plugins.sql.core.recent_cache import RecentMemoryCache
from plugins.sql.core.settings import DEFAULT_RETENTION, RetentionPolicy, Synchronous
from plugins.sql.core.upgrade import upgrade_schemas
from plugins.sql.core.vector_cache import VectorCache, enable_vector_search
from plugins.sql.sqlite import connection as sqlite
from plugins.sql.sqlite.backup import back_up, hold_open_work, remove_unfinished
from plugins.sql.sqlite.check import find_location_problems
from plugins.sql.sqlite.file_lock import FileLock
from plugins.sql.sqlite.health import DATABASE_ERRORS, FileMonitor, opening_error
from plugins.sql.sqlite.threads import Reader
from plugins.sql.sqlite.writer import Writer
from plugins.sql.stores.memories import as_stored
from plugins.sql.stores.retention import Retention
from plugins.sql.stores.store import SqlStore

logger = logging.getLogger(__name__)

T = TypeVar("T")


class SqliteDatabase:
    """Runs synchronous work with connections to one file, in threads; see `Access`.

    `health` reports whether writes are accepted: while the file is locked, full or unreachable it is
    probed repeatedly; once it is damaged nothing more is written.
    """

    is_sole_writer = True  # the lock ensures it

    def __init__(
        self,
        path: Path,
        synchronous: Synchronous = Synchronous.FULL,
        schemas: Schemas = NO_SCHEMAS,
        connection_class: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> None:
        self.path = path
        self.schemas = schemas
        self._synchronous = synchronous
        self._engine = sqlite.build_engine(path, connection_class)
        self._lock = FileLock(path)
        self.health = StoreHealth()
        self._monitor = FileMonitor(path, self.health)
        open_reader = partial(sqlite.open_reader, self._engine)
        self._writer = Writer(self._open, self._close, self._monitor, self._lock.record_log, self._synchronous)
        self._reader = Reader("greenroom-sql-reader", open_reader, self._monitor.explain_reader_error)
        self._searcher = Reader("greenroom-sql-searcher", self._open_searcher, self._monitor.explain_reader_error)
        self._vector_cache = VectorCache()
        self.recent_cache = RecentMemoryCache(as_stored)

    async def open(self) -> None:
        """Lock, check and upgrade the file, and start the threads.

        The caller must close it even if this raises ConfigError: another process has the file, or it is
        damaged, or newer than this code.
        """
        await self._writer.start()
        await self._reader.start()
        await self._searcher.start()

    async def close(self) -> None:
        """Finish queued work and release the file; the writer stops last."""
        await asyncio.gather(self._reader.stop(), self._searcher.stop())
        await self._writer.stop()
        self._engine.dispose()

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Run work that writes, in one commit with other waiting work; a failure undoes only its own."""
        return await self._writer.run(work, durable=durable)

    async def read(self, work: Work[T]) -> T:
        """Run short read-only work."""
        return await self._reader.run(work)

    async def search(self, work: Work[T]) -> T:
        """Run read-only work that may take long."""
        return await self._searcher.run(work)

    async def truncate_log(self) -> None:
        """Empty the write-ahead log: what was deleted is in neither file then.

        While another program reads the file, the log is emptied once it has finished, at the latest at the end.
        """
        await self._writer.run(self._writer.request_truncation)

    @property
    def commit_count(self) -> int:
        """The number of committed transactions."""
        return self._writer.commit_count

    def _open(self) -> Connection:
        sqlite.create_file(self.path)
        self._lock.acquire()
        with ExitStack() as on_failure:
            on_failure.callback(self._lock.release)
            remove_unfinished(self.path)
            for problem in find_location_problems(self.path):
                logger.warning("%s", problem)
            try:
                connection = self._open_checked()
            except DATABASE_ERRORS as error:
                raise opening_error(error, self.path) from error
            on_failure.pop_all()
        return connection

    def _open_checked(self) -> Connection:
        if hold_open_work(self._engine, self.path):
            self._lock.record_log(is_needed=False)
        else:
            sqlite.check_log(self.path, self._lock.log_needed_since)
        connection = sqlite.open_writer(self._engine, self._synchronous)
        with ExitStack() as on_failure:
            on_failure.callback(connection.close)
            was_interrupted = self._lock.log_needed_since is not None
            sqlite.check_integrity(connection, self.path, was_interrupted=was_interrupted)
            sqlite.check_writable(connection)
            backup = partial(back_up, connection, self.path)
            upgrade_schemas(connection, self.path, self.schemas, before_change=backup)
            self._vector_cache.attach(connection)
            self.recent_cache.attach(connection)
            self._monitor.start(connection)
            on_failure.pop_all()
        return connection

    def _open_searcher(self) -> Connection:
        connection = sqlite.open_reader(self._engine)
        enable_vector_search(connection, self._vector_cache)
        return connection

    def _close(self, connection: Connection) -> None:
        try:
            sqlite.close_writer(connection)
            self._lock.record_log(is_needed=False)
        except DATABASE_ERRORS as error:
            raise opening_error(error, self.path) from error
        finally:
            self._lock.release()


class OpenFiles:
    """The files that are open in this process.

    Agents of a process share an open file, because SQLite allows one writer per file and the lock would
    refuse a second one.
    """

    def __init__(self, connection_class: type[sqlite3.Connection] = sqlite3.Connection) -> None:
        self._connection_class = connection_class
        self._databases = SharedResource[Path, SqliteDatabase]()

    @asynccontextmanager
    async def use(
        self, path: Path, synchronous: Synchronous = Synchronous.FULL, schemas: Schemas = NO_SCHEMAS
    ) -> AsyncIterator[SqliteDatabase]:
        """Open a file or share the open one; the last user closes it."""
        key = _absolute_path(path)
        create = partial(SqliteDatabase, key, synchronous, schemas, self._connection_class)
        async with self._databases.use(key, create) as database:
            await database.open()
            _check_schemas(database, schemas)
            yield database

    @asynccontextmanager
    async def open_store(
        self,
        path: Path,
        agent_id: UUID,
        *,
        synchronous: Synchronous = Synchronous.FULL,
        schemas: Schemas = NO_SCHEMAS,
        retention: RetentionPolicy = DEFAULT_RETENTION,
        clock: Clock = system_clock,
    ) -> AsyncIterator[SqlStore]:
        """Open the store of one agent in a file."""
        async with (
            self.use(path, synchronous, schemas) as database,
            aclosing(SqlPluginTables(database, partial(build_read_only_engine, database.path))) as tables,
        ):
            agent_row = await database.write(partial(ensure_agent, agent_id=agent_id))
            async with Retention(database, agent_row, retention, clock=clock):
                yield SqlStore(database, agent_row, tables, clock)


def _check_schemas(database: SqliteDatabase, schemas: Schemas) -> None:
    """Raise PluginError if the file was opened without these schemas: only opening upgrades it."""
    if missing := sorted(set(schemas) - set(database.schemas)):
        raise PluginError(
            f"{database.path} is open without the tables of {', '.join(missing)}: start all characters of a "
            "process together"
        )


def _absolute_path(path: Path) -> Path:
    return Path(os.path.abspath(path))
