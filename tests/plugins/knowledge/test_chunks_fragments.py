"""Splitting into fragments: nothing is lost, nothing is too long, neighbours overlap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.knowledge.documents import split_text

PARAGRAPH = "The lamp turns forty-one times a night. It has done so since the spring. Nobody counts but me."


def test_a_short_text_is_a_single_fragment() -> None:
    assert split_text("Low water is at six.\n\nHigh water at noon.") == ["Low water is at six.\n\nHigh water at noon."]


@pytest.mark.parametrize("nothing", ["", "  \n\n \t\n", "\r\n"])
def test_an_empty_text_has_no_fragments(nothing: str) -> None:
    assert split_text(nothing) == []


def test_paragraphs_that_fit_are_not_split() -> None:
    text = "\n\n".join(f"{number}. {PARAGRAPH}" for number in range(9))
    fragments = split_text(text, max_length=300, overlap=60)
    assert all(any(f"{number}. {PARAGRAPH}" in item for item in fragments) for number in range(9))
    assert max(map(len, fragments)) <= 300


def test_a_fragment_begins_with_the_end_of_the_previous_fragment() -> None:
    first, second, *_ = split_text(f"{PARAGRAPH}\n\n{PARAGRAPH}\n\n{PARAGRAPH}", max_length=150, overlap=40)
    assert second.startswith("Nobody counts but me.\n\n")
    assert first.endswith("Nobody counts but me.")


def test_a_heading_starts_each_fragment_of_its_section() -> None:
    text = f"Before.\n\n## Lamps\n{PARAGRAPH}\n\n{PARAGRAPH}\n\n## Tides\n\nTwice a day."
    fragments = split_text(text, max_length=160, overlap=40)
    assert fragments[0] == "Before."
    assert fragments[-1] == "## Tides\n\nTwice a day."
    assert all(item.startswith("## Lamps\n\n") for item in fragments[1:-1])
    assert len(fragments) == 4


WORDS = st.lists(st.text(alphabet="ab.!é水", min_size=1, max_size=9), max_size=80)
GAPS = st.sampled_from([" ", "\n", "\n\n", "\n# ", " \r\n \r\n"])


@pytest.mark.long
@given(WORDS, GAPS, st.integers(min_value=20, max_value=90))
def test_no_word_is_lost_and_no_fragment_is_too_long(words: list[str], gap: str, longest: int) -> None:
    fragments = split_text(gap.join(words), max_length=longest, overlap=8)
    assert all(0 < len(item) <= longest for item in fragments)
    assert set(words) <= set(" ".join(fragments).split())
