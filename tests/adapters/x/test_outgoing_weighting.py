"""X's published text weight."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.x.outgoing import text_weight, weighted_pieces


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("hello", 5),
        ("e\u0301", 1),
        ("日本語", 6),
        ("“quoted” – and — more", 21),
        ("…", 2),
        ("☕", 2),
        ("☕️", 2),
        ("👨‍👩‍👧‍👦", 2),
        ("🧑🏽‍🚀", 2),
        ("🇩🇪", 2),
        ("1️⃣", 2),
        ("https://example.com", 23),
        ("https://example.com/" + "a" * 400, 23),
        ("see https://t.co/abc, then", 4 + 23 + 6),
        ("example.com", 23),
        ("a@example.com", 13),
        ("@someone", 8),
    ],
)
def test_text_weight_follows_the_published_rules(text: str, expected: int) -> None:
    assert text_weight(text) == expected


def test_a_possible_url_counts_as_the_heavier_reading() -> None:
    assert text_weight("it ended.Then it began") == text_weight("it ") + 23 + text_weight(" it began")


@given(st.text(max_size=200))
def test_the_pieces_join_to_the_whole_text(text: str) -> None:
    pieces = "".join(piece for piece, _ in weighted_pieces(text))
    assert text_weight(pieces) == text_weight(text)
