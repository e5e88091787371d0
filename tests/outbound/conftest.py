"""Fixtures of these tests: a store, a manual clock, an event bus."""

from datetime import UTC, datetime, timedelta

import pytest

from bot.event_bus import EventBus
from bot.store import InMemoryStore


class ManualClock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 5, 4, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **amount: float) -> datetime:
        self.now += timedelta(**amount)
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that a test moves."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> InMemoryStore:
    """Return an empty store."""
    return InMemoryStore(clock)


@pytest.fixture
def events() -> EventBus:
    """Return an event bus without listeners."""
    return EventBus()
