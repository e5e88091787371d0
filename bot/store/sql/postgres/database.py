"""An open PostgreSQL database: connection pools, retries and health."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from bot.concurrency.clock import Backoff
from bot.concurrency.tasks import TaskSet
from bot.errors import BotError, StoreUnavailable
from bot.store.ledger import StoreHealth
from bot.store.protocols import Schemas
from bot.store.sql.core.base import Work
from bot.store.sql.core.schema import metadata
from bot.store.sql.core.upgrade import LOCK_KEY, upgrade_schemas
from bot.store.sql.postgres.connection import (
    DRIVER_ERRORS,
    MAX_CACHED_STATEMENTS,
    SLOW,
    Address,
    ErrorAction,
    action_for,
    connect,
    explain_error,
    is_broken,
    opening_error,
)
from bot.store.sql.postgres.heartbeat import Heartbeat
from bot.store.storage import NO_SCHEMAS

logger = logging.getLogger(__name__)

T = TypeVar("T")
MAX_WAIT_SECONDS = 10.0
RETRY_DELAYS = Backoff(first=0.04, maximum=0.5, jitter=0.5)
MAIN_CONNECTIONS, INBOX_CONNECTIONS, SEARCH_CONNECTIONS = 8, 4, 2
RECHECK_SECONDS = 1.0
MAX_COLLISIONS = 6
CLOSE_TIMEOUT = 2.0

# Tables in which the server has counted no rows, and that have grown beyond a page since. It counts them by itself, but
# only once a minute: until then it takes the agent's number for selective, and reads whole tables to find one row.
FIND_TABLES_WITHOUT_STATISTICS = """
SELECT relname FROM pg_class WHERE relnamespace = CAST(current_schema() AS regnamespace)
  AND relname = ANY(CAST($1 AS text[])) AND reltuples <= 0
  AND pg_relation_size(oid) > 8192 * greatest(relpages, 1)
"""


@dataclass(frozen=True, slots=True)
class PooledConnection:
    """An open connection: SQLAlchemy's, and the driver's inside it."""

    connection: AsyncConnection
    driver: Any

    async def run(self, work: Work[T]) -> T:
        """Run work without a transaction: each statement commits by itself."""
        return await self.connection.run_sync(work)

    async def run_in_transaction(self, work: Work[T]) -> T:
        """Run work in a transaction."""
        await self.driver.execute("BEGIN")
        end_statement = "ROLLBACK"
        try:
            result = await self.connection.run_sync(work)
            end_statement = "COMMIT"
        finally:
            await self.driver.execute(end_statement)
        return result

    async def close(self) -> None:
        """Close the connection; wait for the server for at most two seconds."""
        try:
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self.connection.close()
        finally:  # also if cancelled
            self.driver.terminate()


class ConnectionPool:
    """A bounded pool of connections, opened on demand and dropped when broken."""

    def __init__(self, connect: Callable[[], Awaitable[PooledConnection]], size: int) -> None:
        self._connect = connect
        self._free: asyncio.LifoQueue[PooledConnection | None] = asyncio.LifoQueue()
        self._size = size
        for _ in range(size):
            self._free.put_nowait(None)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[PooledConnection]:
        """Yield a connection; wait until one is free."""
        connection = await self._free.get()
        try:
            if connection is not None and connection.driver.is_closed():
                await connection.close()
                connection = None
            connection = connection or await self._connect()
            yield connection
        except DRIVER_ERRORS as error:
            if connection is not None and is_broken(error):
                connection.driver.terminate()
            raise
        finally:
            is_usable = connection is not None and not (
                connection.driver.is_closed() or connection.driver.is_in_transaction()
            )
            try:
                if connection is not None and not is_usable:
                    await connection.close()
            finally:  # also if cancelled: the pool would have one place less for ever
                self._free.put_nowait(connection if is_usable else None)

    async def close(self) -> None:
        """Close all connections once they are returned."""
        for _ in range(self._size):
            connection = await self._free.get()
            if connection is not None:
                await connection.close()


class QueryRunner:
    """Runs work on connections of a pool; waits at most ten seconds for an unreachable server.

    While `health` has a problem there is only one attempt.
    """

    def __init__(self, pool: ConnectionPool, label: str, health: StoreHealth) -> None:
        self._pool = pool
        self._label = label
        self._health = health

    async def run_in_transaction(self, work: Work[T]) -> T:
        """Run work in one transaction. It may run several times, even if an earlier commit succeeded."""
        return await self._run_with_retries(lambda connection: connection.run_in_transaction(work))

    async def run(self, work: Work[T]) -> T:
        """Run read-only work or a single statement, without opening a transaction."""
        return await self._run_with_retries(lambda connection: connection.run(work))

    async def run_on_driver(self, call: Callable[[Any], Awaitable[T]]) -> T:
        """Run a call of the driver, likewise."""
        return await self._run_with_retries(lambda connection: call(connection.driver))

    async def _run_with_retries(self, run_on: Callable[[PooledConnection], Awaitable[T]]) -> T:
        end, collisions = time.monotonic() + MAX_WAIT_SECONDS, 0
        for attempt in count(1):
            try:
                async with self._pool.acquire() as connection:
                    return await run_on(connection)
            except DRIVER_ERRORS as error:
                action = action_for(error)
                collisions += action is ErrorAction.RETRY
                may_wait = action is ErrorAction.WAIT and self._health.problem is None and time.monotonic() < end
                if not may_wait and (action is not ErrorAction.RETRY or collisions == MAX_COLLISIONS):
                    raise self._record_failure(error) from error
            await asyncio.sleep(RETRY_DELAYS.delay(attempt))
        raise AssertionError("unreachable: the loop ends by a return or an error")

    def _record_failure(self, error: Exception) -> BaseException:
        explained = explain_error(error, self._label)
        if isinstance(explained, StoreUnavailable) and explained.cause != SLOW:
            self._health.fail(explained)
        return explained


class PostgresDatabase:
    """Runs synchronous work on connections to a server; see `Access`.

    Inbound messages and searches have their own connections, so that slow work does not delay messages.
    `health` reports whether writes are accepted; an unreachable server is probed every second.
    """

    is_sole_writer = False  # other processes may write
    recent_cache = None

    def __init__(self, address: Address, direct: Address | None = None) -> None:
        self.address = address
        self.direct = direct or address
        self.health = StoreHealth()
        self._engine = build_engine(address).execution_options(isolation_level="AUTOCOMMIT")
        self.heartbeat = Heartbeat(self.direct)
        self._pools = tuple(
            ConnectionPool(self._connect, size) for size in (MAIN_CONNECTIONS, INBOX_CONNECTIONS, SEARCH_CONNECTIONS)
        )
        self.main_queries, self.inbox_queries, self.search_queries = (
            QueryRunner(pool, address.label, self.health) for pool in self._pools
        )
        self.batches = TaskSet("a batch of database calls", logs_failures=False)
        self._rechecks = TaskSet("rechecking the database")
        self._connecting = TaskSet("connecting", logs_failures=False)

    async def open(self, schemas: Schemas = NO_SCHEMAS) -> None:
        """Connect and upgrade the schema; raise ConfigError or StoreUnavailable."""
        upgrade = partial(upgrade_schemas, location=self.address.label, schemas=schemas)
        if self.address.unused:
            logger.warning(
                "the address of %s has unknown options, which are not used: %s",
                self.address.label,
                ", ".join(self.address.unused),
            )
        if self.direct.schema:
            await run_once(self.direct, partial(_create_schema, self.direct.schema))
        await run_once(self.direct, upgrade, is_bounded=False)
        if not self._rechecks:
            self._rechecks.start(self._recheck_regularly())

    async def close(self) -> None:
        """Finish running work and close all connections."""
        await self._rechecks.cancel()
        await self.heartbeat.close()
        await self.batches.wait(CLOSE_TIMEOUT)
        await self.batches.cancel()  # of callers that were cancelled
        await asyncio.gather(*(pool.close() for pool in self._pools))
        await self._connecting.wait()
        await self._engine.dispose()

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Run work that writes, in a transaction."""
        return await self.main_queries.run_in_transaction(work)

    async def read(self, work: Work[T]) -> T:
        """Run short read-only work."""
        return await self.main_queries.run(work)

    async def search(self, work: Work[T]) -> T:
        """Run read-only work that may take long."""
        return await self.search_queries.run(work)

    async def truncate_log(self) -> None:
        """Do nothing: the server's log is its operator's."""

    async def _connect(self) -> PooledConnection:
        """Open a connection; if cancelled meanwhile, close it in the background."""
        opening = self._connecting.start(self._open_connection())
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._connecting.start(_close_abandoned(opening))
            raise

    async def _open_connection(self) -> PooledConnection:
        connection = await self._engine.connect()
        return PooledConnection(connection, (await connection.get_raw_connection()).driver_connection)

    async def _recheck_regularly(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            if self.health.problem is not None:
                await self._recheck()
            else:
                with suppress(Exception):  # whatever it is, the next round tries again
                    await self.main_queries.run_on_driver(_collect_statistics)

    async def _recheck(self) -> None:
        try:
            connection = await self._connect()
            try:
                await connection.driver.execute("CREATE TEMPORARY TABLE greenroom_trial ()")
            finally:
                await connection.close()
        except Exception:  # whatever it is, the problem remains; the checks must not end
            return
        self.health.recover()


def _create_schema(name: str, connection: Connection) -> None:
    """Create a schema if it is missing: the right to do so is not needed where it exists."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
    if connection.execute(text("SELECT 1 FROM pg_namespace WHERE nspname = :name"), {"name": name}).first() is None:
        connection.execute(CreateSchema(name))
    connection.commit()


async def _collect_statistics(driver: Any) -> None:
    rows = await driver.fetch(FIND_TABLES_WITHOUT_STATISTICS, list(metadata.tables))
    if rows:
        await driver.execute(f"ANALYZE (SKIP_LOCKED) {', '.join(row[0] for row in rows)}")


async def _close_abandoned(opening: asyncio.Task[PooledConnection]) -> None:
    with suppress(Exception):  # the caller was cancelled
        await (await opening).close()


def build_engine(address: Address, *, is_bounded: bool = True) -> AsyncEngine:
    """Return an engine; if `is_bounded`, statements end after 30 seconds."""

    def open_connection() -> Any:
        options: dict[str, Any] = {"prepared_statement_cache_size": MAX_CACHED_STATEMENTS}
        if address.is_pooled:  # a statement without a name is prepared anew with each execution
            options = {"prepared_statement_cache_size": 0, "prepared_statement_name_func": str}
        driver: Any = engine.dialect.loaded_dbapi
        return driver.connect(async_creator_fn=partial(connect, address, is_bounded=is_bounded), **options)

    engine = create_async_engine(
        "postgresql+asyncpg://", poolclass=NullPool, creator=open_connection, hide_parameters=True
    )
    return engine


async def run_once(address: Address, work: Work[T], *, is_bounded: bool = True) -> T:
    """Run work on a new connection; raise ConfigError or StoreUnavailable if the database cannot be used."""
    engine = build_engine(address, is_bounded=is_bounded)
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(work)
    except BotError:
        raise
    except Exception as error:  # the driver raises more types than it documents
        raise opening_error(error, address.label) from error
    finally:
        await engine.dispose()


def build_read_only_engine(address: Address) -> AsyncEngine:
    """Return a read-only engine for queries of plugins."""
    return build_engine(address).execution_options(postgresql_readonly=True)
