"""`bot rehearse` and `bot voice`: over exports and stored rooms, with a model on this machine and without."""

import json
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bot.cli.commands.rehearse import parse_since
from bot.cli.main import entry
from bot.cli.process.shutdown import Exit, UsageError
from tests.cli.stored_character import FILE, answer_messages, write_character
from tests.doc_blocks import ROOT, find_blocks, write_blocks
from tests.rehearsal.exports import discord_message, write_discord
from tests.rehearsal.loopback_model import LoopbackModel, loopback_model

Out = pytest.CaptureFixture[str]
NEW = "new.json"


@pytest.fixture(autouse=True)
def character(workdir: Path) -> None:
    write_character(workdir)
    style = {"all": ["No emoji.", "At most two sentences."]}
    (workdir / NEW).write_text(json.dumps({"name": "Ada", "bio": "Ada repairs clocks.", "style": style}))


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a model whose answers end with their number, and point the settings to it."""
    numbers = iter(range(1, 10_000))
    with loopback_model(lambda prompt: f"New answer {next(numbers)} 🎉") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("MODEL_PRICES", "*=1/1")  # a call of 1,100 tokens costs $0.0011
        yield server


def export(folder: Path, *messages: dict[str, Any]) -> str:
    return str(write_discord(folder / "general.json", messages))


def rehearse(capsys: Out, *arguments: str) -> dict[str, Any]:
    assert entry(["rehearse", NEW, "--json", *arguments]) == Exit.OK
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_the_report_has_each_answer_with_the_earlier_answer(workdir: Path, model: LoopbackModel, capsys: Out) -> None:
    file = export(
        workdir, discord_message(1, "Ben", "Ada, what time is it?"), discord_message(2, "Ada", "Ten past nine.")
    )
    report = rehearse(capsys, "--from", file)
    [message] = report["messages"]
    assert message["before_replies"] == ["Ten past nine."]
    assert message["replies"] == ["New answer 1 🎉"]
    assert (message["before"], message["after"], message["rule"]) == ("answered", "answered", "name called")
    assert message["seconds"] > 0
    assert report["cost"] == pytest.approx(0.0011)
    assert "Ada repairs clocks." in model.prompts[-1] or any("repairs clocks" in prompt for prompt in model.prompts)


def test_the_report_has_silences_that_flip_in_both_directions(workdir: Path, model: LoopbackModel, capsys: Out) -> None:
    file = export(
        workdir,
        discord_message(1, "Ben", "Ada, are you there?"),
        discord_message(2, "Cleo", "Ben, you forgot your umbrella"),
        discord_message(3, "Ada", "It is in the hall."),
        discord_message(4, "Cleo", "Ben: thanks for the cake"),
    )
    report = rehearse(capsys, "--from", file, "--set", "RESPONSIVENESS=called")
    assert [message["flip"] for message in report["messages"]] == ["speaks", "silent", ""]
    assert (report["begins_to_speak"], report["falls_silent"]) == (1, 1)


def test_without_a_model_the_report_has_the_decisions_and_what_a_model_would_decide(
    workdir: Path, model: LoopbackModel, capsys: Out
) -> None:
    file = export(
        workdir,
        discord_message(1, "Ben", "Ada, what time is it?"),
        discord_message(2, "Cleo", "ten past", type="Reply", reference={"messageId": "1001"}),
        discord_message(3, "Dan", "does anybody know how clocks work?"),
    )
    report = rehearse(capsys, "--from", file, "--no-model")
    assert [message["after"] for message in report["messages"]] == ["answered", "silent", "undecided"]
    assert report["messages"][2]["reason"] == "the model would decide"
    assert [message["replies"] for message in report["messages"]] == [[], [], []]
    assert model.prompts == []


def test_a_rehearsal_stops_once_the_budget_is_used_up(workdir: Path, model: LoopbackModel, capsys: Out) -> None:
    file = export(workdir, *(discord_message(number, "Ben", f"Ada, number {number}?") for number in range(6)))
    report = rehearse(capsys, "--from", file, "--budget", "0.002")
    assert len(report["messages"]) == 2
    assert report["stopped"] == "the budget of $0.002 was used up after 2 of 6 messages"


def test_a_rehearsal_stops_where_the_model_answers_nothing(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    file = export(workdir, *(discord_message(number, "Ben", f"Ada, number {number}?") for number in range(6)))
    report = rehearse(capsys, "--from", file)
    assert report["failed"] == 3
    assert report["stopped"].startswith("3 messages in a row failed")


def test_the_clock_of_a_rehearsal_is_that_of_the_messages(workdir: Path, model: LoopbackModel, capsys: Out) -> None:
    rehearse(capsys, "--from", export(workdir, discord_message(7, "Ben", "Ada, what time is it?")))
    assert "[09:07] Ben" in model.prompts[-1]


def list_tables(database: Path) -> dict[str, list[Any]]:
    """Return the rows of each table but those of costs."""
    with closing(sqlite3.connect(database)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names if "cost" not in name}


@pytest.mark.long
def test_a_stored_room_is_compared_with_its_receipts_and_only_costs_are_stored(
    workdir: Path, model: LoopbackModel, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    with monkeypatch.context() as offline:
        offline.delenv("OPENAI_BASE_URL")
        [receipt] = answer_messages("hello")
    database = next((workdir / "data").glob("*.db"))
    before = list_tables(database)
    capsys.readouterr()
    report = rehearse(capsys, "-c", FILE, "--room", "lobby", "--since", "1d")
    [message] = report["messages"]
    assert (message["before"], message["before_rule"]) == ("answered", receipt.rule)
    assert message["before_replies"][0].startswith("Hello, I'm Ada.")
    assert message["replies"] == ["New answer 1 🎉"]
    assert list_tables(database) == before
    assert entry(["why", "--costs", "--by", "purpose", "-c", FILE, "--json"]) == Exit.OK
    sums = {item["name"]: item["usd"] for item in json.loads(capsys.readouterr().out)["sums"]}
    assert sums["rehearsal"] == report["cost"] == pytest.approx(0.0011)


@pytest.mark.long
def test_a_rehearsal_ends_at_the_limit_of_the_day_to_which_earlier_ones_count(
    workdir: Path, model: LoopbackModel, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    with monkeypatch.context() as offline:
        offline.delenv("OPENAI_BASE_URL")
        answer_messages("hello", "and now", "once more")
    monkeypatch.setenv("BUDGET_USD", "0.0025")
    capsys.readouterr()
    for budget, count, stopped in (
        ("0.001", 1, "the budget of $0.001 was used up after 1 of 3 messages"),
        ("1", 2, "the limit of today, BUDGET_USD, is reached after 2 of 3 messages"),
    ):
        report = rehearse(capsys, "-c", FILE, "--room", "lobby", "--since", "1d", "--budget", budget)
        assert (len(report["messages"]), report["stopped"]) == (count, stopped)


def test_a_page_of_the_report_escapes_what_people_wrote_and_loads_nothing(
    workdir: Path, model: LoopbackModel, capsys: Out
) -> None:
    file = export(workdir, discord_message(1, "<b>Ben</b>", "Ada, <script>alert(1)</script> https://example.org/x.png"))
    rehearse(capsys, "--from", file, "--html", "report.html")
    page = (workdir / "report.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;b&gt;Ben&lt;/b&gt;" in page
    assert not re.search(r"<script|<b>|\s(?:src|href)=", page)


def test_the_summary_has_answers_rules_costs_and_the_voice(workdir: Path, model: LoopbackModel, capsys: Out) -> None:
    reply = discord_message(2, "Cleo", "ten past", type="Reply", reference={"messageId": "1001"})
    file = export(workdir, discord_message(1, "Ben", "Ada, what time is it?"), reply)
    assert entry(["rehearse", NEW, "--from", file]) == Exit.OK
    out = capsys.readouterr().out
    assert "11-02 09:01 | Ben: Ada, what time is it? | unknown | New answer 1 🎉 [name called]" in out
    assert "Ada in general (discord): 2 messages rehearsed" in out
    assert "  name called: 1" in out
    assert "voice: 1 reply, 0% keep the style rules that code can check (2)" in out
    assert "  broken 1×: No emoji." in out


def test_what_is_missing_or_wrong_is_said_with_what_to_do(workdir: Path, capsys: Out) -> None:
    assert entry(["rehearse", NEW]) == Exit.USAGE
    assert "name a room with --room, or an export with --from" in capsys.readouterr().err
    assert entry(["rehearse", NEW, "--from", "none.json"]) == Exit.CONFIG
    assert "none.json cannot be read" in capsys.readouterr().err
    assert entry(["rehearse", NEW, "--from", export(workdir)]) == Exit.CONFIG
    assert "has no message that can be rehearsed" in capsys.readouterr().err
    assert entry(["rehearse", NEW, "--from", "x.json", "--set", "nothing"]) == Exit.USAGE
    assert "--set takes NAME=VALUE" in capsys.readouterr().err
    assert entry(["rehearse", NEW, "--from", "x.json", "--set", "OPENAI_LARGE_MODL=gpt-5"]) == Exit.USAGE
    assert "did you mean OPENAI_LARGE_MODEL?" in capsys.readouterr().err
    with pytest.raises(UsageError, match="write a period such as 12h or 7d"):
        parse_since("last week")


def test_the_voice_of_stored_replies_is_measured_by_day(workdir: Path, capsys: Out) -> None:
    answer_messages("hello")
    capsys.readouterr()
    assert entry(["voice", "-c", NEW, "--json"]) == Exit.OK
    body = json.loads(capsys.readouterr().out)
    assert body["total"]["texts"] == body["days"][0]["texts"] == 1
    assert body["total"]["rules"] == 2
    assert body["drift"] is None


def test_the_voice_of_no_replies_is_said_to_be_unknown(workdir: Path, capsys: Out) -> None:
    answer_messages("hello")
    capsys.readouterr()
    assert entry(["voice", "-c", FILE, "--room", "nowhere"]) == Exit.USAGE
    assert "no room 'nowhere' was found" in capsys.readouterr().err


@pytest.mark.long
def test_the_commands_of_the_tutorial_run(workdir: Path, model: LoopbackModel, capsys: Out) -> None:
    blocks = list(find_blocks(ROOT / "docs" / "rehearsal.md"))
    write_blocks(workdir, [block for block in blocks if block.kind == "json"])
    commands = [line for block in blocks if block.kind == "sh" for line in block.body.splitlines()]
    wren = json.loads((workdir / "wren.json").read_text(encoding="utf-8"))
    (workdir / FILE).write_text(json.dumps(wren), encoding="utf-8")
    answer_messages("hello", room="general")
    assert len(commands) >= 6
    for command in commands:
        program, *arguments = shlex.split(command)
        options = ["-c", FILE] if "--from" not in arguments else []
        assert (program, entry([*arguments, *options])) == ("bot", Exit.OK), command
    out = capsys.readouterr().out
    assert "It lets a clock go one tooth at a time." in out
    assert "Wren in general (discord): 2 messages rehearsed" in out
    assert (workdir / "report.html").is_file()


@pytest.mark.long
def test_a_rehearsed_turn_becomes_a_scene_that_passes_until_the_character_is_broken(
    workdir: Path, model: LoopbackModel, capsys: Out
) -> None:
    file = export(workdir, discord_message(1, "Ben", "Cleo sends cake"), discord_message(2, "Ben", "Ada, any news?"))
    rehearse(capsys, "--from", file, "--scene", "1002")
    assert entry(["scene", "run", "scenes"]) == 0
    (workdir / NEW).write_text(json.dumps({"name": "Eve"}), encoding="utf-8")
    assert entry(["scene", "run", "scenes"]) == 1
    assert "first difference" in capsys.readouterr().out
