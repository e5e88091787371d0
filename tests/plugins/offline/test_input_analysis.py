import pytest

from plugins.offline.input_analysis import (
    ChatLine,
    find_callbacks,
    find_stated_name,
    find_unanswered,
    parse_sentences,
    pick_focus,
)


def focus(*lines: str) -> str:
    return pick_focus(lines, "Ada").text


def test_of_several_lines_the_open_question_is_in_focus() -> None:
    lines = ["I moved last week", "what is 6 times 7?", "the flat is small", "but it has a balcony", "ok"]

    assert focus(*lines) == "what is 6 times 7"


def test_of_several_statements_the_last_substantial_statement_is_in_focus() -> None:
    assert focus("I went out", "my sister sings in a choir", "hm", "ok") == "my sister sings in a choir"


def test_a_farewell_settles_the_questions_before_it() -> None:
    assert focus("where is my hat?", "bye") == "bye"


def test_the_weightiest_sentence_of_a_long_text_is_in_focus() -> None:
    filler = "The bus came at eight. We stood in the hall and waited for the others. " * 8

    assert focus(f"{filler}My sister sings in a choir. {filler}") == "My sister sings in a choir"


def test_only_the_last_speaker_since_the_character_spoke_is_unanswered() -> None:
    history = [ChatLine("Bob", "one", False), ChatLine("Ada", "two", True), ChatLine("Eve", "three", False)]
    history += [ChatLine("Bob", "four", False), ChatLine("Bob", "five", False)]

    assert [line.text for line in find_unanswered(history)] == ["four", "five"]
    assert find_unanswered(history[:2]) == []


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("Ada, I'm here. Are you there?", ["I am here", "are you there"]),
        ("hey Ada what's new", ["what is new"]),
        ("", [""]),
    ],
)
def test_a_line_is_cut_into_tidied_sentences(line: str, texts: list[str]) -> None:
    assert [sentence.text.lower() for sentence in parse_sentences(line, "Ada")] == [text.lower() for text in texts]


@pytest.mark.parametrize(
    ("lines", "name"),
    [(["my name is mara", "hm"], "Mara"), (["call me Al", "I'm Mara."], "Mara"), (["I'm tired", "I'm Fine."], "")],
)
def test_the_last_stated_name_is_used(lines: list[str], name: str) -> None:
    assert find_stated_name(lines) == name


def test_possessions_and_preferences_are_offered_until_they_were_used() -> None:
    lines = ["my garden is full of weeds", "I want to plant beans"]

    assert find_callbacks(lines, "hm", [], "Ada") == {"memory": "your garden", "wish": "you want to plant beans"}
    assert find_callbacks(lines, "hm", ["and your garden?"], "Ada") == {"wish": "you want to plant beans"}
