"""What of a long character reaches the prompt: its voice always, the rest in turns."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.characters import load_character
from bot.cli.main import entry
from bot.domain.character import Character
from bot.prompts import describe_character
from bot.prompts.character_description import NAME_PLACEHOLDERS
from bot.testing import ManualClock, make_turn, running_agent
from plugins.bootstrap.providers.capabilities import character as provider

STYLE = [f"Rule {number} of how to write everywhere." for number in range(20)]
LIMIT = 6_000


def example(number: int) -> list[dict[str, object]]:
    return [
        {"name": "{{user1}}", "content": {"text": f"Question {number}?"}},
        {"name": "Ada", "content": {"text": f"Answer {number}, {{{{user1}}}}. " + "More words. " * 10}},
    ]


LONG = {
    "name": "Ada",
    "system": "Be Ada.",
    "bio": [f"Bio line {number}. " + "It goes on and on. " * 20 for number in range(20)],
    "lore": [f"Lore line {number}. " + "Long ago, and far away. " * 5 for number in range(30)],
    "topics": [f"topic {number}" for number in range(130)],
    "adjectives": ["exact", "kind", "dry"],
    "style": {"all": STYLE, "chat": ["Warm in chats."], "post": ["Grand in posts."]},
    "messageExamples": [example(number) for number in range(7)],
    "postExamples": [f"Post {number}." for number in range(7)],
}


def write(folder: Path, document: dict[str, object] = LONG) -> Path:
    path = folder / "ada.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


async def test_a_long_biography_leaves_style_and_examples_in_the_prompt(tmp_path: Path) -> None:
    loaded = load_character(write(tmp_path))
    async with running_agent(character=loaded.character) as harness:
        await harness.send("hi")
        [request] = harness.model.requests
    for rule in (*STYLE, "Warm in chats."):
        assert f"- {rule}\n" in request.prompt
    assert "Robin: Question 0?\nAda: Answer 0, Robin." in request.prompt
    assert "Robin: Question 1?" in request.prompt
    assert "- Bio line 0." in request.prompt
    assert "- Lore line " in request.prompt
    assert "Ada is: exact, kind, dry." in request.prompt
    assert "Ada knows about and likes to talk about: topic " in request.prompt


async def test_a_room_keeps_its_choice_for_the_day_and_others_have_another(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 11, 21, 0, 5, tzinfo=UTC))
    character = load_character(write(tmp_path)).character
    async with running_agent(character=character, clock=clock.now) as harness:
        first = [(await provider(make_turn(harness.agent, room=room))).text for room in ("a", "b")]
        clock.advance(23 * 3600)
        again = [(await provider(make_turn(harness.agent, room=room))).text for room in ("a", "b")]
        clock.advance(1 * 3600)
        tomorrow = (await provider(make_turn(harness.agent, room="a"))).text
    assert first == again
    assert len({*first, tomorrow}) == 3
    assert all(len(text) <= LIMIT for text in (*first, tomorrow))


def test_every_line_of_lore_and_every_topic_has_its_turn(tmp_path: Path) -> None:
    character = load_character(write(tmp_path)).character
    texts = [describe_character(character, seed=f"room {number}").text for number in range(60)]
    for line in ("Lore line {}. ", "topic {}"):
        count = 30 if line.startswith("Lore") else 130
        assert all(any(line.format(number) in text for text in texts) for number in range(count))


@pytest.mark.parametrize("is_feed", [False, True])
@pytest.mark.parametrize(
    "parts",
    [
        {"bio": ["word " * 50_000]},
        {"style": {"all": ["word " * 50_000] * 9, "post": ["word " * 9_000] * 9}},
        {"messageExamples": [[{"name": "Ada", "content": {"text": "word " * 50_000}}]] * 9},
        {"postExamples": ["word " * 9_000] * 9, "topics": ["word " * 900] * 2_000},
        {"name": "Ada " * 500, "lore": ["w" * 90_000] * 9, "knowledge": ["word " * 9_000] * 9},
        {name: ["word " * 9_000] * 9 for name in ("bio", "lore", "topics", "adjectives", "knowledge", "postExamples")},
    ],
)
def test_no_section_of_any_length_exceeds_the_limit_or_removes_the_style(
    parts: dict[str, object], is_feed: bool
) -> None:
    character = Character.model_validate({**LONG, **parts})
    text = describe_character(character, is_feed=is_feed).text
    assert 1_000 < len(text) <= LIMIT
    assert "# How to write\n- " in text
    assert ("Posts that sound right\n- " if is_feed else "Talks that sound right\n\n") in text


def test_a_single_long_text_as_bio_gets_the_length_that_others_leave() -> None:
    character = Character(name="Ada", bio=("word " * 2_000,), style={"all": STYLE})
    description = describe_character(character)
    assert LIMIT - 20 < len(description.text) <= LIMIT
    assert all(rule in description.text for rule in STYLE)


def test_the_check_and_the_doctor_print_what_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVER_PORT", "0")
    path = write(tmp_path)
    assert entry(["character", "check", str(path)]) == 0
    checked = capsys.readouterr().out
    entry(["doctor", "-c", str(path)])
    for out in (checked, capsys.readouterr().out):
        rows = {line.split("  ")[0]: line for line in out.replace("  prompt   ", "").replace(" " * 17, "").splitlines()}
        assert rows["style.all"].split()[1:] == ["20", "of", "20", "20", "of", "20"]
        assert rows["style.chat"].split()[1:] == ["1", "of", "1", "-"]
        assert "of 7" in rows["messageExamples"]
        assert int(rows["messageExamples"].split()[1]) >= 2
        assert 0 < int(rows["lore"].split()[1]) < 30
        assert "of 130" in rows["topics"]
    assert entry(["character", "check", "--json", str(path)]) == 0
    [document] = json.loads(capsys.readouterr().out)["characters"]
    assert document["prompt"]["chat"]["style.all"]["kept"] == 20
    assert 0 < document["prompt"]["chat"]["bio"]["keptCharacters"] < document["prompt"]["chat"]["bio"]["characters"]


@pytest.mark.parametrize("name", ["Robin", " ".join(NAME_PLACEHOLDERS)])
def test_a_character_does_not_talk_to_itself_in_its_examples(name: str) -> None:
    lines = [{"name": "{{name1}}", "content": {"text": "Who are you?"}}, {"name": name, "content": {"text": "Me."}}]
    character = Character.model_validate({"name": name, "messageExamples": [lines]})
    assert f"Nico: Who are you?\n{name}: Me." in describe_character(character).text
