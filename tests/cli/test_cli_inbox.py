"""`bot inbox list`: the events that could not be read."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.cli.main import entry
from bot.domain.inbound import UnreadableEvent
from tests.cli.stored_character import FILE, answer_messages, run_with_store, write_character

Out = pytest.CaptureFixture[str]
AT = datetime(2026, 11, 22, 10, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def character(workdir: Path) -> None:
    write_character(workdir)
    answer_messages("hello")


def test_an_unreadable_event_is_listed_with_its_cause_and_beginning(capsys: Out) -> None:
    event = UnreadableEvent("discord", "77", "message 12", AT, "TypeError: no\x1b[31m", '{"id": "12"}')
    run_with_store(lambda store: store.ledger.record_unreadable([event]))
    capsys.readouterr()
    assert entry(["inbox", "list", "-c", FILE]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "message 12  discord (77), 2026-11-22 10:30:00 UTC",
        '  {"id": "12"}',
        "  → TypeError: no",
    ]
    assert entry(["inbox", "list", "-c", FILE, "--json"]) == 0
    [listed] = json.loads(capsys.readouterr().out)["events"]
    assert listed["raw"] == '{"id": "12"}'
    assert listed["received_at"] == AT.isoformat()


@pytest.mark.long
def test_nothing_unreadable_is_reported(capsys: Out) -> None:
    capsys.readouterr()
    assert entry(["inbox", "list", "-c", FILE]) == 0
    assert capsys.readouterr().out == "every event could be read\n"
