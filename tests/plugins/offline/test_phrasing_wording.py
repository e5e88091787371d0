import pytest

from plugins.offline.phrasing import clean_persona_text, fill_slots, fit_sentences, quote_words, reflect_pronouns


@pytest.mark.parametrize(
    ("text", "turned"),
    [
        ("I am sad because you left me", "you are sad because I left you"),
        ("you are nice to my dog", "I am nice to your dog"),
        ("I was wrong about you", "you were wrong about me"),
        ("forgive myself", "forgive yourself"),
    ],
)
def test_pronouns_are_reflected(text: str, turned: str) -> None:
    assert reflect_pronouns(text) == turned


@pytest.mark.parametrize("text", ["see https://example.com", "evil.gg now", "such shit", "x"])
def test_links_and_coarse_words_are_not_quoted(text: str) -> None:
    assert quote_words(text, 60) == ""


def test_a_quotation_is_a_clean_clause_of_limited_length() -> None:
    assert quote_words("<b>@sing* too, and dance", 60) == "bsing"
    assert quote_words("wander slowly " * 9, 20) == "wander slowly…"


def test_persona_texts_lose_mentions_and_are_dropped_with_placeholders() -> None:
    assert clean_persona_text("@everyone is  welcome", 40) == "everyone is welcome"
    assert clean_persona_text("hello {name}", 40) == ""


def test_as_many_whole_sentences_as_fit_are_kept() -> None:
    assert fit_sentences("One. Two. Three.", 10) == "One. Two."
    assert fit_sentences("one two three", 9) == "one two…"


def test_an_answer_without_its_slot_or_condition_is_empty() -> None:
    assert fill_slots("{topic:top}, then.", {"topic": "maps"}) == "Maps, then."
    assert fill_slots("{topic}, then.", {}) == ""
    assert fill_slots("[first] hello", {}) == ""
    assert fill_slots("[first] hello", {}, conditions=frozenset({"first"})) == "Hello"
