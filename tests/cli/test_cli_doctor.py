"""`bot doctor`: checks of the configuration."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from bot.cli import checks
from bot.cli.characters import print_notes
from bot.cli.main import entry
from tests.ports import free_port
from tests.trust import write_clashing_plugins

Out = pytest.CaptureFixture[str]


def run_doctor(capsys: Out, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code = entry(["doctor", "--json", *arguments])
    output = json.loads(capsys.readouterr().out)
    assert output["ok"] is (code == 0)
    return code, output["findings"]


def failed_findings(findings: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(finding["check"], finding["what"]) for finding in findings if finding["status"] == "fail"]


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Set the web page's port to a free one; return it."""
    number = free_port()
    monkeypatch.setenv("SERVER_PORT", str(number))
    return number


def test_an_empty_folder_passes_and_the_offline_model_is_reported(capsys: Out) -> None:
    assert entry(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "warn  model      offline: built-in patterns" in out
    assert "→ for a real model set OPENAI_API_KEY" in out
    assert "without a key `bot init --local-model FILE` runs a model file" in out
    assert "fail" not in out


def test_every_wrong_variable_is_reported_with_its_source(workdir: Path, capsys: Out) -> None:
    (workdir / ".env").write_text("CONVERSATION_LENGTH=many\nOPENAI_API_KEY=your_key_here\n", encoding="utf-8")
    code, findings = run_doctor(capsys)
    assert code == 78
    messages = [what for check, what in failed_findings(findings) if check == "settings"]
    assert [what.split(":")[0] for what in messages] == ["CONVERSATION_LENGTH (in .env)", "OPENAI_API_KEY (in .env)"]
    assert all(finding["advice"] for finding in findings if finding["status"] != "ok")


def test_a_wrong_port_is_reported_and_the_checks_go_on(
    workdir: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_PORT", "99999")
    code, findings = run_doctor(capsys)
    assert code == 78
    assert [what.split()[0] for _, what in failed_findings(findings)] == ["SERVER_PORT"]
    assert "model" in [finding["check"] for finding in findings]


@pytest.mark.parametrize(("name", "value"), [("MCP_SERVERS", "none.json"), ("LOG_LEVEL", "LOUD")])
def test_after_a_wrong_variable_the_others_are_not_called_well_formed(
    capsys: Out, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    code, findings = run_doctor(capsys)
    assert code == 78
    [(check, what)] = failed_findings(findings)
    assert (check, what.split()[0].rstrip(":")) == ("settings", name)
    assert not [finding for finding in findings if "well-formed" in finding["what"]]


def test_the_variables_of_a_plugin_that_is_not_trusted_are_not_called_well_formed(workdir: Path, capsys: Out) -> None:
    (workdir / "mine.py").write_text("raise SystemExit('it ran')", encoding="utf-8")
    (workdir / "ada.json").write_text('{"name": "Ada", "plugins": ["./mine"]}', encoding="utf-8")
    code, findings = run_doctor(capsys, "-c", "ada.json")
    assert code == 78
    assert [check for check, _ in failed_findings(findings)] == ["plugins"]
    about_settings = [finding["what"] for finding in findings if finding["check"] == "settings"]
    assert not [what for what in about_settings if "all well-formed" in what]
    assert [what for what in about_settings if what.startswith("not all are checked: the character's plugins")]


def test_plugins_that_cannot_be_used_together_are_a_finding_and_the_other_checks_go_on(
    workdir: Path, capsys: Out
) -> None:
    write_clashing_plugins(workdir)
    code, findings = run_doctor(capsys, "-c", "ada.json")
    assert code == 78
    [(check, what)] = failed_findings(findings)
    assert (check, what.split(":")[0]) == ("plugins", "action ROLL_DICE is brought by plugin 'one' and by plugin 'two'")
    assert [finding["check"] for finding in findings][-1] == "control"


def test_a_line_that_sets_nothing_is_named_by_the_doctor_and_at_the_start(workdir: Path, capsys: Out) -> None:
    (workdir / ".env").write_text("BUDGET_USD=1\nthis is no setting\n", encoding="utf-8")
    code, findings = run_doctor(capsys)
    assert code == 0
    assert {finding["what"]: finding["advice"] for finding in findings}[
        ".env, line 2: it sets nothing"
    ] == "write NAME=value"
    print_notes([])
    assert capsys.readouterr().err == ".env: not NAME=value, so it sets nothing: line 2\n"


def test_a_misspelled_variable_gets_a_suggestion_and_a_foreign_variable_is_ignored(workdir: Path, capsys: Out) -> None:
    (workdir / ".env").write_text("OPENAI_APIKEY=x\nWEATHER_API_KEY=y\nPGHOST=z\n", encoding="utf-8")
    code, findings = run_doctor(capsys)
    warned = {finding["what"].split()[0]: finding["advice"] for finding in findings if finding["check"] == "settings"}
    assert code == 0
    assert warned["OPENAI_APIKEY"] == "did you mean OPENAI_API_KEY?"
    assert not {"WEATHER_API_KEY", "PGHOST"} & set(warned)


def test_a_broken_character_does_not_stop_the_checks(workdir: Path, capsys: Out) -> None:
    (workdir / "bad.json").write_text("{", encoding="utf-8")
    code, findings = run_doctor(capsys, "-c", "bad.json")
    assert code == 78
    assert [check for check, _ in failed_findings(findings)] == ["character"]
    assert "data" in {finding["check"] for finding in findings}


def test_an_unknown_plugin_is_reported(workdir: Path, capsys: Out) -> None:
    (workdir / "ada.json").write_text('{"name": "Ada", "plugins": ["ofline"]}', encoding="utf-8")
    code, findings = run_doctor(capsys, "-c", "ada.json")
    assert (code, [check for check, _ in failed_findings(findings)]) == (78, ["plugins"])


@pytest.mark.failure("K-12")
def test_a_port_in_use_is_reported(capsys: Out, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        code, findings = run_doctor(capsys)
    assert (code, [check for check, _ in failed_findings(findings)]) == (78, ["port"])


@pytest.mark.failure("K-18")
def test_a_data_directory_that_is_a_file_is_reported(workdir: Path, capsys: Out) -> None:
    (workdir / "data").write_text("not a folder", encoding="utf-8")
    code, findings = run_doctor(capsys)
    assert (code, [check for check, _ in failed_findings(findings)]) == (78, ["data"])


@pytest.mark.failure("K-06")
def test_files_readable_by_others_are_a_warning(workdir: Path, capsys: Out) -> None:
    (workdir / ".env").write_text("OPENAI_LARGE_MODEL=m\n", encoding="utf-8")
    (workdir / ".env").chmod(0o644)
    (workdir / "data").mkdir(0o700)
    (workdir / "data" / "token").touch(0o600)
    code, findings = run_doctor(capsys)
    assert code == 0
    warned = [
        (finding["what"], finding["advice"]) for finding in findings if finding["check"] == "data" and finding["advice"]
    ]
    assert warned == [(".env can be read by others", "chmod 600 .env, or run `bot doctor --fix`")]

    assert entry(["doctor", "--fix"]) == 0
    assert ".env: others can no longer read it" in capsys.readouterr().out
    assert (workdir / ".env").stat().st_mode & 0o777 == 0o600


@pytest.mark.failure("K-17")
def test_an_old_python_is_reported_with_advice(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MIN_PYTHON", (99, 1))
    code, findings = run_doctor(capsys)
    assert code == 78
    [advice] = [finding["advice"] for finding in findings if finding["check"] == "python"]
    assert advice == "install Python 99.1 or newer and reinstall the bot with it"


@pytest.mark.long
def test_an_unavailable_model_is_a_temporary_failure(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = free_port()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{closed}/v1")
    code, findings = run_doctor(capsys)
    assert code == 75
    assert [check for check, _ in failed_findings(findings)] == ["model"]


def test_no_secret_is_printed(workdir: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "undefined")
    (workdir / ".env").write_text("OPENAI_APIKEY=sk-abcdefghijklmnop\n", encoding="utf-8")
    entry(["doctor"])
    out, err = capsys.readouterr()
    assert "sk-abc" not in out + err


def test_approval_without_an_approver_is_a_warning(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"APPROVAL": "all", "DEGRADE": "off", "FILTER_WORDS": "gruesome"}.items():
        monkeypatch.setenv(name, value)
    shown, warning = [finding for finding in run_doctor(capsys)[1] if finding["check"] == "control"]
    assert shown["what"] == "APPROVAL=all; DEGRADE=off; FILTER_WORDS is set"
    assert (warning["status"], "no approver is set" in warning["what"]) == ("warn", True)
    monkeypatch.setenv("OPERATORS_ROOM", "discord:1234")
    assert len([finding for finding in run_doctor(capsys)[1] if finding["check"] == "control"]) == 1
