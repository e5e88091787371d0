"""The SQLite storage: open, open read-only, check, upgrade and back up.

An open SQLite file with its reader and writer threads, shared by the agents of a process.
"""

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection

from bot.concurrency.clock import Clock, system_clock
from bot.errors import ConfigError, PluginError, StoreInaccessible
from bot.settings import Settings
from bot.store.ledger import StoreHealth
from bot.store.protocols import Schemas, Store
from bot.store.sql.core.base import (
    DEFAULT_RETENTION,
    FIND_AGENT,
    AgentRow,
    RecentMemoryCache,
    RetentionPolicy,
    SharedResource,
    SqlSettings,
    Synchronous,
    Work,
    ensure_agent,
    find_database_file,
)
from bot.store.sql.core.schema import VERSION
from bot.store.sql.core.upgrade import SqlPluginTables, build_read_only_engine, find_usable_version, upgrade_schemas
from bot.store.sql.core.vector_cache import VectorCache, enable_vector_search
from bot.store.sql.sqlite import connection as sqlite
from bot.store.sql.sqlite.backup import back_up, copy_database, hold_open_work, remove_unfinished
from bot.store.sql.sqlite.check import check_file, find_location_problems, read_version, require_file
from bot.store.sql.sqlite.file_lock import FileLock
from bot.store.sql.sqlite.health import DATABASE_ERRORS, FileMonitor, explain_error, opening_error
from bot.store.sql.sqlite.repair import copy_readable, restore_copy
from bot.store.sql.sqlite.threads import Reader, Writer
from bot.store.sql.stores.memories import as_stored
from bot.store.sql.stores.retention import Retention
from bot.store.sql.stores.store import SqlStore
from bot.store.storage import NO_SCHEMAS, CheckReport, Storage, UpgradeResult

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
        self.write, self.read, self.search = self._writer.run, self._reader.run, self._searcher.run
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
                store = SqlStore(database, agent_row, tables, clock)
                await store.marks.refresh()
                await store.take_overs.refresh()
                yield store


def _check_schemas(database: SqliteDatabase, schemas: Schemas) -> None:
    """Raise PluginError if the file was opened without these schemas: only opening upgrades it."""
    if missing := sorted(set(schemas) - set(database.schemas)):
        raise PluginError(
            f"{database.path} is open without the tables of {', '.join(missing)}: start all characters of a "
            "process together"
        )


def _absolute_path(path: Path) -> Path:
    return Path(os.path.abspath(path))


REMEDY = "check its permissions, or set BOT_DATA_DIR or DATABASE_URL"


class SqliteStorage(Storage):
    """Opens stores in the SQLite file that the settings name."""

    def __init__(self) -> None:
        self._files = OpenFiles()

    @asynccontextmanager
    async def open(self, agent_id: UUID, settings: Settings, schemas: Schemas = NO_SCHEMAS) -> AsyncIterator[Store]:
        """Open one agent's store; agents of one process share a file."""
        path, options = find_database_file(settings), settings.load(SqlSettings)
        _check_writable(path)
        async with self._files.open_store(
            path, agent_id, synchronous=options.sql_synchronous, schemas=schemas, retention=options.retention
        ) as store:
            yield store

    def open_read_only(self, agent_id: UUID, settings: Settings) -> AbstractAsyncContextManager[Store]:
        """Open one agent's store read-only."""
        return open_read_only(find_database_file(settings), agent_id)

    async def check(self, settings: Settings) -> CheckReport:
        """Check the file; return its problems and facts."""
        return await asyncio.to_thread(check_file, find_database_file(settings))

    async def upgrade(self, settings: Settings, schemas: Schemas = NO_SCHEMAS) -> UpgradeResult:
        """Upgrade the file to this version's schema; an older file is backed up first."""
        path = find_database_file(settings)
        _check_writable(path)
        previous = await asyncio.to_thread(read_version, path)
        async with self._files.use(path, schemas=schemas):
            current = await asyncio.to_thread(read_version, path) or VERSION
        return UpgradeResult(str(path), previous, current, is_newer=current != VERSION)

    async def backup(self, settings: Settings, file: Path | None = None) -> Path:
        """Write a consistent copy of the file; return its path."""
        return await asyncio.to_thread(copy_database, find_database_file(settings), file)

    def backup_name(self, settings: Settings) -> str:
        """Return the name of the file, with its folder if it is not in the data folder."""
        path = find_database_file(settings)
        own_folder = Path(settings.get("BOT_DATA_DIR") or "data").absolute()
        return path.name if path.absolute().parent == own_folder else "-".join(path.absolute().parts[1:])

    async def restore(self, settings: Settings, file: Path) -> Path | None:
        """Replace the file by a copy; return where the previous one is kept."""
        return await asyncio.to_thread(restore_copy, find_database_file(settings), file)

    async def repair(self, settings: Settings, schemas: Schemas = NO_SCHEMAS) -> tuple[Path, Mapping[str, int]]:
        """Copy every readable row into a new file; return it and the number of lost rows by table."""
        path = find_database_file(settings)
        require_file(path)
        return await asyncio.to_thread(copy_readable, path, schemas)


def _check_writable(path: Path) -> None:
    """Raise StoreInaccessible if the file or its directory is not writable."""
    # Not Path.exists, which raises PermissionError in a closed folder:
    existing = next(candidate for candidate in (path, *path.absolute().parents) if os.path.exists(candidate))
    directory = existing.parent if existing == path else existing
    if not directory.is_dir():
        raise StoreInaccessible(f"{path} cannot be created: {directory} is no directory; {REMEDY}")
    for candidate in (directory, existing):
        if not os.access(candidate, os.W_OK):
            raise StoreInaccessible(f"{path} cannot be written: {candidate} is closed to this user; {REMEDY}")


class ReadOnlyDatabase:
    """A file that is only read; see `Access`. The running bot may write it."""

    is_sole_writer = False
    recent_cache = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self.health = StoreHealth()
        self._engine = sqlite.build_engine(path)
        self._reader = Reader(
            "greenroom-sql-look", partial(sqlite.open_reader, self._engine), partial(explain_error, path=path)
        )
        self.read = self.search = self._reader.run

    async def open(self) -> None:
        """Start the reading thread."""
        await self._reader.start()

    async def close(self) -> None:
        """Stop the thread and close the file."""
        await self._reader.stop()
        self._engine.dispose()

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Raise ConfigError."""
        raise ConfigError(f"the database {self._path} was opened read-only")

    async def truncate_log(self) -> None:
        """Do nothing: nothing is written."""


@asynccontextmanager
async def open_read_only(path: Path, agent_id: UUID) -> AsyncIterator[SqlStore]:
    """Open one agent's store in a file, read-only.

    Raise ConfigError if the file is missing or damaged, has another schema, or does not have the agent.
    """
    require_file(path)
    database = ReadOnlyDatabase(path)
    try:
        try:
            await database.open()
        except DATABASE_ERRORS as error:
            raise opening_error(error, path) from error
        agent_row = await database.read(partial(find_agent_row, path, agent_id))
        async with aclosing(SqlPluginTables(database, partial(build_read_only_engine, path))) as tables:
            store = SqlStore(database, agent_row, tables)
            await store.marks.refresh()
            await store.take_overs.refresh()
            yield store
    finally:
        await database.close()


def find_agent_row(location: Path | str, agent_id: UUID, connection: Connection) -> AgentRow:
    """Return an agent's row; raise ConfigError for another schema version or an unknown agent."""
    version = find_usable_version(connection)
    if version != VERSION:
        raise ConfigError(
            f"the database {location} has schema {version or 'none'}, this version of Greenroom reads "
            f"{VERSION}: "
            f"{_remedy(version)}"
        )
    number = connection.execute(FIND_AGENT, {"key": agent_id}).scalar()
    if number is None:
        raise ConfigError(
            f"the database {location} holds nothing of this character: name the one you mean with -c FILE"
        )
    return AgentRow(agent_id, number)


def _remedy(version: str | None) -> str:
    if version is None or (version.isdecimal() and int(version) < int(VERSION)):
        return "stop the bot and run `bot db upgrade`"
    return "update Greenroom"
