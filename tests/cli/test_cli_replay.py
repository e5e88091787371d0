"""`bot replay`: exit codes and what is printed."""

import json
from pathlib import Path

import pytest

from bot.cli.main import entry
from bot.domain.ledger import Receipt
from tests.cli.stored_character import FILE, answer_messages, run_with_store, write_character

Out = pytest.CaptureFixture[str]
EQUAL, DIFFERENT, NOT_REPLAYED, USAGE = 0, 1, 3, 2


@pytest.fixture
def receipt(workdir: Path) -> Receipt:
    """Return the receipt of a message that was answered."""
    write_character(workdir)
    [receipt] = answer_messages("hello")
    return receipt


@pytest.mark.long
def test_an_equal_turn_lists_its_steps_and_exits_0(receipt: Receipt, capsys: Out) -> None:
    assert entry(["replay", str(receipt.id), "-c", FILE]) == EQUAL
    assert capsys.readouterr().out.startswith("equal: decision, prompt 1 (reply)")
    assert entry(["replay", "lobby-0", "-c", FILE, "--json"]) == EQUAL
    document = json.loads(capsys.readouterr().out)
    assert (document["state"], document["differences"]) == ("equal", [])


@pytest.mark.long
def test_another_character_is_shown_with_the_difference_of_its_prompt_and_exits_1(
    receipt: Receipt, capsys: Out
) -> None:
    Path("new.json").write_text('{"name": "Ada", "bio": "She sails the seas."}', encoding="utf-8")
    assert entry(["replay", str(receipt.id), "-c", FILE, "--with", "new.json"]) == DIFFERENT
    out = capsys.readouterr().out
    assert "prompt 1 (reply) changes:" in out
    assert "She sails the seas." in out
    assert "from prompt 1 (reply) on, the recorded answers are to other prompts" in out


def test_a_character_whose_file_has_changed_is_not_replayed_and_exits_3(receipt: Receipt, capsys: Out) -> None:
    Path(FILE).write_text('{"name": "Ada", "bio": "She sails the seas."}', encoding="utf-8")
    assert entry(["replay", str(receipt.id), "-c", FILE]) == NOT_REPLAYED
    assert "it cannot be replayed: another version ran it: its character was" in capsys.readouterr().out


def test_a_turn_whose_message_was_deleted_is_not_replayed_and_exits_3(receipt: Receipt, capsys: Out) -> None:
    run_with_store(lambda store: store.edits.delete_messages(receipt.room_id, ["lobby-0"], receipt.received_at))
    assert entry(["replay", str(receipt.id), "-c", FILE]) == NOT_REPLAYED
    assert "its record is not there: it was erased" in capsys.readouterr().out


def test_an_unknown_message_is_a_usage_error(receipt: Receipt, capsys: Out) -> None:
    assert entry(["replay", "nothing", "-c", FILE]) == USAGE
    assert "no message 'nothing' was found" in capsys.readouterr().err
