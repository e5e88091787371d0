"""Reader and writer threads of one file, shared by agents."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError

from bot import Clock, PluginError, system_clock
from bot.store import NO_SCHEMAS, Health, Schemas
from plugins.sql.core.base import register
from plugins.sql.core.plugin_tables import open_tables, reading_engine
from plugins.sql.core.recent_cache import Recents
from plugins.sql.core.upgrade import bring_up_to_date
from plugins.sql.core.vector_cache import Matrices, search_with
from plugins.sql.sqlite import connection as sqlite
from plugins.sql.sqlite.backup import back_up, hold_what_was_open
from plugins.sql.sqlite.check import doubts
from plugins.sql.sqlite.connection import Synchronous
from plugins.sql.sqlite.file_lock import FileLock
from plugins.sql.sqlite.health import Watch, at_opening
from plugins.sql.sqlite.threads import Reader, Work
from plugins.sql.sqlite.writer import Writer
from plugins.sql.stores.memories import as_read
from plugins.sql.stores.retention import DEFAULTS, Keeping, Retention
from plugins.sql.stores.store import SqlStore

logger = logging.getLogger(__name__)

FAULTS = (DatabaseError, sqlite3.Error)  # as Core has them, and as the driver itself
T = TypeVar("T")


class Database:
    """Runs synchronous work with a connection, off the event loop.

    `write` returns once what was written is committed. `read` sees every write that has returned.
    `search` is a read that may take long and must not keep the others waiting. `health` tells whether
    anything can be kept just now; while the file is locked, full or out of reach it is tried again and
    again, while it is damaged nothing more is written.
    """

    def __init__(
        self,
        path: Path,
        synchronous: sqlite.Synchronous = sqlite.Synchronous.FULL,
        schemas: Schemas = NO_SCHEMAS,
        connected: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> None:
        self.path = path
        self.schemas = schemas
        self._synchronous = synchronous
        self._engine = sqlite.engine_of(path, connected)
        self._lock = FileLock(path)
        self.health = Health()
        self._watch = Watch(path, self.health)
        open_reader = partial(sqlite.open_reader, self._engine)
        self._writer = Writer(self._open, self._close, self._watch, self._lock.note_log, self._synchronous)
        self._reader = Reader("greenroom-sql-reader", open_reader, self._watch.of_reader)
        self._searcher = Reader("greenroom-sql-searcher", self._open_searcher, self._watch.of_reader)
        self._matrices = Matrices()
        self.recents = Recents(as_read)

    async def open(self) -> None:
        """Lock, check and upgrade the file, and start the threads.

        Whoever opens it closes it too, even where this raises ConfigError: another process has the file,
        or it is damaged, or newer than this code.
        """
        await self._writer.start()
        await self._reader.start()
        await self._searcher.start()

    async def close(self) -> None:
        """Finish what was asked for, and let go of the file; the writer is the last to go."""
        await asyncio.gather(self._reader.stop(), self._searcher.stop())
        await self._writer.stop()
        self._engine.dispose()

    @property
    def is_sole(self) -> bool:
        """Whether nobody but this process changes what is kept: the lock sees to it."""
        return True

    async def write(self, work: Work[T], *, lasting: bool = True) -> T:
        """Run work that changes something, together with whatever else waits; a failure undoes it alone."""
        return await self._writer.run(work, lasting=lasting)

    async def read(self, work: Work[T]) -> T:
        """Run work that only reads, and quickly."""
        return await self._reader.run(work)

    async def search(self, work: Work[T]) -> T:
        """Run work that only reads, and may take its time."""
        return await self._searcher.run(work)

    @property
    def commits(self) -> int:
        """How many transactions have been committed."""
        return self._writer.commits

    def _open(self) -> Connection:
        sqlite.create_file(self.path)
        self._lock.acquire()
        try:
            for doubt in doubts(self.path):
                logger.warning("%s", doubt)
            return self._opened()
        except FAULTS as error:
            self._lock.release()
            raise at_opening(error, self.path) from error
        except BaseException:
            self._lock.release()
            raise

    def _opened(self) -> Connection:
        if hold_what_was_open(self._engine, self.path):
            self._lock.note_log(is_needed=False)
        else:
            sqlite.check_log(self.path, self._lock.log_needed_since)
        connection = sqlite.open_writer(self._engine, self._synchronous)
        try:
            sqlite.check(connection, self.path)
            sqlite.check_writable(connection)
            backup = partial(back_up, connection, self.path)
            bring_up_to_date(connection, self.path, self.schemas, before_change=backup)
            self._matrices.watch(connection)
            self.recents.watch(connection)
            self._watch.begin(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_searcher(self) -> Connection:
        connection = sqlite.open_reader(self._engine)
        search_with(connection, self._matrices)
        return connection

    def _close(self, connection: Connection) -> None:
        try:
            sqlite.close_writer(connection)
            self._lock.note_log(is_needed=False)
        except FAULTS as error:
            raise at_opening(error, self.path) from error
        finally:
            self._lock.release()


@dataclass(slots=True)
class _Held:
    database: Database
    users: int = 0


class OpenFiles:
    """The files that are open in this process.

    The one thing that agents of a process have in common: SQLite takes one writer a file, and whoever
    opened a second one would be refused by the lock.
    """

    def __init__(self, connected: type[sqlite3.Connection] = sqlite3.Connection) -> None:
        self._connected = connected
        self._held: dict[Path, _Held] = {}

    @asynccontextmanager
    async def use(
        self,
        path: Path,
        synchronous: Synchronous = Synchronous.FULL,
        schemas: Schemas = NO_SCHEMAS,
    ) -> AsyncIterator[Database]:
        """Open a file, or join those who have it open; the last one to leave closes it."""
        key = _absolute(path)
        held = self._held.setdefault(key, _Held(Database(key, synchronous, schemas, self._connected)))
        held.users += 1
        try:
            await held.database.open()
            _see_that_it_has(held.database, schemas)
            yield held.database
        finally:
            held.users -= 1
            if not held.users:
                del self._held[key]
                await held.database.close()

    @asynccontextmanager
    async def store_in(
        self,
        path: Path,
        agent_id: UUID,
        *,
        synchronous: Synchronous = Synchronous.FULL,
        schemas: Schemas = NO_SCHEMAS,
        keeping: Keeping = DEFAULTS,
        clock: Clock = system_clock,
    ) -> AsyncIterator[SqlStore]:
        """Open the store of one agent in a file."""
        async with (
            self.use(path, synchronous, schemas) as database,
            open_tables(database, partial(reading_engine, database.path)) as tables,
        ):
            owner = await database.write(partial(register, agent_id=agent_id))
            async with Retention(database, owner, keeping, clock=clock):
                yield SqlStore(database, owner, tables, clock)


def _see_that_it_has(database: Database, schemas: Schemas) -> None:
    """Raise PluginError where the file was opened without these: it is changed at its opening alone."""
    if missing := sorted(set(schemas) - set(database.schemas)):
        raise PluginError(
            f"{database.path} is open without the tables of {', '.join(missing)}: start all characters of a "
            "process together"
        )


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))
