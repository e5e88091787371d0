"""Rate limits of X's endpoints."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.x.rate_limits import EndpointLimits, endpoint_of
from adapters.x.receiving import MentionPosition

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


# The stored position of the mentions.

START = datetime(2026, 3, 1, tzinfo=UTC)


def test_the_first_start_reads_mentions_from_a_start_time() -> None:
    place = MentionPosition(start=START)
    assert place.query_bounds == {"start_time": START}
    assert place.advance([]) == place


def test_the_last_page_moves_the_position_to_its_newest_mention() -> None:
    assert MentionPosition(since=5).advance(["9", "7"]) == MentionPosition(since=9)


def test_own_posts_do_not_move_the_position() -> None:
    assert MentionPosition(since=5).advance([], lowest="99") == MentionPosition(since=5)


def test_a_page_before_the_last_leaves_a_gap_that_is_read_first() -> None:
    place = MentionPosition(since=5).advance(["20", "18"], lowest="18", is_last=False)
    assert place.query_bounds == {"since_id": "5", "until_id": "18"}
    place = place.advance(["12", "11"], lowest="11", is_last=False)
    assert place.query_bounds == {"since_id": "5", "until_id": "11"}
    assert place.advance(["6"]) == MentionPosition(since=20)


@pytest.mark.parametrize(
    "place",
    [
        MentionPosition(),
        MentionPosition(7),
        MentionPosition(7, 20, 18),
        MentionPosition(start=START),
        MentionPosition(0, 9, 8, START),
    ],
)
def test_a_position_is_parsed_as_it_was_written(place: MentionPosition) -> None:
    assert MentionPosition.parse(str(place)) == place


@given(st.lists(st.integers(1, 10**18), unique=True, max_size=40), st.integers(1, 7))
def test_every_mention_is_read_once_for_any_paging(ids: list[int], size: int) -> None:
    place, seen = MentionPosition(), []
    for _ in range(len(ids) + 2):
        since, until = (
            int(str(place.query_bounds.get("since_id", 0))),
            int(str(place.query_bounds.get("until_id", 10**19))),
        )
        left = sorted((post_id for post_id in ids if since < post_id < until), reverse=True)
        page = [str(post_id) for post_id in left[:size]]
        seen += page
        place = place.advance(page, lowest=page[-1] if page else "", is_last=len(left) <= size)
    assert sorted(map(int, seen)) == sorted(ids)
