"""Opening a store: agents of one process that share a file share its one writer."""

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from bot import NO_SCHEMAS, Clock, PluginError, Schemas, system_clock
from plugins.sql.database import Database
from plugins.sql.owner import register
from plugins.sql.retention import DEFAULTS, Keeping, Retention
from plugins.sql.sqlite import Synchronous
from plugins.sql.store import SqlStore
from plugins.sql.tables import open_tables, reading_engine


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
