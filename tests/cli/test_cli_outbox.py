"""`bot outbox` while no bot runs: list, send and drop."""

import json
from pathlib import Path
from typing import Any

import pytest

from bot.cli.main import entry
from bot.domain.ledger import DeliveryState
from tests.cli.keeping import FILE, answer_messages, set_delivery_state, write_character

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def character(desk: Path) -> None:
    write_character(desk)


def list_parts(capsys: Out) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert entry(["outbox", "list", "-c", FILE, "--json"]) == 0
    output: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["parts"]
    return output


def test_a_held_part_is_listed_with_all_a_person_decides_by(capsys: Out) -> None:
    [receipt] = answer_messages("hello")
    part = set_delivery_state(receipt, DeliveryState.UNKNOWN)
    assert entry(["outbox", "list", "-c", FILE]) == 0
    first, words, cause = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{part.id}  unknown, held, ")
    assert first.endswith("old, 1 attempts, for lobby (test)")
    assert words.startswith("  \"Hello, I'm Ada.")
    assert cause == "  → timed out"


def test_where_everything_has_arrived_that_is_said(capsys: Out) -> None:
    answer_messages("hello")
    assert entry(["outbox", "list", "-c", FILE]) == 0
    assert capsys.readouterr().out == "everything has arrived\n"


def test_a_part_that_is_put_back_while_nothing_runs_leaves_at_the_next_start(capsys: Out) -> None:
    [receipt] = answer_messages("hello")
    part = set_delivery_state(receipt, DeliveryState.UNKNOWN)
    assert entry(["outbox", "send", "-c", FILE, part.id]) == 0
    assert capsys.readouterr().out == f"{part.id}: it leaves at the next start\n"
    assert [one["state"] for one in list_parts(capsys)] == ["pending"]
    answer_messages("and now", room="attic")
    assert list_parts(capsys) == []


def test_a_dropped_part_has_failed_by_a_persons_hand_and_never_leaves(capsys: Out) -> None:
    [receipt] = answer_messages("hello")
    part = set_delivery_state(receipt, DeliveryState.PENDING)
    assert entry(["outbox", "drop", "-c", FILE, part.id]) == 0
    answer_messages("and now", room="attic")
    [told] = list_parts(capsys)
    assert (told["state"], told["cause"], told["attempts"]) == ("failed", "a person dropped it", 1)


def test_what_is_sent_or_not_there_is_refused(capsys: Out) -> None:
    [receipt] = answer_messages("hello")
    part = set_delivery_state(receipt, DeliveryState.SENT)
    assert entry(["outbox", "drop", "-c", FILE, part.id]) == 2
    assert f"part {part.id}: nothing is left to decide: it is sent already" in capsys.readouterr().err
    assert entry(["outbox", "send", "-c", FILE, "nothing"]) == 2
    assert "there is no part 'nothing': `bot outbox list` shows them" in capsys.readouterr().err


def test_deciding_makes_no_database(desk: Path) -> None:
    assert entry(["outbox", "send", "-c", FILE, "x"]) == 78
    assert not (desk / "data").exists()
