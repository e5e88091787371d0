"""`bot rooms` while no bot runs: list, take over, give back."""

import json
from pathlib import Path

import pytest

from bot.cli.main import entry
from tests.cli.stored_character import FILE, answer_messages, write_character

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def character(workdir: Path) -> None:
    write_character(workdir)


@pytest.mark.long
def test_a_room_is_taken_over_by_its_name_and_given_back(capsys: Out) -> None:
    answer_messages("hello")
    assert entry(["rooms", "take-over", "lobby", "--name", "Mia", "--reason", "a refund", "-c", FILE]) == 0
    assert capsys.readouterr().out.startswith("lobby: taken over by Mia since ")
    assert entry(["rooms", "list", "-c", FILE, "--json"]) == 0
    [room] = json.loads(capsys.readouterr().out)["rooms"]
    assert (room["name"], room["taken_over"].startswith("taken over by Mia since ")) == ("lobby", True)
    assert entry(["rooms", "give-back", "test:lobby", "-c", FILE]) == 0
    assert capsys.readouterr().out == "test:lobby: given back; Mia had taken over\n"
    assert entry(["rooms", "give-back", "lobby", "-c", FILE]) == 0
    assert capsys.readouterr().out == "lobby: nobody has taken over\n"


def test_a_person_of_a_room_is_taken_over_alone(capsys: Out) -> None:
    [receipt] = answer_messages("hello")
    person = str(receipt.author_id)
    assert entry(["rooms", "take-over", "lobby", "--person", person, "-c", FILE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["person_id"] == person


def test_an_unknown_room_and_writing_without_a_running_bot_are_refused(capsys: Out) -> None:
    answer_messages("hello")
    assert entry(["rooms", "take-over", "nowhere", "-c", FILE]) == 2
    assert "no room 'nowhere' was found" in capsys.readouterr().err
    assert entry(["rooms", "write", "lobby", "We are on it.", "-c", FILE]) == 78
    assert "only a running bot can write" in capsys.readouterr().err
