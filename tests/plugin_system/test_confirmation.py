"""What counts as an answer to a question that asks for a confirmation."""

import pytest

from bot.plugin_system.registry import MAX_CONFIRMATION_LENGTH, Answer, read_answer
from bot.user_texts import load_catalogue, user_phrases

YES, NO, NONE = Answer(is_yes=True), Answer(is_no=True), Answer()
CODE = "3EPAA"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("yes", YES),
        ("Yes, please, Ada!", YES),
        ("ok ok", YES),
        ("That’s right.", YES),
        ("好的，谢谢", YES),
        ("no", NO),
        ("Please don't.", NO),
        ("stop, cancel it", NO),
        ("3epaa", Answer(code=CODE)),
        ("<@123> 3EPAA", Answer(code=CODE)),
        ("yes 3EPAA please", Answer(is_yes=True, code=CODE)),
        ("dear good Ada, confirm 3EPAA!", Answer(code=CODE)),
        ("no, 3EPAA", NO),
        ("do not confirm 3EPAA", NONE),
        ("don't confirm 3EPAA", NONE),
        ("yes and no", NONE),
        ("yes?", NONE),
        ("3EPAA?", NONE),
        ("3EPAA AAAAA", NONE),
        ("yes to 3EPAA", NONE),
        ("confirm3EPAA", NONE),
        ("Bob said yes", NONE),
        ("Ada, go on", NONE),  # with what it talks of
        ("please", NONE),
        ("", NONE),
        ("yes " * MAX_CONFIRMATION_LENGTH, NONE),
    ],
)
def test_only_a_message_that_says_nothing_else_is_an_answer(text: str, answer: Answer) -> None:
    assert read_answer(text, ["Ada"]) == answer


@pytest.mark.parametrize(("key", "answer"), [("choices.yes", YES), ("choices.no", NO)])
def test_every_phrase_of_the_catalogue_is_an_answer_in_any_case(key: str, answer: Answer) -> None:
    phrases = user_phrases(key)
    assert len(phrases) > 50
    assert [phrase for phrase in phrases if read_answer(f"{phrase.capitalize()}!") != answer] == []


def test_yes_and_no_have_the_same_languages() -> None:
    languages = [
        {name.removeprefix(prefix) for name in load_catalogue("en") if name.startswith(prefix)}
        for prefix in ("choices.yes.", "choices.no.", "choices.polite.")
    ]
    assert languages[0] == languages[1] == languages[2]
