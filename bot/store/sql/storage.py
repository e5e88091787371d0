"""Choose the database by the settings: a SQLite file or a PostgreSQL server."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from uuid import UUID

from bot.errors import ConfigError
from bot.installation import install_command
from bot.settings import Settings
from bot.store.protocols import Schemas, Store
from bot.store.sql.core.base import find_postgres_variable
from bot.store.sql.sqlite.storage import SqliteStorage
from bot.store.storage import NO_SCHEMAS, CheckReport, Storage, UpgradeResult


class SqlStorage(Storage):
    """Opens stores in the database that the settings name."""

    def __init__(self) -> None:
        self._sqlite = SqliteStorage()
        self._postgres: Storage | None = None

    @asynccontextmanager
    async def open(self, agent_id: UUID, settings: Settings, schemas: Schemas = NO_SCHEMAS) -> AsyncIterator[Store]:
        """Open one agent's store."""
        async with self._storage_for(settings).open(agent_id, settings, schemas) as store:
            yield store

    def is_shared(self, settings: Settings) -> bool:
        """Return whether several processes may open the database at once."""
        return self._storage_for(settings).is_shared(settings)

    def open_read_only(self, agent_id: UUID, settings: Settings) -> AbstractAsyncContextManager[Store]:
        """Open one agent's store read-only."""
        return self._storage_for(settings).open_read_only(agent_id, settings)

    async def check(self, settings: Settings) -> CheckReport:
        """Check the database; return its problems and facts."""
        return await self._storage_for(settings).check(settings)

    async def upgrade(self, settings: Settings, schemas: Schemas = NO_SCHEMAS) -> UpgradeResult:
        """Upgrade the schema to this version."""
        return await self._storage_for(settings).upgrade(settings, schemas)

    async def backup(self, settings: Settings, file: Path | None = None) -> Path:
        """Write a consistent copy of the database; return its path."""
        return await self._storage_for(settings).backup(settings, file)

    def backup_name(self, settings: Settings) -> str:
        """Return the file name of scheduled copies, without their time."""
        return self._storage_for(settings).backup_name(settings)

    async def restore(self, settings: Settings, file: Path) -> Path | None:
        """Replace the database by a copy; return where the previous one is kept."""
        return await self._storage_for(settings).restore(settings, file)

    async def repair(self, settings: Settings, schemas: Schemas = NO_SCHEMAS) -> tuple[Path, Mapping[str, int]]:
        """Copy what can be read of the database; return the copy and the number of lost rows by table."""
        return await self._storage_for(settings).repair(settings, schemas)

    def _storage_for(self, settings: Settings) -> Storage:
        name = find_postgres_variable(settings)
        if not name:
            return self._sqlite
        if self._postgres is None:
            self._postgres = _load_postgres(name)
        return self._postgres


def _load_postgres(name: str) -> Storage:
    """Import the PostgreSQL storage; raise ConfigError if its packages are not installed."""
    try:
        module = import_module("bot.store.sql.postgres.storage")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{name} names a PostgreSQL database, and {error.name} is not installed: {install_command('postgres')}"
        ) from None
    storage: Storage = module.PostgresStorage()
    return storage
