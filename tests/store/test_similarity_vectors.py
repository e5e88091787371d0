"""Cosine similarity."""

import pytest

from bot.store.similarity import cosine, find_nearest


def test_cosine_measures_direction_and_not_length() -> None:
    assert cosine((1, 0), (5, 0)) == pytest.approx(1)
    assert cosine((1, 0), (0, 3)) == 0
    assert cosine((1, 1), (-2, -2)) == pytest.approx(-1)
    assert cosine((1, 2, 3), (3, 2, 1)) == cosine((3, 2, 1), (1, 2, 3))


@pytest.mark.parametrize(("first", "second"), [((0, 0), (1, 2)), ((1, 2), (0, 0)), ((), ())])
def test_a_zero_vector_is_unrelated_to_everything(first: tuple[float, ...], second: tuple[float, ...]) -> None:
    assert cosine(first, second) == 0


def test_vectors_of_two_dimensions_are_never_compared() -> None:
    with pytest.raises(ValueError, match="2 and 3 dimensions"):
        cosine((1, 0), (1, 0, 0))


def test_the_nearest_come_first_and_among_equals_the_earlier() -> None:
    candidates = {"across": (0, 1), "first": (2, 0), "second": (3, 0), "against": (-1, 0)}

    found = find_nearest((1, 0), candidates.items(), 3)

    assert [key for key, _ in found] == ["first", "second", "across"]
    assert find_nearest((1, 0), candidates.items(), 0) == []
    assert find_nearest((1, 0), [], 3) == []
