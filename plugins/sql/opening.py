"""Opening a store: agents of one process that share a file share its one writer."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from bot import Clock, Settings, system_clock
from plugins.sql.book import register
from plugins.sql.database import Database
from plugins.sql.settings import SqlSettings, file_of
from plugins.sql.sqlite import Synchronous
from plugins.sql.store import SqlStore


@dataclass(slots=True)
class _Held:
    database: Database
    users: int = 0


class OpenFiles:
    """The files that are open in this process.

    The one thing that agents of a process have in common: SQLite takes one writer a file, and whoever
    opened a second one would be refused by the lock.
    """

    def __init__(self) -> None:
        self._held: dict[Path, _Held] = {}

    @asynccontextmanager
    async def use(self, path: Path, synchronous: Synchronous = Synchronous.FULL) -> AsyncIterator[Database]:
        """Open a file, or join those who have it open; the last one to leave closes it."""
        key = _absolute(path)
        held = self._held.setdefault(key, _Held(Database(key, synchronous)))
        held.users += 1
        try:
            await held.database.open()
            yield held.database
        finally:
            held.users -= 1
            if not held.users:
                del self._held[key]
                await held.database.close()

    @asynccontextmanager
    async def open_store(self, agent_id: UUID, settings: Settings) -> AsyncIterator[SqlStore]:
        """Open the store of one agent, as its settings say."""
        path, options = file_of(settings), settings.load(SqlSettings)
        async with self.store_in(path, agent_id, synchronous=options.sql_synchronous) as store:
            yield store

    @asynccontextmanager
    async def store_in(
        self,
        path: Path,
        agent_id: UUID,
        *,
        synchronous: Synchronous = Synchronous.FULL,
        clock: Clock = system_clock,
    ) -> AsyncIterator[SqlStore]:
        """Open the store of one agent in a file."""
        async with self.use(path, synchronous) as database:
            owner = await database.write(partial(register, agent_id=agent_id))
            yield SqlStore(database, owner, clock)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))
