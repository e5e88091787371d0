"""Work for PostgreSQL: handed to a free connection, and done again where that mends it."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from bot import Health, StoreUnavailable
from plugins.sql.postgres_faults import SLOW, Mend, explained, mend_of
from plugins.sql.threads import Work

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
