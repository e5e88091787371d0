"""The voice of texts is measured by rules that code can check, function words and repetition."""

from datetime import date, timedelta
from typing import Any

import pytest

from bot.characters.voice import find_style_rules, measure_days, measure_voice
from bot.domain.character import Character

MARLO = " ".join(
    ["I do not think that it is the same, but we can have a look at it together if you want to."] * 6
    + ["There is a kettle by the door, and you can tell me what it was that you were looking for."] * 4
)
HERALD = " ".join(["Breaking news across regions: ministers, farmers, bankers debate prices amid of the floods."] * 12)


def character(*style: str, examples: str = "") -> Character:
    document: dict[str, Any] = {"name": "Marlo", "style": {"all": list(style)}}
    if examples:
        document["messageExamples"] = [[{"name": "Marlo", "content": {"text": examples}}]]
    return Character.model_validate(document)


@pytest.mark.parametrize(
    ("rule", "kept", "broken"),
    [
        ("No emoji.", "Fine.", "Fine 🎉"),
        ("Never use exclamation marks.", "Fine.", "Fine!"),
        ("No exclamation marks in rows.", "Fine!", "Fine!!"),
        ("At most two sentences.", "One. Two.", "One. Two. Three."),
        ("One to three sentences.", "One. Two. Three.", "One. Two. Three. Four."),
        ("Answer in under 5 words.", "one two three", "one two three four five six"),
        ("Never say 'as an AI' or \"delve\".", "I go deeper.", "As an AI, I can't."),
        ("Avoid the phrase “circle back”.", "We return.", "Let us circle back."),
        ("Write in lowercase.", "quiet", "Quiet"),
        ("No hashtags, no links.", "see #", "see https://example.org"),
        ("Do not use bullet points.", "- no", "fine"),
    ],
)
def test_a_style_rule_that_code_can_check_is_kept_or_broken(rule: str, kept: str, broken: str) -> None:
    if "bullet" in rule:
        kept, broken = broken, kept
    assert find_style_rules(character(rule)), rule
    measures = measure_voice(character(rule), [kept, broken])
    assert measures.kept == 0.5
    assert sum(measures.broken.values()) == 1


@pytest.mark.parametrize("rule", ["Plain words.", "No emoji unless the room uses them first.", "Never flatter."])
def test_a_rule_that_code_cannot_check_is_no_rule(rule: str) -> None:
    assert find_style_rules(character(rule)) == []
    assert measure_voice(character(rule), ["Fine 🎉"]).kept is None


def test_texts_in_the_words_of_the_examples_are_nearer_than_others() -> None:
    marlo = character(examples=MARLO)
    near, far = measure_voice(marlo, [MARLO]).distance, measure_voice(marlo, [HERALD]).distance
    assert near == pytest.approx(0, abs=0.01)
    assert far is not None
    assert far > 0.3


def test_fewer_than_a_hundred_words_have_no_distance() -> None:
    assert measure_voice(character(examples=MARLO), ["I do not think so."]).distance is None


def test_repetition_counts_what_was_said_in_the_last_hundred_texts() -> None:
    different = [f"word{number}a word{number}b word{number}c word{number}d" for number in range(120)]
    assert measure_voice(character(), different).repetition == 0
    assert measure_voice(character(), [different[0], different[0]]).repetition == 0.5
    assert measure_voice(character(), [*different[:120], different[0]]).repetition == 0


def test_a_drift_has_the_day_since_which_the_voice_differs() -> None:
    first = date(2026, 11, 2)
    replies = [(first + timedelta(days=day), "Fine 🎉" if day >= 4 else "Fine.") for day in range(8) for _ in range(10)]
    days, drift = measure_days(character("No emoji."), replies)
    assert [day.kept for day in days] == [1.0] * 4 + [0.0] * 4
    assert drift is not None
    assert str(drift).startswith("the voice drifted since Friday (2026-11-06): the share that keeps the style rules")


def test_few_replies_have_no_drift() -> None:
    replies = [(date(2026, 11, day), "Fine." if day < 3 else "Fine 🎉") for day in range(1, 6)]
    assert measure_days(character("No emoji."), replies)[1] is None
