"""The stores that keep the contract of `bot.store.protocols`; another one is added to STORES."""

from collections.abc import AsyncIterator, Callable
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


@pytest.fixture(params=STORES, ids=lambda one: one.__name__)
async def store(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[Store]:
    """Give an empty, open store of each kind."""
    async with request.param(clock) as opened:
        yield opened
