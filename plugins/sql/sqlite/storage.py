"""The SQLite storage: open, open read-only, check, upgrade and back up."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection

from bot import ConfigError, Settings
from bot.store import NO_SCHEMAS, CheckReport, Schemas, Storage, Store, StoreHealth, StoreInaccessible, UpgradeResult
from plugins.sql.core.base import FIND_AGENT, AgentRow, Work
from plugins.sql.core.plugin_tables import SqlPluginTables, build_read_only_engine
from plugins.sql.core.schema import VERSION
from plugins.sql.core.settings import SqlSettings, find_database_file
from plugins.sql.core.upgrade import find_usable_version
from plugins.sql.sqlite import connection as sqlite
from plugins.sql.sqlite.backup import copy_database
from plugins.sql.sqlite.check import check_file, read_version, require_file
from plugins.sql.sqlite.database import OpenFiles
from plugins.sql.sqlite.health import DATABASE_ERRORS, explain_error, opening_error
from plugins.sql.sqlite.repair import copy_readable, restore_copy
from plugins.sql.sqlite.threads import Reader
from plugins.sql.stores.store import SqlStore

REMEDY = "check its permissions, or set BOT_DATA_DIR or DATABASE_URL"

T = TypeVar("T")


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
            return UpgradeResult(str(path), previous, VERSION)

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
    existing = next(candidate for candidate in (path, *path.absolute().parents) if candidate.exists())
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

    async def read(self, work: Work[T]) -> T:
        """Run read-only work."""
        return await self._reader.run(work)

    async def search(self, work: Work[T]) -> T:
        """Run read-only work."""
        return await self._reader.run(work)

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
            yield SqlStore(database, agent_row, tables)
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
