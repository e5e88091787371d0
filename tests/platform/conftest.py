"""A store and a clock for the doors."""

from datetime import UTC, datetime, timedelta

import pytest

from bot.event_bus import EventBus
from bot.store.inmemory import InMemoryStore


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


@pytest.fixture
def store(clock: ManualClock) -> InMemoryStore:
    """Give an empty store."""
    return InMemoryStore(clock)


@pytest.fixture
def events() -> EventBus:
    """Give a bus that nobody listens to."""
    return EventBus()
