"""What is read from a talk: names, who answers whom, and features that never look ahead."""

import pytest

from bot.pipeline.talk import (
    FEATURES,
    MAX_SPEAKERS,
    NAMED,
    NAMED_EXACTLY,
    VARIANT,
    WINDOW,
    NameIndex,
    RoomTalk,
    TalkLine,
    read_line,
    shorten_name,
)


def talk_of(*lines: tuple[str, str], agent: str = "ada") -> RoomTalk:
    """Return a talk in which these authors said these texts, a minute apart."""
    talk = RoomTalk(agent, (agent,))
    for minute, (author, text) in enumerate(lines):
        hear(talk, author, text, minute)
    return talk


def hear(talk: RoomTalk, author: str, text: str, minute: float = 0) -> dict[str, float]:
    """Add a line and return its features by name."""
    line = TalkLine(author, text, minute)
    talk.read(line)
    features = talk.features(line)
    talk.add(line)
    return dict(zip(FEATURES, features, strict=True))


@pytest.mark.parametrize(
    ("name", "short"), [("stu_", "stu"), ("ada|away", "ada"), ("ada2", "ada"), ("bo1", "bo1"), ("x[y]", "x[y]")]
)
def test_a_name_is_known_without_what_people_append_to_it(name: str, short: str) -> None:
    assert shorten_name(name) == short


@pytest.mark.parametrize(
    ("text", "opening", "kind"),
    [
        ("Stunned: hello", "stu", NAMED_EXACTLY),
        ("stunned hello", "stu", NAMED),
        ("stun, hello", "stu", VARIANT),
        ("thanks stunned", "stu", NAMED),
        ("I think stunned knows", "", 0),
        ("stun hello", "", 0),
    ],
)
def test_a_name_opens_a_line_exactly_or_shortened(text: str, opening: str, kind: int) -> None:
    index = NameIndex()
    index.add("stu", "stuNNed")
    line = TalkLine("bo", text, 0)
    read_line(line, index)
    assert (line.opening, line.opening_kind) == (opening, kind)


def test_a_long_line_is_read_up_to_a_limit() -> None:
    line = TalkLine("bo", "stunned " * 100_000, 0)
    read_line(line, NameIndex())
    assert line.length <= 300


def test_a_line_after_an_answer_to_its_author_answers_that_speaker() -> None:
    talk = talk_of(("bo", "how do I mount it?"), ("ada", "bo: with mount"), ("cy", "morning"))
    features = hear(talk, "bo", "it says no such device", 3)
    assert features["agent_to_author_since"] > 0
    assert features["lines_since_agent"] == 2
    assert features["speakers_since_agent"] == 1


def test_a_reply_of_the_platform_counts_before_what_the_text_suggests() -> None:
    talk = talk_of(("bo", "hi"), ("ada", "bo: hello"))
    line = TalkLine("bo", "ok", 2, answers="cy", certainty=0.9)
    talk.read(line)
    assert line.answers == "cy"


def test_the_features_of_a_line_do_not_depend_on_what_follows() -> None:
    lines = [("bo", "ada: hi"), ("ada", "hello"), ("cy", "bo, look"), ("bo", "why?"), ("ada", "cy: no")]
    talk, whole = RoomTalk("ada", ("ada",)), []
    for author, text in lines:
        whole.append(hear(talk, author, text))
    for end in range(1, len(lines) + 1):
        talk = RoomTalk("ada", ("ada",))
        assert [hear(talk, author, text) for author, text in lines[:end]] == whole[:end]


def test_the_state_of_a_room_is_bounded() -> None:
    talk = RoomTalk("ada", ("ada",))
    for number in range(5 * MAX_SPEAKERS):
        hear(talk, f"person{number}", f"person{number - 1}: look, person{number - 2}", number)
    assert len(talk._speakers) == MAX_SPEAKERS
    assert len(talk.names.full) == MAX_SPEAKERS + 1  # the agent has not spoken
    assert len(talk._authors) == WINDOW


def test_no_text_is_kept() -> None:
    talk = talk_of(("bo", "my password is swordfish"))
    assert all(not line.text and not line.words for speaker in talk._speakers.values() for line in speaker.lines)
