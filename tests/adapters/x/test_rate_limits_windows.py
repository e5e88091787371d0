"""Rate limits of X's endpoints."""

from datetime import UTC, datetime

import pytest

from adapters.x.rate_limits import EndpointLimits, endpoint_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)
POSTS = "POST /2/tweets"


def headers(remaining: str, reset: float | str) -> dict[str, str]:
    return {"x-rate-limit-remaining": remaining, "x-rate-limit-reset": str(reset)}


def test_an_unknown_endpoint_is_open() -> None:
    assert EndpointLimits().wait_seconds(POSTS, NOW) == 0.0


@pytest.mark.failure("D-01")
def test_an_exhausted_endpoint_is_blocked_until_its_reset() -> None:
    windows = EndpointLimits()
    windows.update(POSTS, 201, headers("0", int(NOW.timestamp()) + 90), NOW)
    assert windows.wait_seconds(POSTS, NOW) == 90.0
    assert windows.wait_seconds("GET /2/users/me", NOW) == 0.0


@pytest.mark.failure("D-14")
@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        (int(NOW.timestamp()) - 5000, 1.0),
        (0, 1.0),
        (4_070_908_800, 86_400.0),
        ("999999999999999", 86_400.0),
        ("soon", 5.0),
        ("-5", 5.0),
        ("nan", 5.0),
        ("", 5.0),
    ],
)
def test_the_reset_is_bounded_to_between_a_second_and_a_day(reset: object, expected: float) -> None:
    windows = EndpointLimits()
    windows.update(POSTS, 429, headers("0", str(reset)), NOW)
    assert windows.wait_seconds(POSTS, NOW) == expected


def test_an_exhausted_daily_limit_blocks_an_endpoint() -> None:
    windows = EndpointLimits()
    day = {
        "x-user-limit-24hour-remaining": "0",
        "x-user-limit-24hour-reset": str(int(NOW.timestamp()) + 7200),
        "x-app-limit-24hour-remaining": "3",
    }
    windows.update(POSTS, 201, {**headers("99", int(NOW.timestamp()) + 900), **day}, NOW)
    assert windows.wait_seconds(POSTS, NOW) == 7200.0
    assert list(windows.closed_endpoints(NOW)) == [POSTS]


def test_a_later_response_reopens_an_endpoint() -> None:
    windows = EndpointLimits()
    windows.update(POSTS, 429, {}, NOW)
    windows.update(POSTS, 201, headers("5", int(NOW.timestamp()) + 900), NOW)
    assert windows.wait_seconds(POSTS, NOW) == 0.0


@pytest.mark.failure("D-03")
def test_too_many_without_a_header_is_five_seconds() -> None:
    windows = EndpointLimits()
    windows.update(POSTS, 429, {}, NOW)
    assert windows.wait_seconds(POSTS, NOW) == 5.0


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/2/users/12/mentions", "GET /2/users/:id/mentions"),
        ("/2/tweets/123", "GET /2/tweets/:id"),
        ("/2/tweets", "GET /2/tweets"),
    ],
)
def test_an_endpoint_name_contains_no_ids(path: str, expected: str) -> None:
    assert endpoint_of("GET", path) == expected
