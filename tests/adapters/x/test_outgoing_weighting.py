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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it ended.Then it began", 22),
        ("node.js", 7),
        ("foo.museum", 23),
        ("example.com.", 24),
        ("www.example.co.uk/a_(b)", 23),
        ("http://example.com/(a)b", 23),
        ("http://example.com/x.(y)", 27),
        ("http://example.com/x!", 24),
        ("https://example.com?x=1", 23),
        ("https://example.com:80/", 23),
        ("http://localhost:8080/x", 23),
        ("http://1.2.3.4/", 15),
        ("http://a_b.com", 14),
        ("http://sub_domain.example.com", 23),
        ("user@example.com", 16),
        ("$foo.com", 8),
        ("#foo.com", 8),
        ("-foo.com", 8),
        ("_foo.com", 8),
        ("foo.com中国語", 29),
        ("http://例え.jp/", 23),
        ("\u043f\u0440\u0435\u0437\u0438\u0434\u0435\u043d\u0442.\u0440\u0444", 12),
        ("http://\u043f\u0440\u0435\u0437\u0438\u0434\u0435\u043d\u0442.\u0440\u0444", 23),
        ("https://t.co/abc/def", 27),
        ("©", 1),
        ("©️", 2),
        ("™", 2),
        ("❤", 2),
        ("❤️", 2),
        ("\u2764\ufe0e", 4),
        ("🇩", 2),
        ("🇦🇦", 4),
        ("🇩🇪🇫🇷", 4),
        ("#️⃣", 2),
        ("1⃣", 2),
        ("🏴󠁧󠁢󠁥󠁮󠁧󠁿", 2),
        ("🏳️‍🌈", 2),
        ("👍🏽", 2),
        ("🍕🏽", 4),
        ("😀️", 4),
        ("😀‍😀", 5),
        ("👩‍❤️‍💋‍👨", 2),
        ("⛹🏻‍♀️", 2),
        ("\u200b", 1),
        ("\u200e", 2),
        ("‼", 2),
        ("€", 2),
        ("ﷺ", 2),
        ("\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8", 7),
        ("\u13e3", 2),
        ("𝕏", 2),
        ("नमस्ते", 6),
        ("\u1100", 2),
        ("https://t.co/" + "a" * 41, 54),
        ("https://" + "a" * 64 + ".com", 76),
        ("https://example.com/" + "a" * 4096, 4116),
    ],
)
def test_text_weight_is_that_of_twitter_text(text: str, expected: int) -> None:
    assert text_weight(text) == expected


@given(st.text(max_size=200))
def test_the_pieces_join_to_the_whole_text(text: str) -> None:
    pieces = "".join(piece for piece, _ in weighted_pieces(text))
    assert text_weight(pieces) == text_weight(text)
