"""Open (shared by agents), check, upgrade."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection

from bot import BotError, Clock, ConfigError, SettingError, Settings, system_clock
from bot.store import NO_SCHEMAS, Checkup, Schemas, Storage, Store, Upgraded
from plugins.sql.core.base import register
from plugins.sql.core.plugin_tables import open_tables
from plugins.sql.core.schema import VERSION
from plugins.sql.core.settings import SqlSettings, postgres_in
from plugins.sql.core.upgrade import version_of
from plugins.sql.postgres.connection import Address, address_of
from plugins.sql.postgres.database import PostgresDatabase, engine_of, reading_engine_of
from plugins.sql.postgres.errors import at_opening
from plugins.sql.postgres.leases import Lanes
from plugins.sql.postgres.ledger import PostgresLedger
from plugins.sql.postgres.work_sharing import PostgresSharing
from plugins.sql.sqlite.check import age, counted
from plugins.sql.sqlite.storage import owner_in
from plugins.sql.sqlite.threads import Work
from plugins.sql.stores.audit_log import MOST_BREAKS, breaks
from plugins.sql.stores.retention import DEFAULTS, Keeping, Retention
from plugins.sql.stores.store import SqlStore

T = TypeVar("T")


class PostgresStorage(Storage):
    """Keeps stores in the PostgreSQL database that the settings name."""

    def __init__(self) -> None:
        self._servers = OpenServers()

    @asynccontextmanager
    async def open(
        self, agent_id: UUID, settings: Settings, schemas: Schemas = NO_SCHEMAS
    ) -> AsyncIterator[Store]:
        """Open one agent's store; other processes may have it open too."""
        keeping = settings.load(SqlSettings).keeping
        async with self._servers.store_at(
            _address(settings), agent_id, direct=_direct(settings), schemas=schemas, keeping=keeping
        ) as store:
            yield store

    def is_shared(self, settings: Settings) -> bool:
        """Tell that several processes may have it open at once."""
        return True

    @asynccontextmanager
    async def look(self, agent_id: UUID, settings: Settings) -> AsyncIterator[Store]:
        """Open one agent's store for reading alone."""
        address = _address(settings)
        database = _LookedAt(address)
        try:
            owner = await _asked(address, partial(owner_in, address.place, agent_id))
            async with open_tables(database, partial(reading_engine_of, address)) as tables:
                yield SqlStore(database, owner, tables)
        finally:
            await database.close()

    async def check(self, settings: Settings) -> Checkup:
        """Look what the database holds."""
        address = _address(settings)
        try:
            return await _asked(address, partial(_examined, address.place))
        except BotError as error:
            return Checkup(address.place, problems=(str(error),))

    async def upgrade(self, settings: Settings, schemas: Schemas = NO_SCHEMAS) -> Upgraded:
        """Give the database the schema of this version; it is copied by its own tools."""
        address = _address(settings)
        before = await _asked(address, version_of)
        async with self._servers.use(address, schemas):
            return Upgraded(address.place, before, VERSION)

    async def backup(self, settings: Settings, file: Path | None = None) -> Path:
        """Say who does that."""
        raise ConfigError(
            f"{_address(settings).place} is a PostgreSQL database: copy it with its own tool, as in "
            "`pg_dump --format=custom --file=greenroom.dump` and the address"
        )


class _LookedAt(PostgresDatabase):
    """A database that is only read."""

    async def write(self, work: Work[T], *, lasting: bool = True) -> T:
        """Refuse."""
        raise ConfigError(f"the database {self.address.place} was opened for reading alone")


def _address(settings: Settings) -> Address:
    name = postgres_in(settings)
    return address_of(settings.get(name) or "", f"{name} (in {settings.source_of(name)})")


def _direct(settings: Settings) -> Address | None:
    """Find the way past a pooler; raises SettingError where one is needed and none is given."""
    name = "POSTGRES_DIRECT_URL"
    if url := settings.get(name):
        return address_of(url, f"{name} (in {settings.source_of(name)})")
    if _address(settings).is_pooled:
        raise SettingError(
            f"{postgres_in(settings)} leads to a pooler: set {name} to the address of the server itself, "
            "over which this process says that it lives"
        )
    return None


async def _asked(address: Address, work: Work[T]) -> T:
    """Ask something over a connection of its own."""
    engine = engine_of(address)
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(work)
    except BotError:
        raise
    except Exception as error:
        raise at_opening(error, address.place) from error
    finally:
        await engine.dispose()


def _examined(place: str, connection: Connection) -> Checkup:
    found = version_of(connection)
    if found is None:
        return Checkup(place, is_there=False)
    server = connection.exec_driver_sql("SHOW server_version").scalar_one()
    size = connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one()
    facts: dict[str, str | int] = {"schema": found, "server": f"PostgreSQL {server}", "bytes": int(size)}
    problems = list(age(found))
    if found == VERSION:
        facts |= counted(connection)
        problems += islice(breaks(connection), MOST_BREAKS)
    return Checkup(place, facts=facts, problems=tuple(problems))


@dataclass(slots=True)
class _Held:
    database: PostgresDatabase
    users: int = 0


class OpenServers:
    """The PostgreSQL databases that are open in this process."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    @asynccontextmanager
    async def use(
        self, address: Address, schemas: Schemas = NO_SCHEMAS, direct: Address | None = None
    ) -> AsyncIterator[PostgresDatabase]:
        """Open a database, or join those who have it open; the last one to leave closes it.

        `direct` leads past a pooler.
        """
        held = self._held.setdefault(address.url, _Held(PostgresDatabase(address, direct)))
        held.users += 1
        try:
            await held.database.open(schemas)
            yield held.database
        finally:
            held.users -= 1
            if not held.users:
                del self._held[address.url]
                await held.database.close()

    @asynccontextmanager
    async def store_at(
        self,
        address: Address,
        agent_id: UUID,
        *,
        direct: Address | None = None,
        schemas: Schemas = NO_SCHEMAS,
        keeping: Keeping = DEFAULTS,
        clock: Clock = system_clock,
    ) -> AsyncIterator[SqlStore]:
        """Open the store of one agent."""
        async with (
            self.use(address, schemas, direct) as database,
            open_tables(database, partial(reading_engine_of, address)) as tables,
        ):
            owner = await database.write(partial(register, agent_id=agent_id))
            store = SqlStore(database, owner, tables, clock)
            lanes = Lanes(database, owner)
            store.ledger = PostgresLedger(database, owner, lanes)
            store.sharing = PostgresSharing(database, owner, lanes)
            async with Retention(database, owner, keeping, clock=clock):
                yield store
