import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.offline.input_analysis import ChatLine
from plugins.offline.phrasing import MAX_ANSWER_LENGTH, MAX_POST_LENGTH
from plugins.offline.responder import Persona, respond, should_respond, write_post

ADA = Persona(
    "Ada",
    topics=("gardening", "old maps", "night trains"),
    adjectives=("curious", "patient"),
    bio=("Ada is a gardener on a roof.", "Collects old maps of towns that no longer exist."),
    examples=(
        ("What do you think of the sea?", "Wet, {{user1}}, and never finished."),
        ("Set an alarm for seven", "Done, it is set."),
    ),
    posts=("Rain on the roof. The beans approve.", "A map is a letter to a stranger."),
)


def is_clean(answer: str) -> bool:
    categories = {unicodedata.category(character) for character in answer}
    return not (
        categories & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
        or re.search(r"@|https?:|www\.|://|[{}<>`]|\.(?:com|gg)\b", answer, re.IGNORECASE)
    )


LINES = st.text(max_size=200) | st.builds(
    "{0}{1} {2}".format,
    st.sampled_from(["", "my sister sings ", "I want to ", "I am ", "you are ", "my name is ", "what is ", "I like "]),
    st.sampled_from(
        [
            "@everyone",
            "@\u200bhere",
            "<@123>",
            "{{user}}",
            "{name}",
            "https://e.com/x",
            "evil.gg",
            "\u202eabc",
            "＠here",
        ]
    ),
    st.text(max_size=40),
)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=8), LINES, st.booleans()), max_size=5), st.integers())
def test_hostile_lines_are_answered_briefly_and_cleanly(lines: list[tuple[str, str, bool]], seed: int) -> None:
    history = [ChatLine(*line) for line in lines]

    answer = respond(history, ADA, seed=seed)

    assert 0 < len(answer) <= MAX_ANSWER_LENGTH
    assert is_clean(answer)
    assert isinstance(should_respond(history, ADA), bool)


@pytest.mark.long
@given(st.lists(st.text(max_size=60), max_size=4), st.text(max_size=30))
def test_a_character_file_of_any_content_gives_clean_answers(texts: list[str], name: str) -> None:
    voice = Persona(name, tuple(texts), tuple(texts), tuple(texts), tuple((t, t) for t in texts), tuple(texts))

    for line in (*texts, "who are you?", "tell me something", "what shall we talk about?"):
        assert 0 < len(respond([ChatLine("Bob", line, False)], voice)) <= MAX_ANSWER_LENGTH
    assert 0 < len(write_post(voice)) <= MAX_POST_LENGTH
    assert "@" not in write_post(voice)


@pytest.mark.parametrize(
    "unit", ["a", "ab ", "my my ", "(", "I am so so ", "1+", "a.b", "ich ", "Ada, ", "\u0301", "ﷺ", ":;", "{{", "hi "]
)
def test_a_line_of_64_kib_is_answered(unit: str) -> None:
    line = (unit * 65_536)[:65_536]

    answer = respond([ChatLine("Bob", line, False)] * 8, ADA)

    assert 0 < len(answer) <= MAX_ANSWER_LENGTH
