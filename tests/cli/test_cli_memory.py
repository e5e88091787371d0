"""`bot memory`: what people stated is listed, found, explained, corrected and deleted."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.cli.main import entry
from bot.domain.content import Content
from bot.domain.ids import new_id
from bot.domain.memory import Memory, MemoryKind
from bot.store.protocols import LogKind, Store
from bot.testing import make_message
from tests.cli.stored_character import FILE, answer_messages, run_with_store, write_character

Out = pytest.CaptureFixture[str]
MESSAGE = make_message("", sent_at=datetime.now(UTC))


@pytest.fixture
def fact(workdir: Path) -> Memory:
    """Return a fact that Alice stated, stored with its source message."""
    write_character(workdir)
    [receipt] = answer_messages("I moved to Graz")
    stored = Memory(
        id=new_id(),
        kind=MemoryKind.FACT,
        entity_id=MESSAGE.author.id,
        room_id=MESSAGE.room.id,
        world_id=MESSAGE.world.id,
        content=Content(text="Alice lives in Graz."),
        created_at=datetime(2026, 11, 21, tzinfo=UTC),
        source_id=receipt.memory_id,
        metadata={"about": [str(MESSAGE.author.id)]},
    )

    async def add(store: Store) -> None:
        await store.memories.add([stored])

    run_with_store(add)
    return stored


@pytest.mark.long
def test_facts_of_a_person_are_listed_and_found_by_words(fact: Memory, capsys: Out) -> None:
    for command in (["list", "Alice"], ["search", "who", "lives", "in", "Graz"]):
        capsys.readouterr()
        assert entry(["memory", *command, "-c", FILE]) == 0
        assert capsys.readouterr().out == f"{fact.id}  2026-11-21  Alice: Alice lives in Graz.\n"


def test_a_fact_is_explained_with_its_source_message(fact: Memory, capsys: Out) -> None:
    capsys.readouterr()
    assert entry(["memory", "why", str(fact.id), "-c", FILE, "--json"]) == 0
    noted, source = json.loads(capsys.readouterr().out)
    assert (noted["about"], noted["told_by"], noted["audience"]) == ([str(MESSAGE.author.id)], "Alice", "room")
    assert (source["kind"], source["text"], source["id"]) == ("message", "I moved to Graz", noted["source_message"])


@pytest.mark.long
def test_what_a_question_finds_in_a_room_is_explained_by_the_parts_of_the_scores(fact: Memory, capsys: Out) -> None:
    command = ["memory", "explain", "Where did I move?", "--room", str(MESSAGE.room.id), "--asker", "Alice", "-c", FILE]
    capsys.readouterr()
    assert entry([*command, "--json"]) == 0
    said, *_ = found = json.loads(capsys.readouterr().out)
    assert (said["text"], said["kind"]) == ("I moved to Graz", "message")
    assert {part["name"] for part in said["parts"]} == {"move", "by the asker", "meaning"}
    assert said["score"] == pytest.approx(sum(part["score"] for part in said["parts"]), abs=0.02)
    assert [item["text"] for item in found if item["kind"] == "fact"] == ["Alice lives in Graz."]
    assert entry(command) == 0
    assert f"message, Alice, {said['at'][:16]}: I moved to Graz\n        meaning " in capsys.readouterr().out

    assert entry([*command[:4], "nowhere", "-c", FILE]) == 2
    assert "no room 'nowhere' was found" in capsys.readouterr().err


@pytest.mark.long
def test_all_facts_are_exported_as_json_lines_to_a_new_file(fact: Memory, capsys: Out, workdir: Path) -> None:
    capsys.readouterr()
    assert entry(["memory", "export", "-c", FILE]) == 0
    [line] = capsys.readouterr().out.splitlines()
    exported = json.loads(line)
    assert (exported["id"], exported["text"], exported["told_by"]) == (str(fact.id), "Alice lives in Graz.", "Alice")
    assert (exported["source_message"], exported["about"]) == (str(fact.source_id), fact.metadata["about"])

    target = workdir / "facts.jsonl"
    assert entry(["memory", "export", str(target), "-c", FILE]) == 0
    assert target.read_text(encoding="utf-8") == f"{line}\n"
    assert target.stat().st_mode & 0o077 == 0
    assert entry(["memory", "export", str(target), "-c", FILE]) != 0
    assert "name a new file" in capsys.readouterr().err


@pytest.mark.long
def test_a_fact_is_corrected_and_deleted(fact: Memory, capsys: Out) -> None:
    assert entry(["memory", "correct", str(fact.id), "Alice lives in Oslo.", "-c", FILE]) == 0
    capsys.readouterr()
    assert entry(["memory", "search", "Oslo", "-c", FILE]) == 0
    assert "Alice lives in Oslo." in capsys.readouterr().out

    assert entry(["memory", "delete", str(fact.id), "-c", FILE]) == 0
    capsys.readouterr()
    assert entry(["memory", "list", "Alice", "-c", FILE]) == 0
    assert capsys.readouterr().out == "no facts\n"
    assert entry(["memory", "delete", str(fact.id), "-c", FILE]) != 0
    assert "is no stored fact" in capsys.readouterr().err


@pytest.mark.long
def test_who_changed_a_fact_of_a_stopped_bot_is_logged(fact: Memory) -> None:
    assert entry(["memory", "correct", str(fact.id), "Alice lives in Oslo.", "-c", FILE]) == 0
    [logged] = run_with_store(lambda store: store.logs.logs(kind=LogKind.AUTHORIZATION))
    assert (logged["body"]["action"], logged["body"]["event"]) == ("CORRECT_FACT", "command line")
