"""`bot outbox` while no bot runs: list, send and drop."""

import json
from pathlib import Path
from typing import Any

import pytest

from bot.cli.main import entry
from bot.domain.ledger import DeliveryState
from tests.cli.stored_character import FILE, answer_messages, set_delivery_state, write_character

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def character(workdir: Path) -> None:
    write_character(workdir)


def list_parts(capsys: Out, *options: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert entry(["outbox", "list", "-c", FILE, "--json", *options]) == 0
    output: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["parts"]
    return output


def test_a_held_part_is_listed_with_the_facts_for_a_decision(capsys: Out) -> None:
    [receipt] = answer_messages("hello")
    part = set_delivery_state(receipt, DeliveryState.UNKNOWN)
    assert entry(["outbox", "list", "-c", FILE]) == 0
    first, words, cause = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{part.id}  unknown, held, ")
    assert first.endswith("old, 1 attempts, for lobby (test)")
    assert words.startswith("  \"Hello, I'm Ada.")
    assert cause == "  → timed out"


def test_an_empty_outbox_is_reported(capsys: Out) -> None:
    answer_messages("hello")
    assert entry(["outbox", "list", "-c", FILE]) == 0
    assert capsys.readouterr().out == "nothing is undelivered\n"


@pytest.mark.long
def test_a_requeued_part_is_sent_at_the_next_start(capsys: Out) -> None:
    [receipt] = answer_messages("hello")
    part = set_delivery_state(receipt, DeliveryState.UNKNOWN)
    assert entry(["outbox", "send", "-c", FILE, part.id]) == 0
    assert capsys.readouterr().out == f"{part.id}: it leaves at the next start\n"
    assert [part["state"] for part in list_parts(capsys)] == ["pending"]
    answer_messages("and now", room="attic")
    assert list_parts(capsys) == []


@pytest.mark.long
def test_a_dropped_part_is_failed_and_never_sent(capsys: Out) -> None:
    [receipt] = answer_messages("hello")
    part = set_delivery_state(receipt, DeliveryState.PENDING)
    assert entry(["outbox", "drop", "-c", FILE, part.id]) == 0
    answer_messages("and now", room="attic")
    [listed_part] = list_parts(capsys)
    assert (listed_part["state"], listed_part["cause"], listed_part["attempts"]) == ("failed", "a person dropped it", 1)


@pytest.mark.long
def test_sent_and_unknown_parts_are_refused(capsys: Out) -> None:
    [receipt] = answer_messages("hello")
    part = set_delivery_state(receipt, DeliveryState.SENT)
    assert entry(["outbox", "drop", "-c", FILE, part.id]) == 2
    assert f"part {part.id}: nothing is left to decide: it is sent already" in capsys.readouterr().err
    assert entry(["outbox", "send", "-c", FILE, "nothing"]) == 2
    assert "there is no part 'nothing': `bot outbox list` shows the parts" in capsys.readouterr().err


def test_a_decision_creates_no_database(workdir: Path) -> None:
    assert entry(["outbox", "send", "-c", FILE, "x"]) == 78
    assert not (workdir / "data").exists()


@pytest.mark.long
def test_parts_are_listed_by_their_states_also_those_that_were_given_up(capsys: Out) -> None:
    held, failed, dropped = answer_messages("hello", "and now", "once more")
    parts = [set_delivery_state(receipt, DeliveryState.UNKNOWN) for receipt in (held, failed, dropped)]
    set_delivery_state(failed, DeliveryState.FAILED)
    assert entry(["outbox", "drop", "-c", FILE, parts[2].id]) == 0
    ids = {"held": [parts[0].id], "failed": [parts[1].id], "dropped": [parts[2].id], "waiting": []}
    assert {state: [part["id"] for part in list_parts(capsys, "--state", state)] for state in ids} == ids
    both = list_parts(capsys, "--state", "held", "--state", "dropped")
    assert [part["id"] for part in both] == [parts[0].id, parts[2].id]
    assert [part["id"] for part in list_parts(capsys, "--state", "held", "--state", "dropped", "--limit", "1")] == [
        parts[2].id
    ]
