"""Failures of PostgreSQL: nothing is lost or doubled, and no password is shown."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial

import asyncpg  # type: ignore[import-untyped]  # it brings no types
import pytest
from sqlalchemy import Connection

from bot import ConfigError, Outcome, SettingError, derived_id, system_clock
from bot.platform import DeliveryState
from bot.store import StoreUnavailable
from bot.testing import make_message, running_agent
from plugins.sql.postgres import database as postgres_desk
from plugins.sql.postgres.connection import parse_address
from plugins.sql.postgres.database import PostgresDatabase
from plugins.sql.postgres.storage import OpenServers
from plugins.sql.stores.store import SqlStore
from tests.plugins.sql.postgres.proxy import Proxy
from tests.postgres import PostgresServer

OpenStore = Callable[[], AbstractAsyncContextManager[SqlStore]]
MOST = 60


def executed(text: str, connection: Connection) -> int:
    return connection.exec_driver_sql(text).rowcount


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[Proxy]:
    """Return a proxy to an empty database."""
    async with Proxy(postgres_url).running() as running:
        yield running
    gc.collect()  # what was cut is to be noticed here, and not in somebody else's test


@pytest.fixture
async def store(proxy: Proxy) -> AsyncIterator[SqlStore]:
    """Return a store behind the proxy."""
    async with OpenServers().open_store(parse_address(proxy.url, "the url"), derived_id("agent", "Ada")) as opened:
        yield opened


async def test_a_cancelled_connect_leaves_no_connection_behind(postgres_url: str) -> None:
    for moments in range(1, 40):
        database = PostgresDatabase(parse_address(postgres_url, "the url"))
        asking = asyncio.ensure_future(database.main_queries.run(partial(executed, "SELECT 1")))
        for _ in range(moments):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        await database.close()
        del asking, database
    gc.collect()


async def test_a_pool_gets_back_the_place_of_a_connection_whose_user_is_cancelled_while_it_is_closed(
    postgres_url: str,
) -> None:
    database = PostgresDatabase(parse_address(postgres_url, "the url"))
    drivers = []

    async def leave_transaction() -> None:
        async with database.main_queries._pool.acquire() as connection:
            await connection.driver.execute("BEGIN")  # so that it is closed
            drivers.append(connection.driver)
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # at the next wait

    for _ in range(postgres_desk.MAIN_CONNECTIONS):
        await asyncio.wait({asyncio.ensure_future(leave_transaction())})
    async with asyncio.timeout(10.0):
        await database.main_queries.run(partial(executed, "SELECT 1"))
    assert all(driver.is_closed() for driver in drivers)
    await database.close()


@pytest.mark.failure("I-10")
@pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
async def test_a_connection_lost_at_any_point_loses_and_doubles_nothing(proxy: Proxy, store: SqlStore) -> None:
    async with running_agent(store=store) as stage:
        await stage.send("Hello", author="Alice")
        for number in range(1, MOST):
            said, cuts = len(stage.texts), proxy.cuts
            proxy.cut_at(number)
            receipt = await stage.send(f"Hello {number}", author=f"P{number % 3}", message_id=f"m{number}")
            proxy.cut_at(0)

            assert receipt.outcome is Outcome.ANSWERED, receipt
            assert len(stage.texts) == said + 1
            if proxy.cuts == cuts:
                break
        else:
            pytest.fail("there was always something left to cut")
        assert proxy.cuts > 5
        parts = await store.ledger.deliveries()
        assert {part.state for part in parts} == {DeliveryState.SENT}
        assert [part.seq for part in parts] == list(range(1, len(parts) + 1))
        assert len(parts) == len(await store.ledger.receipts(limit=1000)) == len(stage.texts)


@pytest.mark.failure("I-09")
async def test_queries_during_a_restart_succeed_afterwards(proxy: Proxy, store: SqlStore) -> None:
    await store.ledger.receive([make_message("before", sent_at=system_clock())], system_clock())
    proxy.is_down = True
    proxy.hang_up()
    asked = asyncio.create_task(store.ledger.receipts())
    kept = asyncio.create_task(store.ledger.receive([make_message("while", sent_at=system_clock())], system_clock()))
    await asyncio.wait({asked, kept}, timeout=0.3)
    assert not asked.done()
    assert not kept.done()

    proxy.is_down = False
    async with asyncio.timeout(30):
        assert (await kept)[0].is_new
        assert await asked
    assert store.ledger.health.problem is None


@pytest.mark.failure("I-09")
async def test_an_unreachable_server_closes_the_inbox_until_it_returns(
    proxy: Proxy, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_desk, "MAX_WAIT_SECONDS", 0.2)
    proxy.is_down = True
    proxy.hang_up()
    with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        await store.ledger.receive([make_message("lost", sent_at=system_clock())], system_clock())
    assert caught.value.cause == "db_unreachable"
    assert "hunter2" not in str(caught.value)
    assert store.ledger.health.problem is not None

    proxy.is_down = False
    async with asyncio.timeout(30):
        while store.ledger.health.problem is not None:
            with suppress(StoreUnavailable):
                await store.cache.get("any")
    assert (await store.ledger.receive([make_message("kept", sent_at=system_clock())], system_clock()))[0].is_new


@pytest.mark.failure("I-09")
async def test_terminated_connections_are_replaced(
    postgres_server: PostgresServer, postgres_url: str, store: SqlStore
) -> None:
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    for number in range(3):
        postgres_server.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        await store.cache.set("number", number)
        assert await store.cache.get("number") == number


@pytest.mark.failure("I-09")
async def test_both_transactions_of_a_deadlock_succeed(postgres_url: str) -> None:
    database = PostgresDatabase(parse_address(postgres_url, "the url"))
    await database.open()
    try:
        await database.write(partial(executed, "CREATE TABLE pairs AS SELECT 1 AS id, 0 AS n UNION SELECT 2, 0"))

        def both(first: int, second: int, connection: Connection) -> None:
            executed(f"UPDATE pairs SET n = n + 1 WHERE id = {first}", connection)
            connection.exec_driver_sql("SELECT pg_sleep(0.2)")
            executed(f"UPDATE pairs SET n = n + 1 WHERE id = {second}", connection)

        await asyncio.gather(database.write(partial(both, 1, 2)), database.write(partial(both, 2, 1)))
        rows = await database.search(lambda db: db.exec_driver_sql("SELECT n FROM pairs").fetchall())
        assert [row[0] for row in rows] == [2, 2]
    finally:
        await database.close()


@pytest.mark.failure("I-11")
async def test_a_slow_query_does_not_delay_the_inbox(postgres_url: str) -> None:
    servers, address = OpenServers(), parse_address(postgres_url, "the url")
    async with servers.open_store(address, derived_id("agent")) as store, servers.use(address) as database:
        now = system_clock()
        await store.ledger.receive([make_message("first", sent_at=now)], now)
        slow = [
            asyncio.create_task(run(lambda db: db.exec_driver_sql("SELECT pg_sleep(2)").all()))
            for run in (database.main_queries.run, database.write, database.search)
            for _ in range(10)
        ]
        await asyncio.wait(slow, timeout=0.1)
        async with asyncio.timeout(20):  # in practice some milliseconds
            [received] = await store.ledger.receive([make_message("second", sent_at=now)], now)
        assert received.is_new
        assert not any(task.done() for task in slow)
        for task in slow:
            task.cancel()
        await asyncio.wait(slow)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me:hunter2@127.0.0.1:1/bot", "postgresql://127.0.0.1:1/bot cannot be reached"),
        ("postgresql://me:hunter2@127.0.0.1:1/bot?sslmode=odd", "cannot be opened"),
    ],
)
async def test_a_database_that_cannot_be_opened_is_named_without_its_password(url: str, expected: str) -> None:
    with pytest.raises((ConfigError, StoreUnavailable)) as caught:
        async with OpenServers().use(parse_address(url, "POSTGRES_URL")):
            pass
    assert expected in str(caught.value)
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize("url", ["mysql://me:hunter2@db/bot", "postgresql://me:hunter2@db:port/bot"])
def test_an_address_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(SettingError, match="POSTGRES_URL: it must look like postgresql://") as caught:
        parse_address(url, "POSTGRES_URL")
    assert "hunter2" not in str(caught.value)


def test_an_address_may_say_that_a_pooler_stands_between() -> None:
    plain = parse_address("postgres://me:hunter2@db/bot?sslmode=require&channel_binding=require", "url")
    pooled = parse_address("postgresql+asyncpg://db:6432/bot?prepared_statement_cache_size=0", "url")

    assert (plain.label, plain.url) == ("postgresql://db/bot", "postgresql://me:hunter2@db/bot?sslmode=require")
    assert not plain.is_pooled
    assert (pooled.label, pooled.url) == ("postgresql://db:6432/bot", "postgresql://db:6432/bot")
    assert pooled.is_pooled
    assert "hunter2" not in repr(plain)


async def test_work_is_repeated_on_another_connection_when_the_driver_lost_the_state_of_its_own(
    postgres_url: str,
) -> None:
    processes: list[int] = []

    def work(connection: Connection) -> None:
        processes.append(int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()))
        if len(processes) == 1:  # what the driver raises once the server has ended a frozen process's transaction
            raise asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress")

    async with OpenServers().use(parse_address(postgres_url, "the url")) as database:
        await database.write(work)
        assert database.health.problem is None
    assert len(set(processes)) == 2
