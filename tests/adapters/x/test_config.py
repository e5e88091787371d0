"""The variables of X."""

import pytest

from adapters.x.config import REQUIRED_VARIABLES, PlanLimits, read_settings
from bot import SettingError, Settings
from bot.settings import CHARACTER_FILE, Layer

KEYS = {
    "X_API_KEY": "not-a-real-key",
    "X_API_SECRET": "not-a-real-secret",
    "X_ACCESS_TOKEN": "42-notARealToken",
    "X_ACCESS_TOKEN_SECRET": "not-a-real-token-secret",
}


def settings(**values: str) -> Settings:
    return Settings([Layer("the test", {**KEYS, **values})])


def test_the_token_names_the_account() -> None:
    assert set(REQUIRED_VARIABLES) == set(KEYS)
    assert read_settings(settings()).account_id == "42"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X_ACCESS_TOKEN", "no-number-first"),
        ("X_API_BASE_URL", "ftp://example.com"),
        ("X_API_BASE_URL", "example.com"),
        ("X_PLAN", "enormous"),
        ("X_QUIET_HOURS", "late"),
        ("X_QUIET_HOURS", "25:00-07:00"),
        ("X_TIME_ZONE", "Middle/Earth"),
        ("X_TIME_ZONE", "../etc/passwd"),
        ("X_POLL_INTERVAL", "0"),
        ("X_POST_INTERVAL_MIN", "500"),
    ],
)
def test_an_invalid_value_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(SettingError, match="X_"):
        read_settings(settings(**{name: value}))


def test_a_secret_is_in_no_error_and_no_repr() -> None:
    with pytest.raises(SettingError) as refusal:
        read_settings(settings(X_ACCESS_TOKEN="very-secret-indeed"))
    assert "very-secret-indeed" not in str(refusal.value)
    assert "not-a-real-secret" not in repr(read_settings(settings()))


@pytest.mark.parametrize(
    ("plan", "allowed"),
    [("free", (100, 500, 15)), ("basic", (10_000, 3_000, 95)), ("pro", (1_000_000, 288_000, 9_500))],
)
def test_a_plan_limits_month_and_day(plan: str, allowed: tuple[int, int, int]) -> None:
    assert read_settings(settings(X_PLAN=plan)).plan_limits == PlanLimits(*allowed)


def test_own_limits_override_the_plan() -> None:
    own = {"X_MONTHLY_READS": "7", "X_MONTHLY_POSTS": "0", "X_POST_DAILY_CAP": "1"}
    assert read_settings(settings(**own)).plan_limits == PlanLimits(7, 0, 1)


def test_a_character_file_cannot_redirect_the_operators_keys() -> None:
    own = Layer(f"{CHARACTER_FILE} settings", {"X_API_BASE_URL": "https://evil.example"}, is_operator=False)
    assert read_settings(Settings([own, Layer("the environment", KEYS)])).is_default("x_api_base_url")
