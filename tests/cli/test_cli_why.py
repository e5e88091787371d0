"""`bot why`: reports on messages."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.cli.commands.why import author_label, format_run
from bot.cli.main import entry
from bot.commands.dispatcher import CommandEvent
from bot.concurrency.clock import system_clock
from bot.domain.environment import Entity
from bot.domain.ids import new_id
from bot.domain.ledger import EventOrigin, ModelCall, Outcome, Receipt, Rule
from bot.store.protocols import Store
from bot.testing import make_message
from tests.cli.stored_character import FILE, answer_messages, run_with_store, write_character

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def character(workdir: Path) -> None:
    write_character(workdir)


def run_why(capsys: Out, *arguments: str) -> list[dict[str, Any]]:
    assert entry(["why", "-c", FILE, "--json", *arguments]) == 0
    output: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["messages"]
    return output


def reply_id(receipt: Receipt) -> str:
    assert receipt.turn_id is not None
    turn_id = receipt.turn_id
    [reply] = run_with_store(lambda store: store.memories.by_turn(turn_id))
    return str(reply.id)


def test_a_report_has_author_text_outcome_and_delivery(capsys: Out) -> None:
    [receipt] = answer_messages("hello")
    assert entry(["why", "-c", FILE]) == 0
    out = capsys.readouterr().out
    assert "Alice in lobby (test): 'hello'" in out
    assert "answered: every message in a room of type DM is answered" in out
    assert "decided by: room type DM" in out
    assert "called offline for reply: 0 tokens in, 0 out" in out
    assert "reply: \"Hello, I'm Ada." in out
    assert ": sent" in out
    assert f"message {receipt.memory_id}, receipt {receipt.id}" in out


def test_messages_are_listed_by_their_outcome_and_rule(capsys: Out) -> None:
    receipts = answer_messages("hello", "and now")
    ids, rule = [str(receipt.id) for receipt in receipts], receipts[0].rule
    listed = {
        options: [item["id"] for item in run_why(capsys, *options)]
        for options in (
            ("--outcome", "answered"),
            ("--outcome", "answered", "--last", "1"),
            ("--outcome", "ignored", "--outcome", "answered", "--rule", rule),
            ("--outcome", "ignored"),
            ("--rule", "nothing"),
        )
    }
    assert list(listed.values()) == [ids, ids[1:], ids, [], []]
    assert entry(["why", "-c", FILE, "--outcome", "failed"]) == 0
    assert capsys.readouterr().out == "there is no such message\n"


@pytest.mark.long
def test_a_removed_message_has_its_authors_name_until_the_person_is_forgotten(capsys: Out) -> None:
    [receipt] = answer_messages("hello")
    now = receipt.received_at
    run_with_store(lambda store: store.edits.delete_messages(receipt.room_id, [receipt.key.message_id], now))
    assert entry(["why", "-c", FILE]) == 0
    assert "Alice in lobby (test): (removed)" in capsys.readouterr().out
    run_with_store(lambda store: store.edits.erase_entity(receipt.author_id, now))
    assert entry(["why", "-c", FILE]) == 0
    out = capsys.readouterr().out
    assert "a person who was forgotten in lobby (test): (removed)" in out
    assert str(receipt.author_id) not in out
    [output] = run_why(capsys)
    assert (output["author"], output["author_id"]) == ("a person who was forgotten", str(receipt.author_id))


def test_the_author_of_a_message_is_shown_without_a_name_too() -> None:
    named = Entity(new_id(), "test", "5", ("Alice",))
    people = (named, replace(named, names=()), replace(named, names=(), external_id=""), None)
    assert list(map(author_label, people)) == [
        "Alice",
        "a person without a name",
        "a person who was forgotten",
        "an unknown person",
    ]


@pytest.mark.long
def test_a_message_is_found_by_each_of_its_ids_and_by_its_reply(capsys: Out) -> None:
    _, receipt = answer_messages("one", "two")
    for name in (str(receipt.id), str(receipt.memory_id), "lobby-1", reply_id(receipt)):
        assert [entry["text"] for entry in run_why(capsys, name)] == ["two"]


@pytest.mark.long
def test_the_last_messages_are_listed_oldest_first(capsys: Out) -> None:
    answer_messages("one", "two", "three", "four", "five", "six")
    assert [entry["text"] for entry in run_why(capsys)] == ["two", "three", "four", "five", "six"]
    assert [entry["text"] for entry in run_why(capsys, "--last", "2")] == ["five", "six"]


@pytest.mark.long
def test_a_room_is_found_by_name_or_id(capsys: Out) -> None:
    answer_messages("down", room="cellar")
    [output] = run_why(capsys, "--room", "Cellar")
    answer_messages("up", room="attic")
    assert [entry["text"] for entry in run_why(capsys, "--room", output["room_id"])] == ["down"]


def test_an_unknown_id_is_reported_with_suggestions(capsys: Out) -> None:
    answer_messages("hello", room="cellar")
    assert entry(["why", "-c", FILE, "nothing"]) == 2
    assert "no message 'nothing' was found; `bot why --last 20`" in capsys.readouterr().err
    assert entry(["why", "-c", FILE, "--room", "celar"]) == 2
    assert "did you mean 'cellar'?" in capsys.readouterr().err
    assert entry(["why", "-c", FILE, "x", "--last", "2"]) == 2
    assert entry(["why"]) == 78
    assert "holds nothing of this character: name the one you mean with -c FILE" in capsys.readouterr().err


def test_without_a_store_none_is_created(workdir: Path, capsys: Out) -> None:
    assert entry(["why", "-c", FILE]) == 78
    assert "there is no database data/greenroom.db: the first `bot run`" in capsys.readouterr().err
    assert not (workdir / "data").exists()
    (workdir / "mem.json").write_text('{"name": "Mem", "plugins": ["bootstrap"]}', encoding="utf-8")
    assert entry(["why", "-c", "mem.json"]) == 78
    assert "Mem (mem.json) is stored in memory only" in capsys.readouterr().err


def test_the_run_log_of_a_message_is_included(capsys: Out) -> None:
    answer_messages("hello")
    [output] = run_why(capsys)
    assert (output["run"]["status"], output["run"]["message_id"]) == ("completed", output["message_id"])


def test_the_results_of_actions_and_evaluators_are_shown() -> None:
    worked = [{"name": "WORK", "error": ""}, {"name": "FAIL", "error": "no tools"}]
    looked = [{"name": "LOOK", "error": ""}, {"name": "STUMBLE", "error": "ValueError: no ground"}]
    lines = list(format_run({"seconds": 1.5, "evaluators": looked, "actions": worked}))
    assert lines == [
        "action WORK: done",
        "action FAIL: no tools",
        "evaluator LOOK: done",
        "evaluator STUMBLE: ValueError: no ground",
    ]


def test_a_command_is_reported_with_who_gave_it_its_outcome_and_its_cost(capsys: Out) -> None:
    place = make_message("", sent_at=system_clock())
    event = CommandEvent("/poem", place.world, place.room, place.author, "e1")
    receipt = Receipt(
        new_id(),
        event.key,
        place.room.id,
        place.author.id,
        new_id(),
        received_at=system_clock(),
        outcome=Outcome.CLAIMED,
        rule=Rule.COMMAND,
        turn_id=new_id(),
        origin=EventOrigin.COMMAND,
    )
    calls = (ModelCall("TEXT_LARGE", "poem", "large", tokens_in=100, tokens_out=20, cost=0.25),)
    closed = replace(
        receipt, outcome=Outcome.ANSWERED, reason="/poem", model_calls=calls, closed_at=receipt.received_at
    )

    async def store_command(store: Store) -> None:
        await store.ledger.receive_command(receipt, place.world, place.room, place.author)
        await store.ledger.close_command(closed)

    run_with_store(store_command)
    assert entry(["why", "-c", FILE]) == 0
    out = capsys.readouterr().out
    assert "Alice in lobby (test): /poem" in out
    assert "Executed: /poem" in out
    assert "$0.25" in out
    assert f"receipt {receipt.id}" in out
