"""The database on a PostgreSQL server: several processes may have it open, and share the work."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from bot import NO_SCHEMAS, Health, Schemas
from plugins.sql.postgres_address import Address, connect
from plugins.sql.postgres_desk import Desk, Line, Lines
from plugins.sql.postgres_faults import at_opening
from plugins.sql.threads import Work
from plugins.sql.upgrade import bring_up_to_date

T = TypeVar("T")
ROAD, INTAKE, SEARCHES = 8, 4, 2
LOOK_EVERY = 1.0


class PostgresDatabase:
    """Runs synchronous work with a connection to a server; see `Access`.

    What comes in has connections of its own, `intake`, and so have searches: nobody who takes long keeps
    a message waiting. `health` tells whether anything can be kept just now; while the server is away it
    is looked for every second.
    """

    def __init__(self, address: Address, direct: Address | None = None) -> None:
        self.address = address
        self.direct = direct or address
        self.health = Health()
        self._engine = engine_of(address).execution_options(isolation_level="AUTOCOMMIT")
        self._lines = tuple(Lines(self._dial, most) for most in (ROAD, INTAKE, SEARCHES))
        self.road, self.intake, self.searches = (Desk(one, address.place, self.health) for one in self._lines)
        self._lookout: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    async def open(self, schemas: Schemas = NO_SCHEMAS) -> None:
        """Find the server and bring the schema up to date; raises ConfigError, or StoreUnavailable."""
        engine = engine_of(self.address, is_bounded=False)
        try:
            async with engine.connect() as connection:
                await connection.run_sync(bring_up_to_date, self.address.place, schemas)
        except Exception as error:
            raise at_opening(error, self.address.place) from error
        finally:
            await engine.dispose()
        if self._lookout is None:
            self._lookout = asyncio.get_running_loop().create_task(self._look_out())

    async def close(self) -> None:
        """Finish what was asked for, and hang up."""
        if self._lookout is not None:
            self._lookout.cancel()
            await asyncio.wait({self._lookout})
        await asyncio.gather(*(one.close() for one in self._lines), *self._leaving)
        await self._engine.dispose()

    @property
    def is_sole(self) -> bool:
        """Whether nobody but this process changes what is kept: others may be at work."""
        return False

    @property
    def recents(self) -> None:
        """What is known without reading: nothing."""

    async def write(self, work: Work[T], *, lasting: bool = True) -> T:
        """Run work that changes something, in a transaction."""
        return await self.road.whole(work)

    async def read(self, work: Work[T]) -> T:
        """Run work that only reads, and quickly."""
        return await self.road.once(work)

    async def search(self, work: Work[T]) -> T:
        """Run work that only reads, and may take its time."""
        return await self.searches.once(work)

    async def _dial(self) -> Line:
        """Open a connection; whoever is stopped meanwhile leaves none behind."""
        dialling = asyncio.get_running_loop().create_task(self._dialled())
        try:
            return await asyncio.shield(dialling)
        except asyncio.CancelledError:
            leaving = asyncio.get_running_loop().create_task(_hung_up(dialling))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            raise

    async def _dialled(self) -> Line:
        connection = await self._engine.connect()
        return Line(connection, (await connection.get_raw_connection()).driver_connection)

    async def _look_out(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if self.health.trouble is not None:
                await self._look()

    async def _look(self) -> None:
        try:
            line = await self._dial()
            try:
                await line.driver.execute("CREATE TEMPORARY TABLE greenroom_trial ()")
            finally:
                await line.close()
        except Exception:  # it is not over: the next look may find it so
            return
        self.health.recovers()


async def _hung_up(dialling: asyncio.Task[Line]) -> None:
    with suppress(Exception):  # nobody waits for it any more
        await (await dialling).close()


def engine_of(address: Address, *, is_bounded: bool = True) -> AsyncEngine:
    """Describe connections to a database; what runs on them ends in half a minute if they are bounded."""
    creator: Any = partial(connect, address, is_bounded=is_bounded)
    return create_async_engine("postgresql+asyncpg://", poolclass=NullPool, async_creator=creator)


def reading_engine_of(address: Address) -> AsyncEngine:
    """Describe connections that change nothing, for what plugins ask by themselves."""
    return engine_of(address).execution_options(postgresql_readonly=True)
