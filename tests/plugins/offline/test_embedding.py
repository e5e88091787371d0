import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.store import cosine as similarity
from plugins.offline.input_analysis import DIMENSION, MAX_TEXT_LENGTH, embed


def similarity_of(item: str, other: str) -> float:
    return similarity(embed(item), embed(other))


@pytest.mark.parametrize(
    ("text", "close", "far"),
    [
        ("my sister sings in a choir", "my sister sang in choirs", "the price of bread went up"),
        ("where is the garden", "the gardens, where are they?", "how does a validator stake tokens"),
        ("what is CosmWasm", "what's cosmwasm", "what's the weather"),
    ],
)
def test_texts_with_similar_wording_have_a_higher_similarity(text: str, close: str, far: str) -> None:
    assert similarity_of(text, close) > 0.3
    assert similarity_of(text, close) > similarity_of(text, far) + 0.2


def test_stored_embedding_values_do_not_change() -> None:
    vector = embed("Hello, Greenroom")

    golden = {3: -0.15249857, 123: -0.15249857, 229: 0.15249857}
    assert {place: round(vector[place], 9) for place in golden} == golden


@pytest.mark.parametrize("dimension", [8, 384, 1536])
def test_a_vector_has_the_requested_dimension_and_length_1(dimension: int) -> None:
    vector = embed("a few words", dimension)

    assert len(vector) == dimension
    assert math.isclose(math.hypot(*vector), 1.0, abs_tol=1e-9)


@pytest.mark.long
@given(st.text(min_size=1))
def test_the_vector_of_any_text_has_length_1_or_is_zero(text: str) -> None:
    vector = embed(text)

    assert len(vector) == DIMENSION
    assert math.isclose(math.hypot(*vector), 1.0, abs_tol=1e-9) or not any(vector)


@pytest.mark.parametrize("text", ["", "  \n\t", "\u200b\x00"])
def test_a_text_without_content_has_a_zero_vector(text: str) -> None:
    assert not any(embed(text))
    assert similarity(embed(text), embed("words")) == 0.0


def test_case_width_and_white_space_do_not_matter() -> None:
    assert embed("ＴＥＡ  and\ncake") == embed("tea and cake")


def test_a_long_text_is_read_up_to_its_limit() -> None:
    assert embed("tea " * MAX_TEXT_LENGTH) == embed(("tea " * MAX_TEXT_LENGTH)[:MAX_TEXT_LENGTH])


def test_vectors_of_different_dimensions_are_rejected() -> None:
    with pytest.raises(ValueError, match="8 and 16"):
        similarity([1.0] * 8, [1.0] * 16)


def test_a_vector_without_dimensions_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least one"):
        embed("words", 0)
