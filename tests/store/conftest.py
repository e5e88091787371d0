"""The stores that implement `bot.store.protocols`; a new one is added to STORES."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from shutil import copyfile

import pytest

from bot.concurrency.clock import Clock
from bot.domain.ids import derived_id
from bot.store import InMemoryStore
from bot.store.protocols import Store
from bot.store.sql.core.base import Synchronous
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers
from bot.store.sql.sqlite.storage import OpenFiles
from tests.clocks import ManualClock
from tests.postgres import PostgresServer

AGENT = derived_id("agent")
EMPTY_DATABASE = "DELETE FROM agents; SELECT setval(oid::regclass, 1, false) FROM pg_class WHERE relkind = 'S'"
OpenStore = Callable[[pytest.FixtureRequest, Clock], AbstractAsyncContextManager[Store]]


def memory_store(request: pytest.FixtureRequest, clock: Clock) -> AbstractAsyncContextManager[Store]:
    """Return a store in memory."""
    return InMemoryStore(clock)


def sqlite_store(request: pytest.FixtureRequest, clock: Clock) -> AbstractAsyncContextManager[Store]:
    """Return a store in a copy of a SQLite file that has the schema."""
    path = request.getfixturevalue("tmp_path") / "greenroom.db"
    copyfile(request.getfixturevalue("sqlite_file"), path)
    return OpenFiles().open_store(path, AGENT, clock=clock, synchronous=Synchronous.NORMAL)


def postgres_store(request: pytest.FixtureRequest, clock: Clock) -> AbstractAsyncContextManager[Store]:
    """Return a store on PostgreSQL, in a database that is emptied first."""
    server, name = request.getfixturevalue("postgres_server"), request.getfixturevalue("postgres_database")
    server.run(EMPTY_DATABASE, name)
    return OpenServers().open_store(parse_address(server.url(name), "url"), AGENT, clock=clock)


STORES: tuple[OpenStore, ...] = (memory_store, sqlite_store, postgres_store)


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that only the test advances."""
    return ManualClock()


@pytest.fixture(scope="session")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a file with the schema, to be copied for each test."""
    path = tmp_path_factory.mktemp("store") / "greenroom.db"

    async def open_once() -> None:
        async with OpenFiles().use(path):
            pass

    asyncio.run(open_once())
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> Iterator[str]:
    """Return the name of a database with the schema; copying it is faster than creating the schema again."""

    async def open_once(url: str) -> None:
        async with OpenServers().use(parse_address(url, "url")):
            pass

    with postgres_server.database() as name:
        asyncio.run(open_once(postgres_server.url(name)))
        yield name


@pytest.fixture(scope="session")
def postgres_database(postgres_server: PostgresServer, postgres_template: str) -> Iterator[str]:
    """Return the name of a database with the schema: copying one takes longer than emptying one."""
    with postgres_server.database(postgres_template) as name:
        yield name


@pytest.fixture(params=STORES, ids=lambda value: value.__name__)
def closed_store(request: pytest.FixtureRequest, clock: ManualClock) -> AbstractAsyncContextManager[Store]:
    """Return a store of each kind, not opened yet."""
    opening: OpenStore = request.param
    return opening(request, clock)


@pytest.fixture
async def store(closed_store: AbstractAsyncContextManager[Store]) -> AsyncIterator[Store]:
    """Return an empty, open store of each kind."""
    async with closed_store as opened:
        yield opened
