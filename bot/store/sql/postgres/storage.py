"""The PostgreSQL storage: open, open read-only, check, upgrade, back up and restore."""

import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection

from bot.concurrency.clock import Clock, system_clock
from bot.errors import BotError, ConfigError, SettingError
from bot.settings import Settings
from bot.store.protocols import Schemas, Store
from bot.store.sql.core.base import (
    DEFAULT_RETENTION,
    RetentionPolicy,
    SharedResource,
    SqlSettings,
    Work,
    ensure_agent,
    find_postgres_variable,
)
from bot.store.sql.core.schema import VERSION
from bot.store.sql.core.upgrade import SqlPluginTables, find_usable_version, find_version
from bot.store.sql.postgres.backup import dump_database, restore_dump
from bot.store.sql.postgres.connection import Address, parse_address
from bot.store.sql.postgres.database import PostgresDatabase, build_read_only_engine, run_once
from bot.store.sql.postgres.ledger import PostgresLedger
from bot.store.sql.postgres.work_sharing import PostgresSharing
from bot.store.sql.sqlite.check import count_rows, find_unreadable, find_version_problem
from bot.store.sql.sqlite.storage import find_agent_row
from bot.store.sql.stores.cache_logs_costs import MAX_BREAKS, find_breaks
from bot.store.sql.stores.retention import Retention
from bot.store.sql.stores.store import SqlStore
from bot.store.storage import NO_SCHEMAS, CheckReport, Storage, UpgradeResult

T = TypeVar("T")


class PostgresStorage(Storage):
    """Opens stores in the PostgreSQL database that the settings name."""

    def __init__(self) -> None:
        self._servers = OpenServers()

    @asynccontextmanager
    async def open(self, agent_id: UUID, settings: Settings, schemas: Schemas = NO_SCHEMAS) -> AsyncIterator[Store]:
        """Open one agent's store; other processes may have it open too."""
        retention = settings.load(SqlSettings).retention
        async with self._servers.open_store(
            _address(settings), agent_id, direct=_direct_address(settings), schemas=schemas, retention=retention
        ) as store:
            yield store

    def is_shared(self, settings: Settings) -> bool:
        """Return True: several processes may open the database at once."""
        return True

    @asynccontextmanager
    async def open_read_only(self, agent_id: UUID, settings: Settings) -> AsyncIterator[Store]:
        """Open one agent's store read-only."""
        address = _address(settings)
        database = _ReadOnlyDatabase(address)
        try:
            agent_row = await run_once(address, partial(find_agent_row, address.label, agent_id))
            async with aclosing(SqlPluginTables(database, partial(build_read_only_engine, address))) as tables:
                store = SqlStore(database, agent_row, tables)
                store.sharing = PostgresSharing(database, agent_row)
                await store.marks.refresh()
                await store.take_overs.refresh()
                yield store
        finally:
            await database.close()

    async def check(self, settings: Settings) -> CheckReport:
        """Check the database; return its problems and facts."""
        address = _address(settings)
        try:
            return await run_once(address, partial(_check_database, address.label))
        except BotError as error:
            return CheckReport(address.label, problems=(str(error),))

    async def upgrade(self, settings: Settings, schemas: Schemas = NO_SCHEMAS) -> UpgradeResult:
        """Upgrade the schema to this version; operators back up with PostgreSQL's tools."""
        address = _address(settings)
        previous = await run_once(address, find_version)
        async with self._servers.use(address, schemas):
            current = await run_once(address, find_version) or VERSION
        return UpgradeResult(address.label, previous, current, is_newer=current != VERSION)

    async def backup(self, settings: Settings, file: Path | None = None) -> Path:
        """Write a consistent copy with pg_dump; return its path."""
        address = _direct_address(settings) or _address(settings)
        now = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
        return await dump_database(address, file or _data_folder(settings) / f"greenroom-{now}.dump")

    def backup_name(self, settings: Settings) -> str:
        """Return a name made of the server's and the database's."""
        place = _address(settings).label.partition("://")[2]
        return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', place).strip('-')}.dump"

    async def restore(self, settings: Settings, file: Path) -> Path | None:
        """Replace the tables by those of a copy; return the dump of the previous ones."""
        address = _direct_address(settings) or _address(settings)
        return await restore_dump(address, file, _data_folder(settings))


class _ReadOnlyDatabase(PostgresDatabase):
    """A database that is only read."""

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Raise ConfigError."""
        raise ConfigError(f"the database {self.address.label} was opened read-only")


def _data_folder(settings: Settings) -> Path:
    return Path(settings.get("BOT_DATA_DIR") or "data")


def _address(settings: Settings) -> Address:
    name = find_postgres_variable(settings)
    has_direct = bool(settings.get("POSTGRES_DIRECT_URL"))
    return parse_address(settings.get(name) or "", f"{name} (in {settings.source_of(name)})", has_direct=has_direct)


def _direct_address(settings: Settings) -> Address | None:
    """Return the address that bypasses a pooler; raise SettingError if it is needed and missing."""
    name = "POSTGRES_DIRECT_URL"
    if url := settings.get(name):
        return parse_address(url, f"{name} (in {settings.source_of(name)})")
    if _address(settings).is_pooled:
        raise SettingError(
            f"{find_postgres_variable(settings)} leads to a pooler: set {name} to the address of the server "
            "itself, over which this process reports that it is alive"
        )
    return None


def _check_database(label: str, connection: Connection) -> CheckReport:
    version, usable = find_version(connection), find_usable_version(connection)
    if version is None:
        return CheckReport(label, exists=False)
    server = connection.exec_driver_sql("SHOW server_version").scalar_one()
    size = connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one()
    facts: dict[str, str | int] = {"schema": version, "server": f"PostgreSQL {server}", "bytes": int(size)}
    problems = list(find_version_problem(usable))
    if usable == VERSION:
        facts |= count_rows(connection)
        problems += [*find_unreadable(connection), *islice(find_breaks(connection), MAX_BREAKS)]
    return CheckReport(label, facts=facts, problems=tuple(problems))


class OpenServers:
    """The PostgreSQL databases that are open in this process."""

    def __init__(self) -> None:
        self._databases = SharedResource[str, PostgresDatabase]()

    @asynccontextmanager
    async def use(
        self, address: Address, schemas: Schemas = NO_SCHEMAS, direct: Address | None = None
    ) -> AsyncIterator[PostgresDatabase]:
        """Open a database or share the open one; the last user closes it.

        `direct` bypasses a pooler.
        """
        async with self._databases.use(address.url, partial(PostgresDatabase, address, direct)) as database:
            await database.open(schemas)
            yield database

    @asynccontextmanager
    async def open_store(
        self,
        address: Address,
        agent_id: UUID,
        *,
        direct: Address | None = None,
        schemas: Schemas = NO_SCHEMAS,
        retention: RetentionPolicy = DEFAULT_RETENTION,
        clock: Clock = system_clock,
    ) -> AsyncIterator[SqlStore]:
        """Open the store of one agent."""
        async with (
            self.use(address, schemas, direct) as database,
            aclosing(SqlPluginTables(database, partial(build_read_only_engine, address))) as tables,
        ):
            agent_row = await database.write(partial(ensure_agent, agent_id=agent_id))
            store = SqlStore(database, agent_row, tables, clock)
            store.sharing = sharing = PostgresSharing(database, agent_row)
            store.ledger = PostgresLedger(database, agent_row, sharing)
            await store.marks.refresh()
            await store.take_overs.refresh()
            async with Retention(database, agent_row, retention, clock=clock):
                yield store
