"""Cosine similarity."""

import pytest

from bot.store.similarity import cosine


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
