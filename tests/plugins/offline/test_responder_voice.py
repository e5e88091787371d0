from plugins.offline.input_analysis import Sentence
from plugins.offline.responder import Persona, build_slots, find_example_answers, find_named_topics, list_topics

ADA = Persona(
    "Ada",
    topics=("old maps", "dawn: light", "https://example.com"),
    bio=("Ada is a gardener on a roof.",),
    examples=(("What do you think of the sea?", "Wet, {{user1}}."), ("Set an alarm", "Done, it is set.")),
)


def test_only_topics_that_fit_into_a_sentence_are_used() -> None:
    assert list_topics(ADA) == ["old maps"]
    assert find_named_topics("I found an old map", ADA) == ["old maps"]
    assert find_named_topics("I found a hat", ADA) == []


def test_a_slot_without_a_value_in_the_file_is_missing() -> None:
    slots = build_slots(ADA, "hm", "key")

    assert slots == {"name": "Ada", "who": ", a gardener on a roof", "topic": "old maps"}


def test_an_example_is_used_for_similar_lines_unless_it_claims_an_action() -> None:
    sea, alarm = "what do you think of the sea", "set an alarm"

    assert find_example_answers(ADA, Sentence(sea, True, sea), "Bob") == ["Wet, Bob."]
    assert find_example_answers(ADA, Sentence(alarm, False, alarm), "Bob") == []
