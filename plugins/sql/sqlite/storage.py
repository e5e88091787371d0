"""Open, read-only open."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError

from bot import ConfigError, Settings
from bot.store import NO_SCHEMAS, Checkup, Health, Schemas, Storage, Store, StoreRefused, Upgraded
from plugins.sql.core.base import FIND_AGENT, Owner
from plugins.sql.core.plugin_tables import open_tables, reading_engine
from plugins.sql.core.schema import VERSION
from plugins.sql.core.settings import SqlSettings, file_of
from plugins.sql.core.upgrade import version_of
from plugins.sql.sqlite import connection as sqlite
from plugins.sql.sqlite.backup import copied
from plugins.sql.sqlite.check import examined, require_file, version_in
from plugins.sql.sqlite.database import OpenFiles
from plugins.sql.sqlite.health import at_opening, explained
from plugins.sql.sqlite.threads import Reader, Work
from plugins.sql.stores.store import SqlStore

REMEDY = "see to its permissions, or set BOT_DATA_DIR or DATABASE_URL"


class SqliteStorage(Storage):
    """Keeps stores in the SQLite file that the settings name."""

    def __init__(self) -> None:
        self._files = OpenFiles()

    @asynccontextmanager
    async def open(
        self, agent_id: UUID, settings: Settings, schemas: Schemas = NO_SCHEMAS
    ) -> AsyncIterator[Store]:
        """Open one agent's store; agents of one process share a file."""
        path, options = file_of(settings), settings.load(SqlSettings)
        _see_that_it_can_be_written(path)
        async with self._files.store_in(
            path, agent_id, synchronous=options.sql_synchronous, schemas=schemas, keeping=options.keeping
        ) as store:
            yield store

    def look(self, agent_id: UUID, settings: Settings) -> AbstractAsyncContextManager[Store]:
        """Open one agent's store for reading alone."""
        return looked_at(file_of(settings), agent_id)

    async def check(self, settings: Settings) -> Checkup:
        """Look whether the file is whole, and what it holds."""
        return await asyncio.to_thread(examined, file_of(settings))

    async def upgrade(self, settings: Settings, schemas: Schemas = NO_SCHEMAS) -> Upgraded:
        """Give the file the schema of this version; an older one is copied before."""
        path = file_of(settings)
        _see_that_it_can_be_written(path)
        before = await asyncio.to_thread(version_in, path)
        async with self._files.use(path, schemas=schemas):
            return Upgraded(str(path), before, VERSION)

    async def backup(self, settings: Settings, file: Path | None = None) -> Path:
        """Copy the file as it is at one moment."""
        return await asyncio.to_thread(copied, file_of(settings), file)


def _see_that_it_can_be_written(path: Path) -> None:
    """Raise StoreRefused where the file, or the directory that it is to be in, is closed to us."""
    nearest = next(one for one in (path, *path.absolute().parents) if one.exists())
    directory = nearest.parent if nearest == path else nearest
    if not directory.is_dir():
        raise StoreRefused(f"{path} cannot be made: {directory} is no directory; {REMEDY}")
    for one in (directory, nearest):
        if not os.access(one, os.W_OK):
            raise StoreRefused(f"{path} cannot be written: {one} is closed to this user; {REMEDY}")


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
