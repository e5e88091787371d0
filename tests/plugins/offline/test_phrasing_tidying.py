import pytest

from plugins.offline.phrasing import clean_sentence, is_named, normalize_line


@pytest.mark.parametrize(
    ("plain", "text"),
    [
        ("Ada, what is new?", "what is new"),
        ("hey Ada I'm here!", "I am here"),
        ("thanks, Ada", "thanks"),
        ("Ada sings", "Ada sings"),
        ("well, so I left :-)", "I left"),
        ("THIS IS LOUD", "this is loud"),
    ],
)
def test_names_filler_and_punctuation_are_removed_and_contractions_expanded(plain: str, text: str) -> None:
    assert clean_sentence(plain, "Ada") == text


def test_control_characters_and_curly_quotes_are_normalized() -> None:
    assert normalize_line("\u202eit’s\x00 ＴＥＡ\n") == "it's TEA"


@pytest.mark.parametrize(
    ("line", "expected"), [("ask Marc's aunt", True), ("Marc Aurel, hi", True), ("remarcable", False)]
)
def test_names_match_whole_words_only(line: str, expected: bool) -> None:
    assert is_named(line, "Marc Aurel") is expected
