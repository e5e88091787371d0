"""The database of one file: a thread that writes, two that read, and a lock against other processes."""

import asyncio
import logging
import sqlite3
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError

from bot import NO_SCHEMAS, Health, Schemas
from plugins.sql import sqlite
from plugins.sql.faults import at_opening
from plugins.sql.lock import FileLock
from plugins.sql.matrices import Matrices, search_with
from plugins.sql.memories import as_read
from plugins.sql.places import doubts
from plugins.sql.reader import Reader
from plugins.sql.recents import Recents
from plugins.sql.restored import hold_what_was_open
from plugins.sql.threads import Work
from plugins.sql.upgrade import bring_up_to_date
from plugins.sql.watch import Watch
from plugins.sql.writer import Writer

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
            bring_up_to_date(connection, self.path, self.schemas)
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
