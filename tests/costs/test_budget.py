"""Daily budgets."""

import logging
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pytest

from bot.costs.budget import Budget, BudgetSettings, build_limits
from bot.domain.ids import derived_id
from bot.domain.ledger import CostEntry
from bot.errors import SettingError
from bot.settings import Layer, Settings

ROOM, OTHER_ROOM, PERSON, OTHER_PERSON = (derived_id(name) for name in ("here", "there", "Ann", "Bo"))


class ManualDate:
    """A clock that only a test advances."""

    def __init__(self) -> None:
        self.now = datetime(2026, 5, 4, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def build_budget(clock: ManualDate, **limits: str) -> Budget:
    settings = Settings([Layer("the test", {name.upper(): value for name, value in limits.items()})])
    return Budget(build_limits(settings.load(BudgetSettings)), clock)


def build_entry(
    room: UUID | None, person: UUID | None, cost: float, tokens: int = 0, day: date = date(2026, 5, 4)
) -> CostEntry:
    return CostEntry(day, "m", room, person, 1, tokens_in=tokens, cost=cost)


def test_without_a_limit_nothing_is_forbidden() -> None:
    free = build_budget(ManualDate())
    free.record(build_entry(ROOM, PERSON, 1_000_000.0))
    assert free.find_reached_limit(ROOM, PERSON) is None


@pytest.mark.failure("O-02")
def test_a_total_limit_applies_to_everyone_and_restarts_the_next_day() -> None:
    clock = ManualDate()
    budget = build_budget(clock, budget_usd="1")
    budget.record(build_entry(ROOM, PERSON, 0.75))
    budget.record(build_entry(None, None, 0.20))
    assert budget.find_reached_limit(OTHER_ROOM, OTHER_PERSON) is None
    budget.record(build_entry(OTHER_ROOM, OTHER_PERSON, 0.05))
    limit = budget.find_reached_limit(ROOM, PERSON)
    assert limit is not None
    assert (limit.setting, str(limit)) == ("BUDGET_USD", "$1 a day in all")
    clock.now += timedelta(hours=12)
    assert budget.find_reached_limit(ROOM, PERSON) is None
    clock.now -= timedelta(hours=12)  # it was wrong
    assert budget.find_reached_limit(ROOM, PERSON) is limit


@pytest.mark.failure("O-02")
def test_room_and_person_limits_apply_to_them_only() -> None:
    budget = build_budget(ManualDate(), budget_tokens_per_room="100", budget_usd_per_person="0.5")
    budget.record(build_entry(ROOM, PERSON, 0.1, tokens=100))
    limit = budget.find_reached_limit(ROOM, OTHER_PERSON)
    assert limit is not None
    assert (limit.setting, str(limit)) == ("BUDGET_TOKENS_PER_ROOM", "100 tokens a day for this room")
    assert budget.find_reached_limit(OTHER_ROOM, PERSON) is None
    budget.record(build_entry(OTHER_ROOM, OTHER_PERSON, 0.5))
    assert [budget.find_reached_limit(OTHER_ROOM, who) is not None for who in (PERSON, OTHER_PERSON)] == [False, True]


def test_what_was_spent_before_a_start_counts_and_another_day_does_not() -> None:
    budget = build_budget(ManualDate(), budget_usd="1")
    budget.reload([build_entry(ROOM, PERSON, 0.6), build_entry(OTHER_ROOM, OTHER_PERSON, 9.0, day=date(2026, 5, 3))])
    assert budget.find_reached_limit(ROOM, PERSON) is None
    budget.reload([build_entry(ROOM, PERSON, 0.6), build_entry(OTHER_ROOM, OTHER_PERSON, 0.4)])
    assert budget.find_reached_limit(ROOM, PERSON) is not None


def test_a_reached_limit_is_logged_once_a_day(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualDate()
    budget = build_budget(clock, budget_usd="1")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            budget.record(build_entry(ROOM, PERSON, 1.0, day=clock.now.date()))
            assert budget.find_reached_limit(ROOM, PERSON)
            assert budget.find_reached_limit(OTHER_ROOM, OTHER_PERSON)
            clock.now += timedelta(days=1)
    message = "BUDGET_USD is spent, $1 a day in all: no more answers until midnight UTC"
    assert caplog.messages == [message, message]


@pytest.mark.parametrize(
    ("name", "value"), [("BUDGET_USD", "-1"), ("BUDGET_TOKENS", "few"), ("MODEL_PRICES", "gpt-4o=cheap")]
)
def test_an_invalid_limit_or_price_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingError, match=name):
        Settings([Layer("the test", {name: value})]).load(BudgetSettings)
