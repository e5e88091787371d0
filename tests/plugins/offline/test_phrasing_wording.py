import pytest

from plugins.offline.phrasing import filled, fitted, quoted, reflected, voiced


@pytest.mark.parametrize(
    ("text", "turned"),
    [
        ("I am sad because you left me", "you are sad because I left you"),
        ("you are nice to my dog", "I am nice to your dog"),
        ("I was wrong about you", "you were wrong about me"),
        ("forgive myself", "forgive yourself"),
    ],
)
def test_persons_are_turned_round(text: str, turned: str) -> None:
    assert reflected(text) == turned


@pytest.mark.parametrize("text", ["see https://example.com", "evil.gg now", "such shit", "x"])
def test_links_and_coarse_words_are_not_said_back(text: str) -> None:
    assert quoted(text, 60) == ""


def test_a_quotation_is_one_clean_clause_of_limited_length() -> None:
    assert quoted("<b>@sing* too, and dance", 60) == "bsing"
    assert quoted("wander slowly " * 9, 20) == "wander slowly…"


def test_words_of_the_file_lose_mentions_and_placeholders_keep_them_out() -> None:
    assert voiced("@everyone is  welcome", 40) == "everyone is welcome"
    assert voiced("hello {name}", 40) == ""


def test_as_many_whole_sentences_stay_as_fit() -> None:
    assert fitted("One. Two. Three.", 10) == "One. Two."
    assert fitted("one two three", 9) == "one two…"


def test_an_answer_without_its_slot_or_condition_is_empty() -> None:
    assert filled("{topic:top}, then.", {"topic": "maps"}) == "Maps, then."
    assert filled("{topic}, then.", {}) == ""
    assert filled("[first] hello", {}) == ""
    assert filled("[first] hello", {}, conditions=frozenset({"first"})) == "Hello"
