"""The database of one file: a thread that writes, two that read, and a lock against other processes."""

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError

from bot import ConfigError
from plugins.sql import sqlite
from plugins.sql.faults import explained
from plugins.sql.lock import FileLock
from plugins.sql.reader import Reader
from plugins.sql.threads import Work
from plugins.sql.upgrade import bring_up_to_date
from plugins.sql.writer import Writer

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Database:
    """Runs synchronous work with a connection, off the event loop.

    `write` returns once what was written is committed. `read` sees every write that has returned.
    `search` is a read that may take long and must not keep the others waiting.
    """

    def __init__(self, path: Path, synchronous: sqlite.Synchronous = sqlite.Synchronous.FULL) -> None:
        self.path = path
        self._synchronous = synchronous
        self._engine = sqlite.engine_of(path)
        self._lock = FileLock(path)
        explain = partial(explained, path=path)
        open_reader = partial(sqlite.open_reader, self._engine)
        self._writer = Writer(self._open, self._close, explain)
        self._reader = Reader("greenroom-sql-reader", open_reader, explain)
        self._searcher = Reader("greenroom-sql-searcher", open_reader, explain)

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

    async def write(self, work: Work[T]) -> T:
        """Run work that changes something, together with whatever else waits; a failure undoes it alone."""
        return await self._writer.run(work)

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
            connection = sqlite.open_writer(self._engine, self._synchronous)
            try:
                sqlite.check(connection, self.path)
                bring_up_to_date(connection, self.path)
            except BaseException:
                connection.close()
                raise
        except DatabaseError as error:
            self._lock.release()
            raise ConfigError(str(explained(error, self.path))) from error
        except BaseException:
            self._lock.release()
            raise
        return connection

    def _close(self, connection: Connection) -> None:
        try:
            sqlite.close_writer(connection)
        finally:
            self._lock.release()
