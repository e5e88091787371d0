"""Failures of PostgreSQL: nothing is lost or doubled, and no password is shown."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from urllib.parse import quote

import asyncpg  # type: ignore[import-untyped]  # it brings no types
import pytest
from sqlalchemy import Connection

from bot import ConfigError, Outcome, SettingError, derived_id, load_settings, system_clock
from bot.platform import DeliveryState
from bot.store import StoreUnavailable
from bot.store.sql.core.base import find_postgres_variable
from bot.store.sql.postgres import database as postgres_database
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.database import PostgresDatabase
from bot.store.sql.postgres.storage import OpenServers, PostgresStorage
from bot.store.sql.stores.store import SqlStore
from bot.testing import make_message, running_agent
from tests.postgres import PostgresServer
from tests.store.sql.postgres.proxy import Proxy

OpenStore = Callable[[], AbstractAsyncContextManager[SqlStore]]
MOST = 60
SSL_REQUEST = (80877103).to_bytes(4)


def executed(text: str, connection: Connection) -> int:
    return connection.exec_driver_sql(text).rowcount


def fetched(text: str, connection: Connection) -> object:
    return connection.exec_driver_sql(text).scalar_one()


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[Proxy]:
    """Return a proxy to an empty database."""
    async with Proxy(postgres_url).running() as running:
        yield running
    gc.collect()  # the lost connection must be noticed here, and not in another test


@pytest.fixture
async def store(proxy: Proxy) -> AsyncIterator[SqlStore]:
    """Return a store behind the proxy."""
    async with OpenServers().open_store(parse_address(proxy.url, "the url"), derived_id("agent", "Ada")) as opened:
        yield opened


@pytest.mark.long
async def test_a_cancelled_connect_leaves_no_connection_behind(postgres_url: str) -> None:
    for steps in range(1, 40):
        database = PostgresDatabase(parse_address(postgres_url, "the url"))
        asking = asyncio.ensure_future(database.main_queries.run(partial(executed, "SELECT 1")))
        for _ in range(steps):
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

    for _ in range(postgres_database.MAIN_CONNECTIONS):
        await asyncio.wait({asyncio.ensure_future(leave_transaction())})
    async with asyncio.timeout(10.0):
        await database.main_queries.run(partial(executed, "SELECT 1"))
    assert all(driver.is_closed() for driver in drivers)
    await database.close()


@pytest.mark.long
@pytest.mark.failure("I-10")
@pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
async def test_a_connection_lost_at_any_point_loses_and_doubles_nothing(proxy: Proxy, store: SqlStore) -> None:
    async with running_agent(store=store) as harness:
        await harness.send("Hello", author="Alice")
        for number in range(1, MOST):
            count, cuts = len(harness.texts), proxy.cuts
            proxy.cut_at(number)
            receipt = await harness.send(f"Hello {number}", author=f"P{number % 3}", message_id=f"m{number}")
            proxy.cut_at(0)

            assert receipt.outcome is Outcome.ANSWERED, receipt
            assert len(harness.texts) == count + 1
            if proxy.cuts == cuts:
                break
        else:
            pytest.fail("there was always something left to cut")
        assert proxy.cuts > 5
        parts = await store.ledger.deliveries()
        assert {part.state for part in parts} == {DeliveryState.SENT}
        assert [part.seq for part in parts] == list(range(1, len(parts) + 1))
        assert len(parts) == len(await store.ledger.receipts(limit=1000)) == len(harness.texts)


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.failure("I-09")
async def test_an_unreachable_server_closes_the_inbox_until_it_returns(
    proxy: Proxy, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "MAX_WAIT_SECONDS", 0.2)
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


@pytest.mark.long
@pytest.mark.failure("I-09")
async def test_terminated_connections_are_replaced(
    postgres_server: PostgresServer, postgres_url: str, store: SqlStore
) -> None:
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    for number in range(3):
        postgres_server.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        await store.cache.set("number", number)
        assert await store.cache.get("number") == number


@pytest.mark.long
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


@pytest.mark.parametrize(
    "password",
    ["a@b", "#1", "a/b", "w?rd", "a:b", "100%", "@#/?:%", "p@ss/w?rd#1:2%", "12345#x", "1@2/3", "x?y=1", "[a]", "a b"],
)
@pytest.mark.parametrize("is_encoded", [True, False])
async def test_a_password_of_any_characters_reaches_the_server_and_is_never_taken_for_its_host(
    password: str, is_encoded: bool
) -> None:
    received: list[bytes] = []

    async def ask_for_password(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Ask in clear text, as a server does that trusts its network, and refuse what is said."""
        length = int.from_bytes(await reader.readexactly(4))
        start = await reader.readexactly(length - 4)
        if start == SSL_REQUEST:
            writer.write(b"N")
            length = int.from_bytes(await reader.readexactly(4))
            start = await reader.readexactly(length - 4)
        writer.write(b"R\0\0\0\x08\0\0\0\x03")
        await reader.readexactly(1)
        received.append(await reader.readexactly(int.from_bytes(await reader.readexactly(4)) - 4))
        fields = b"SFATAL\0C28P01\0Mpassword authentication failed\0\0"
        writer.write(b"E" + (len(fields) + 4).to_bytes(4) + fields)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(ask_for_password, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        written = quote(password, safe="") if is_encoded else password
        settings = load_settings(
            environment={"POSTGRES_URL": f"postgresql://bot:{written}@127.0.0.1:{port}/db?connect_timeout=9"}
        )
        report = await PostgresStorage().check(settings)
    assert received == [password.encode() + b"\0"]
    assert report.location == f"postgresql://127.0.0.1:{port}/db"
    assert all(password not in problem.replace(report.location, "") for problem in report.problems if len(password) > 3)
    [problem] = report.problems
    assert problem.startswith(f"the database {report.location} refuses the user or the password")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bot:hunter@2#x@db.example:port/bot",
        "postgresql://bot:hunter2@db.example:65536/bot",
        "postgresql://bot:hunter2@db.example/bot@",
        "postgresql://bot:hunter#2@",
        "postgresql://bot:[YOUR-PASSWORD]@db.example/bot",
        "postgresql://bot:hunter2@db.example/bot?connect_timeout=soon",
        "postgresql://bot:hunter2@db.example/bot?sslmode=verify-full&sslrootcert=missing.crt",
        "postgresql://bot:hunter2@db.example/bot?schema=own&statement_cache_size=0",
    ],
)
def test_what_cannot_be_an_address_is_refused_without_showing_a_piece_of_it(url: str) -> None:
    with pytest.raises(SettingError, match=r"^POSTGRES_URL: ") as caught:
        parse_address(url, "POSTGRES_URL")
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    "options",
    [
        "",  # Heroku, Railway, Supabase
        "sslmode=no-verify",  # Heroku with node-postgres
        "ssl=prefer",
        "ssl=false",
        "ssl=0&uselibpqcompat=true",
        "sslmode=PREFER&channel_binding=prefer&options=-c%20geqo%3Doff",  # Neon
        "connect_timeout=10&pool_timeout=15&pgbouncer=true&connection_limit=1&schema=public",  # Prisma
        "connect_timeout=0&socket_timeout=5&sslaccept=strict&application_name=me@example",
        "supa=base-pooler.x&workaround=supabase-pooler.vercel",  # Vercel
        "schema=own&statement_timeout=20s&search_path=",
        "currentSchema=own&reWriteBatchedInserts=true",  # JDBC
        "pool=5&prepared_statements=false&encoding=unicode",  # Rails
        "keepalives=1&keepalives_idle=30&client_encoding=utf8&target_session_attrs=any&gssencmode=disable",
        "prepared_statement_name_func=x&command_timeout=3&timeout=3&flag",
    ],
)
async def test_an_address_with_the_options_of_any_program_opens_the_database(
    url_without_schema: str, options: str
) -> None:
    url = f"{url_without_schema}{'&' if '?' in url_without_schema else '?'}{options.replace('no-verify', 'prefer')}"
    async with OpenServers().use(parse_address(url, "POSTGRES_URL")) as database:
        place = await database.search(partial(fetched, "SELECT current_schema()"))
        tables = await database.search(
            partial(
                fetched,
                "SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE relname = 'receipts'",
            )
        )
    assert place == tables == ("own" if "own" in options else "public")


@pytest.mark.parametrize(
    "form", ["postgres://{}", "psql 'postgresql://{}'", "jdbc:postgresql://{}", '"postgresql+psycopg2://{}" ']
)
def test_each_form_in_which_an_address_is_copied_is_read(form: str) -> None:
    settings = load_settings(environment={"DATABASE_URL": form.format("bot:hunter2@db.example:5432/bot?ssl=true")})
    assert find_postgres_variable(settings) == "DATABASE_URL"
    address = parse_address(settings.get("DATABASE_URL") or "", "DATABASE_URL")
    assert address.url == "postgresql://bot:hunter2@db.example:5432/bot?sslmode=require"
    assert address.label == "postgresql://db.example:5432/bot"


def test_unknown_options_are_named_and_not_used() -> None:
    address = parse_address("postgresql://db.example/bot?sslmod=require&connection_limit=1", "the url")
    assert (address.url, address.unused) == ("postgresql://db.example/bot", ("sslmod",))


def test_the_certificates_of_the_system_are_used_where_an_address_says_so() -> None:
    address = parse_address("postgresql://db.example/bot?sslmode=verify-full&sslrootcert=system", "the url")
    assert address.certificates is not None
    assert address.certificates.check_hostname


def test_an_address_of_a_pooler_is_known_by_the_address_of_the_server_behind_it() -> None:
    url = "postgresql://db.example:6543/bot?pgbouncer=true"
    assert not parse_address(url, "the url").is_pooled
    assert parse_address(url, "the url", has_direct=True).is_pooled


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
