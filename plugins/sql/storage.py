"""A SQLite file as a storage: opened by one process, looked at by others, checked, upgraded and copied."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from uuid import UUID

from bot import NO_SCHEMAS, Checkup, Schemas, Settings, Storage, Store, StoreRefused, Upgraded
from plugins.sql.copying import copied
from plugins.sql.examining import examined, version_in
from plugins.sql.looking import looked_at
from plugins.sql.opening import OpenFiles
from plugins.sql.schema import VERSION
from plugins.sql.settings import SqlSettings, file_of

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
