"""Connection pool, retries, `Access`."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from bot.store import NO_SCHEMAS, Health, Schemas, StoreUnavailable
from plugins.sql.core.upgrade import bring_up_to_date
from plugins.sql.postgres.connection import Address, connect
from plugins.sql.postgres.errors import SLOW, Mend, at_opening, explained, mend_of
from plugins.sql.sqlite.threads import Work

T = TypeVar("T")
PATIENCE = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
MOST_COLLISIONS = 6
LETTING_GO = 2.0


@dataclass(frozen=True, slots=True)
class Line:
    """An open connection: SQLAlchemy's, and the driver's beneath it."""

    connection: AsyncConnection
    driver: Any

    async def run(self, work: Work[T]) -> T:
        """Run work outside any transaction: each of its statements is one by itself."""
        return await self.connection.run_sync(work)

    async def run_whole(self, work: Work[T]) -> T:
        """Run work in a transaction."""
        await self.driver.execute("BEGIN")
        try:
            result = await self.connection.run_sync(work)
        except BaseException:
            await self.driver.execute("ROLLBACK")
            raise
        await self.driver.execute("COMMIT")
        return result

    async def close(self) -> None:
        """Hang up; a server that does not answer is not waited for."""
        with suppress(Exception):
            async with asyncio.timeout(LETTING_GO):
                await self.connection.close()
        self.driver.terminate()


class Lines:
    """At most so many connections: opened when they are needed, dropped where they break."""

    def __init__(self, dial: Callable[[], Awaitable[Line]], most: int) -> None:
        self._dial = dial
        self._free: asyncio.LifoQueue[Line | None] = asyncio.LifoQueue()
        self._most = most
        for _ in range(most):
            self._free.put_nowait(None)

    @asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        """Lend one out, waiting for it where need be."""
        line = await self._free.get()
        try:
            if line is not None and line.driver.is_closed():
                await line.close()
                line = None
            line = line or await self._dial()
            yield line
        finally:
            if line is not None and (line.driver.is_closed() or line.driver.is_in_transaction()):
                await line.close()
                line = None
            self._free.put_nowait(line)

    async def close(self) -> None:
        """Hang up everywhere, once what is lent out has come back."""
        for _ in range(self._most):
            line = await self._free.get()
            if line is not None:
                await line.close()


class Desk:
    """Runs work on some lines, and waits for a server that is away for ten seconds at most.

    Once `health` knows of trouble nobody waits any longer: there is one try, and its error.
    """

    def __init__(self, lines: Lines, place: str, health: Health) -> None:
        self._lines = lines
        self._place = place
        self._health = health

    async def whole(self, work: Work[T]) -> T:
        """Run work in one transaction; it may be run several times, and be kept before the last."""
        return await self._persist(lambda line: line.run_whole(work))

    async def once(self, work: Work[T]) -> T:
        """Run work that is one statement, or that only reads: no transaction is opened for it."""
        return await self._persist(lambda line: line.run(work))

    async def _persist(self, run: Callable[[Line], Awaitable[T]]) -> T:
        end, collisions = time.monotonic() + PATIENCE, 0
        for tries in count(1):
            try:
                async with self._lines.line() as line:
                    return await run(line)
            except Exception as error:
                mend = mend_of(error)
                collisions += mend is Mend.AGAIN
                may_wait = mend is Mend.WAIT and self._health.trouble is None and time.monotonic() < end
                if not may_wait and (mend is not Mend.AGAIN or collisions == MOST_COLLISIONS):
                    raise self._noted(error) from error
            await asyncio.sleep(_pause_after(tries))
        raise AssertionError("it is tried for ever, or ends in an error")

    def _noted(self, error: Exception) -> BaseException:
        found = explained(error, self._place)
        if isinstance(found, StoreUnavailable) and found.cause != SLOW:
            self._health.fails(found)
        return found


def _pause_after(tries: int) -> float:
    """Wait longer every time, and not all at once."""
    longest: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries, 8))
    return longest * random.uniform(0.5, 1.0)


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
