"""What the trained classifier says about plain situations, and how it explains itself."""

import json

import pytest

from benchmarks.addressed import predict
from bot.pipeline.talk import FEATURES, GROUPS, WEIGHTS, AddressClassifier, Node, load_classifier


def last_probability(*lines: tuple[str, str], me: str = "ada") -> float:
    """Return the probability of the last line."""
    rows = [{"n": n, "minute": n, "author": author, "text": text} for n, (author, text) in enumerate(lines)]
    probability = predict(rows, me)[-1]
    assert probability is not None
    return probability


def test_the_weights_fit_the_features_and_name_their_source() -> None:
    weights = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    assert "CC BY 4.0" in weights["source"]
    assert sorted(feature for group in GROUPS.values() for feature in group) == sorted(FEATURES)
    load_classifier()


@pytest.mark.parametrize(
    "text", ["ada: does that need root?", "ada, thanks", "hi ada: can you help?", "ada: no", "Ada: wie geht das?"]
)
def test_a_line_that_opens_with_the_name_is_addressed(text: str) -> None:
    assert last_probability(("bo", "hi"), ("ada", "hello all"), ("bo", text)) > 0.6


def test_an_answer_to_the_agents_question_is_addressed_without_a_name() -> None:
    talk = (("bo", "ada: my sound is gone"), ("ada", "bo: which card is it?"), ("bo", "an old intel one"))
    assert last_probability(*talk) > 0.5


def test_people_who_talk_with_each_other_do_not_address_the_agent() -> None:
    talk = [("ada", "hello all")]
    for number in range(200):
        author, other = ("bo", "cy") if number % 2 else ("cy", "bo")
        opening = f"{other}: " if number % 5 == 0 else ""
        talk.append((author, f"{opening}I think part {number} is loose"))
    rows = [{"n": n, "minute": n // 3, "author": author, "text": text} for n, (author, text) in enumerate(talk)]
    assert max(probability for probability in predict(rows, "ada")[3:] if probability is not None) < 0.3


def test_a_line_to_another_person_is_not_addressed() -> None:
    talk = (("bo", "cy: are you there?"), ("cy", "yes, sure"), ("ada", "hello all"), ("bo", "cy: did you see that?"))
    assert last_probability(*talk) < 0.1
    assert last_probability(*talk, ("cy", "not yet, where is it?")) < 0.3


def test_the_reasons_are_the_groups_that_moved_the_score_most() -> None:
    name, turn = FEATURES.index("name_kind"), FEATURES.index("agent_to_author")
    trees: list[list[Node]] = [
        [(name, 0.5, 1, 2, 0.0), (-1, 0.0, 0, 0, -1.0), (-1, 0.0, 0, 0, 2.0)],
        [(turn, 0.5, 1, 2, 0.0), (-1, 0.0, 0, 0, -0.5), (-1, 0.0, 0, 0, 0.1)],
    ]
    features = [0.0] * len(FEATURES)
    features[name] = 1.0
    classifier = AddressClassifier(trees)
    estimate = classifier.estimate(features)
    assert estimate.reasons == ("name",)
    assert estimate.probability == classifier.probability(features)
    assert classifier.estimate([0.0] * len(FEATURES)).reasons == ("not name", "not turn")
