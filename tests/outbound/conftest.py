"""Fixtures of these tests: a store, a manual clock, an event bus."""

import pytest

from bot.event_bus import EventBus
from bot.store import InMemoryStore
from tests.clocks import ManualClock


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
