"""The stores that keep the contract of `bot.store.protocols`; another one is added to STORES."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

import pytest

from bot.domain.clock import Clock
from bot.store.inmemory import InMemoryStore
from bot.store.protocols import Store

STORES: list[Callable[[Clock], AbstractAsyncContextManager[Store]]] = [InMemoryStore]


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
