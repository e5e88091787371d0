"""A store outage is logged once when it begins and once when it ends."""

import logging
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from bot.errors import StoreUnavailable
from bot.store.ledger import StoreHealth

START = datetime(2026, 5, 4, 12, tzinfo=UTC)
LOCKED = StoreUnavailable("the database x is locked", cause="db_locked")
FULL = StoreUnavailable("the database x cannot grow", cause="db_full")


@pytest.fixture
def health() -> StoreHealth:
    """Return a health whose clock advances by a minute at every reading."""
    minutes = count()
    return StoreHealth(lambda: START + timedelta(minutes=next(minutes)))


def test_an_outage_is_logged_once_when_it_begins_and_once_when_it_ends(
    health: StoreHealth, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "bot.store.ledger"):
        for _ in range(5):
            health.fail(LOCKED)
        trouble = health.problem
        health.recover()
        health.recover()

    assert trouble is not None
    assert (trouble.cause, trouble.message, trouble.since) == ("db_locked", str(LOCKED), START)
    assert health.problem is None
    assert len(caplog.records) == 2


def test_an_outage_with_a_new_cause_keeps_its_start(health: StoreHealth) -> None:
    health.fail(LOCKED)
    health.fail(FULL)

    assert health.problem is not None
    assert (health.problem.cause, health.problem.since) == ("db_full", START)


def test_the_check_raises_during_an_outage(health: StoreHealth) -> None:
    health.check_available()
    health.fail(LOCKED)
    with pytest.raises(StoreUnavailable, match="x is locked") as caught:
        health.check_available()
    assert caught.value.cause == "db_locked"
