"""Looking into a database that another process may have open: nothing is locked, made or changed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError

from bot import ConfigError, Health
from plugins.sql import sqlite
from plugins.sql.examining import require_file
from plugins.sql.faults import at_opening, explained
from plugins.sql.owner import FIND_AGENT, Owner
from plugins.sql.reader import Reader
from plugins.sql.schema import VERSION
from plugins.sql.store import SqlStore
from plugins.sql.tables import open_tables, reading_engine
from plugins.sql.threads import Work
from plugins.sql.upgrade import version_of

T = TypeVar("T")


class LookedAt:
    """A database that is only read; see `Access`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.health = Health()
        self._engine = sqlite.engine_of(path)
        self._reader = Reader(
            "greenroom-sql-look", partial(sqlite.open_reader, self._engine), partial(explained, path=path)
        )

    async def open(self) -> None:
        """Start the thread that reads."""
        await self._reader.start()

    async def close(self) -> None:
        """Stop it."""
        await self._reader.stop()
        self._engine.dispose()

    @property
    def is_sole(self) -> bool:
        """Whether nobody but this process changes what is kept: another one does."""
        return False

    @property
    def recents(self) -> None:
        """What is known without reading: nothing."""

    async def write(self, work: Work[T], *, lasting: bool = True) -> T:
        """Refuse."""
        raise ConfigError(f"the database {self._path} was opened for reading alone")

    async def read(self, work: Work[T]) -> T:
        """Run work that only reads."""
        return await self._reader.run(work)

    async def search(self, work: Work[T]) -> T:
        """Run work that only reads; there is nobody whom it could keep waiting."""
        return await self._reader.run(work)


@asynccontextmanager
async def looked_at(path: Path, agent_id: UUID) -> AsyncIterator[SqlStore]:
    """Open one agent's store in a file for reading alone.

    Raises ConfigError where the file is missing or damaged, has another schema, or does not know the agent.
    """
    require_file(path)
    database = LookedAt(path)
    try:
        try:
            await database.open()
        except DatabaseError as error:
            raise at_opening(error, path) from error
        owner = await database.read(partial(owner_in, path, agent_id))
        async with open_tables(database, partial(reading_engine, path)) as tables:
            yield SqlStore(database, owner, tables)
    finally:
        await database.close()


def owner_in(place: Path | str, agent_id: UUID, connection: Connection) -> Owner:
    """Find an agent in a database that is to be read; raises ConfigError where that cannot be."""
    found = version_of(connection)
    if found != VERSION:
        raise ConfigError(
            f"the database {place} has schema {found or 'none'}, this version of Greenroom reads {VERSION}: "
            f"{_remedy(found)}"
        )
    row = FIND_AGENT.first(connection, agent_id.bytes)
    if row is None:
        raise ConfigError(
            f"the database {place} holds nothing of this character: name the one you mean with -c FILE"
        )
    return Owner(agent_id, row[0])


def _remedy(found: str | None) -> str:
    if found is None or (found.isdecimal() and int(found) < int(VERSION)):
        return "stop the bot and run `bot db upgrade`"
    return "update Greenroom"
