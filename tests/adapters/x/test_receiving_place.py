"""The stored position of the mentions."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.x.receiving import MentionPosition

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
