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
def test_address_filler_and_marks_are_gone_and_contractions_written_out(plain: str, text: str) -> None:
    assert clean_sentence(plain, "Ada") == text


def test_a_line_is_read_without_control_characters_and_curly_quotes() -> None:
    assert normalize_line("\u202eit’s\x00 ＴＥＡ\n") == "it's TEA"


@pytest.mark.parametrize(
    ("line", "expected"), [("ask Marc's aunt", True), ("Marc Aurel, hi", True), ("remarcable", False)]
)
def test_somebody_is_named_by_whole_words(line: str, expected: bool) -> None:
    assert is_named(line, "Marc Aurel") is expected
