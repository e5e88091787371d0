"""Opening stores on PostgreSQL: agents of one process that share a database share its connections."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from bot import NO_SCHEMAS, Clock, Schemas, system_clock
from plugins.sql.owner import register
from plugins.sql.postgres import PostgresDatabase, reading_engine_of
from plugins.sql.postgres_address import Address
from plugins.sql.postgres_lanes import Lanes
from plugins.sql.postgres_road import PostgresLedger
from plugins.sql.postgres_sharing import PostgresSharing
from plugins.sql.retention import DEFAULTS, Keeping, Retention
from plugins.sql.store import SqlStore
from plugins.sql.tables import open_tables


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
