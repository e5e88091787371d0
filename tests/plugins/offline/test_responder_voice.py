from plugins.offline.input_analysis import Sentence
from plugins.offline.responder import Voice, named_topics, own_words, slots_of, topics_of

ADA = Voice(
    "Ada",
    topics=("old maps", "dawn: light", "https://example.com"),
    bio=("Ada is a gardener on a roof.",),
    examples=(("What do you think of the sea?", "Wet, {{user1}}."), ("Set an alarm", "Done, it is set.")),
)


def test_only_topics_that_fit_into_a_sentence_are_taken() -> None:
    assert topics_of(ADA) == ["old maps"]
    assert named_topics("I found an old map", ADA) == ["old maps"]
    assert named_topics("I found a hat", ADA) == []


def test_a_slot_that_the_file_cannot_fill_is_missing() -> None:
    slots = slots_of(ADA, "hm", "key")

    assert slots == {"name": "Ada", "who": ", a gardener on a roof", "topic": "old maps"}


def test_an_example_is_taken_for_nearly_the_same_line_unless_it_claims_a_deed() -> None:
    sea, alarm = "what do you think of the sea", "set an alarm"

    assert own_words(ADA, Sentence(sea, True, sea), "Bob") == ["Wet, Bob."]
    assert own_words(ADA, Sentence(alarm, False, alarm), "Bob") == []
