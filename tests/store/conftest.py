"""The stores that keep the contract of `bot.store.protocols`; another one is added to STORES."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bot.domain.clock import Clock
from bot.domain.ids import derived_id
from bot.store.inmemory import InMemoryStore
from bot.store.protocols import Store
from plugins.sql.opening import OpenFiles
from plugins.sql.postgres_address import address_of
from plugins.sql.postgres_opening import OpenServers
from tests.postgres import PostgresServer


@asynccontextmanager
async def sqlite_store(clock: Clock) -> AsyncIterator[Store]:
    """Open a store in a new SQLite file."""
    with TemporaryDirectory() as directory:
        path, agent_id = Path(directory) / "greenroom.db", derived_id("agent")
        async with OpenFiles().store_in(path, agent_id, clock=clock) as opened:
            yield opened


STORES: list[Callable[[Clock], AbstractAsyncContextManager[Store]]] = [InMemoryStore, sqlite_store]


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 5, 4, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **amount: float) -> datetime:
        self.now += timedelta(**amount)
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that a test moves."""
    return ManualClock()


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> Iterator[str]:
    """Give the name of a database that has the schema, to be copied for each test."""

    async def open_once(url: str) -> None:
        async with OpenServers().use(address_of(url, "url")):
            pass

    with postgres_server.database() as name:
        asyncio.run(open_once(postgres_server.url(name)))
        yield name


@asynccontextmanager
async def postgres_store(server: PostgresServer, template: str, clock: Clock) -> AsyncIterator[Store]:
    """Open a store in a new database on PostgreSQL."""
    with server.database(template) as name:
        address = address_of(server.url(name), "url")
        async with OpenServers().store_at(address, derived_id("agent"), clock=clock) as opened:
            yield opened


@pytest.fixture(params=[*STORES, postgres_store], ids=lambda one: one.__name__)
def closed_store(request: pytest.FixtureRequest, clock: ManualClock) -> AbstractAsyncContextManager[Store]:
    """Give a store of each kind that is still to be opened."""
    if request.param is not postgres_store:
        opened: AbstractAsyncContextManager[Store] = request.param(clock)
        return opened
    server = request.getfixturevalue("postgres_server")
    return postgres_store(server, request.getfixturevalue("postgres_template"), clock)


@pytest.fixture
async def store(closed_store: AbstractAsyncContextManager[Store]) -> AsyncIterator[Store]:
    """Give an empty, open store of each kind."""
    async with closed_store as opened:
        yield opened
