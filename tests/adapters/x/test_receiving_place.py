"""How far the mentions are read: no page that is missing is passed over."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.x.receiving import Place

START = datetime(2026, 3, 1, tzinfo=UTC)


def test_at_the_very_first_start_mentions_count_from_a_moment_on() -> None:
    place = Place(start=START)
    assert place.bounds == {"start_time": START}
    assert place.after([]) == place


def test_a_last_page_moves_the_place_to_its_newest() -> None:
    assert Place(since=5).after(["9", "7"]) == Place(since=9)


def test_our_own_posts_move_nothing() -> None:
    assert Place(since=5).after([], lowest="99") == Place(since=5)


def test_a_page_that_is_not_the_last_leaves_a_gap_that_is_read_first() -> None:
    place = Place(since=5).after(["20", "18"], lowest="18", is_last=False)
    assert place.bounds == {"since_id": "5", "until_id": "18"}
    place = place.after(["12", "11"], lowest="11", is_last=False)
    assert place.bounds == {"since_id": "5", "until_id": "11"}
    assert place.after(["6"]) == Place(since=20)


@pytest.mark.parametrize(
    "place", [Place(), Place(7), Place(7, 20, 18), Place(start=START), Place(0, 9, 8, START)]
)
def test_a_place_is_read_as_it_was_written(place: Place) -> None:
    assert Place.read(str(place)) == place


@given(st.lists(st.integers(1, 10**18), unique=True, max_size=40), st.integers(1, 7))
def test_however_it_is_paged_every_mention_is_read_once(ids: list[int], size: int) -> None:
    place, seen = Place(), []
    for _ in range(len(ids) + 2):
        since, until = (
            int(str(place.bounds.get("since_id", 0))),
            int(str(place.bounds.get("until_id", 10**19))),
        )
        left = sorted((one for one in ids if since < one < until), reverse=True)
        page = [str(one) for one in left[:size]]
        seen += page
        place = place.after(page, lowest=page[-1] if page else "", is_last=len(left) <= size)
    assert sorted(map(int, seen)) == sorted(ids)
