"""`bot doctor`."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from adapters.web import spec as web
from adapters.web.adapter import WebAdapter
from bot import Agent, Plugin, model
from bot.background.posting import POST_WORKER
from bot.cli import checks
from bot.cli.characters import CharacterConfig, load_character_config, print_notes
from bot.cli.checks import check_budget
from bot.cli.commands.doctor import check_running_bot, watch_running_bot
from bot.cli.main import entry
from bot.cli.model_checks import ask_model, check_price
from bot.cli.process.shutdown import Exit
from bot.domain.ids import new_id
from bot.domain.task import Task
from bot.errors import BudgetSpent, ConfigError
from bot.models import ModelType, TextRequest
from bot.operate.tools import Finding, FindingStatus
from bot.runtime.runtime import Runtime
from bot.settings import Layer, Settings
from bot.store.protocols import Store
from bot.testing import running_agent
from tests.adapters.x.threaded import Threaded, emulated
from tests.cli.stored_character import FILE, answer_messages, run_with_store, write_character
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


NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def task_findings(capsys: Out) -> list[tuple[str, str]]:
    capsys.readouterr()
    assert entry(["doctor", "--json", "-c", FILE]) == 0
    output = json.loads(capsys.readouterr().out)["findings"]
    return [(finding["status"], finding["what"]) for finding in output if finding["check"] == "tasks"]


@pytest.mark.long
@pytest.mark.failure("J-06", "J-09")
def test_parked_and_orphaned_tasks_are_reported(workdir: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_PORT", "0")
    write_character(workdir)
    assert task_findings(capsys) == []
    answer_messages("Hello!")
    parked = Task(new_id(), "GONE", NOW, is_parked=True, attempts=20, last_error="ValueError: no words")

    async def leave(store: Store) -> None:
        await store.tasks.save_task(parked)
        await store.tasks.save_task(Task(new_id(), "GONE", NOW))
        await store.tasks.save_task(Task(new_id(), POST_WORKER, NOW))  # a task of the core

    run_with_store(leave)
    findings = task_findings(capsys)
    assert ("warn", "2 of GONE wait: no plugin defines this worker") in findings
    assert not any(POST_WORKER in what for _, what in findings)
    assert ("warn", f"GONE is parked after 20 failures: ValueError: no words ({parked.id})") in findings


@asynccontextmanager
async def running_bot() -> AsyncIterator[tuple[Runtime, CharacterConfig]]:
    """Run a character with its server; return the configuration with which a command finds it."""
    await asyncio.to_thread(Path("ada.json").write_text, '{"name": "Ada"}', encoding="utf-8")
    config = load_character_config(Path("ada.json"), Layer("the test", {"SERVER_PORT": "0"}))
    async with Runtime([config.agent_config], [web]) as runtime:
        [adapter] = runtime.adapters
        assert isinstance(adapter, WebAdapter)
        yield runtime, load_character_config(Path("ada.json"), Layer("the test", {"SERVER_PORT": str(adapter.port)}))


async def test_the_findings_name_what_needs_attention_at_the_running_bot(workdir: Path) -> None:
    async with running_bot() as (runtime, config):
        [finding] = await asyncio.to_thread(lambda: list(check_running_bot(config)))
        assert (finding.status, finding.message) == ("ok", "the bot runs, and nothing needs attention")
        runtime.inactive["x"] = "the keys are refused"
        [finding] = await asyncio.to_thread(lambda: list(check_running_bot(config)))
        assert (finding.status, finding.message, finding.advice) == ("fail", "X is off.", "The keys are refused.")
    assert list(check_running_bot(config)) == []


@pytest.mark.parametrize("as_json", [True, False])
async def test_what_begins_and_what_is_over_is_printed_once(workdir: Path, capsys: Out, as_json: bool) -> None:
    async with running_bot() as (runtime, config):
        looks = iter(["", "the keys are refused", "the keys are refused", ""])

        def sleep(seconds: float) -> None:
            cause = next(looks, None)
            if cause is None:
                raise KeyboardInterrupt
            runtime.inactive.clear()
            runtime.inactive.update({"x": cause} if cause else {})

        assert await asyncio.to_thread(watch_running_bot, config, as_json=as_json, sleep=sleep) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    if as_json:
        assert [json.loads(line)["kind"] for line in lines] == ["began", "over"]
        assert json.loads(lines[0])["key"] == "account:x"
    else:
        assert lines[0].endswith("began  X is off. The keys are refused.")


async def test_a_bot_that_does_not_answer_is_reported_and_a_bot_that_cannot_be_asked_is_refused(
    workdir: Path, capsys: Out
) -> None:
    async with running_bot() as (_, config):
        pass

    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    assert watch_running_bot(config, sleep=stop) == 0
    assert "no bot answers at http://127.0.0.1" in capsys.readouterr().out
    nowhere = load_character_config(Path("ada.json"), Layer("the test", {"SERVER_PORT": "0"}))
    with pytest.raises(ConfigError, match="SERVER_PORT is 0"):
        watch_running_bot(nowhere, sleep=stop)


def settings(*, file: str = "the environment", **values: str) -> Settings:
    return Settings([Layer(file, values, is_operator=not file.startswith("the character"))])


def prices(**values: str) -> list[Finding]:
    return list(check_price(settings(**values), "llama3.2"))


def test_the_size_of_every_component_is_reported(capsys: Out) -> None:
    whole, *kinds = [entry["what"] for entry in run_doctor(capsys)[1] if entry["check"] == "prompt"]
    assert "bytes in total" in whole
    assert [kind.split(",")[0] for kind in kinds] == ["actions", "character", "providers", "rules"]
    parts = [part.rsplit(" ", 1) for kind in kinds for part in kind.split(": ", 1)[1].split(", ")]
    sizes = {name: int(size.replace(",", "")) for name, size in parts if size.replace(",", "").isdigit()}
    assert {"SEND_MESSAGE", "TIME", "system", "instructions"} <= set(sizes)


def test_a_large_prompt_is_a_warning(workdir: Path, capsys: Out) -> None:
    character = {"name": "Ada", "bio": ["She has seen it all, and tells it. " * 20] * 40, "system": "Go on. " * 3000}
    (workdir / "ada.json").write_text(json.dumps(character), encoding="utf-8")
    warned = [
        entry for entry in run_doctor(capsys, "-c", "ada.json")[1] if entry["check"] == "prompt" and entry["advice"]
    ]
    assert [entry["status"] for entry in warned] == ["warn"]
    assert "shorten the largest" in warned[0]["advice"]


def test_limits_are_reported_and_those_in_a_character_file_have_no_effect() -> None:
    [none] = check_budget(settings())
    assert none.message == "limits: none (BUDGET_USD, BUDGET_TOKENS)"
    [some] = check_budget(settings(BUDGET_USD="2.5", BUDGET_TOKENS_PER_PERSON="20000"))
    assert some.message == (
        "limits: BUDGET_USD $2.5 a day in all; BUDGET_TOKENS_PER_PERSON 20,000 tokens a day for this person"
    )
    [none] = check_budget(settings(file="the character's settings", BUDGET_USD="1000"))
    assert none.message.startswith("limits: none")


def test_a_model_without_a_price_is_a_warning_and_mentions_a_limit_in_dollars() -> None:
    [unknown] = prices()
    assert (unknown.status, "its cost is not" in unknown.message) == (FindingStatus.WARN, True)
    assert unknown.advice.startswith("MODEL_PRICES=llama3.2=IN/OUT")
    [worse] = prices(BUDGET_USD="1")
    assert "limits in dollars have no effect on it" in worse.message
    [known] = prices(MODEL_PRICES="llama*=0")
    assert (known.status, known.message.startswith("llama3.2: $0 in")) == (FindingStatus.OK, True)


async def test_a_model_that_the_budget_does_not_pay_for_is_not_tried_and_the_limit_is_named() -> None:
    @model(ModelType.TEXT_LARGE, priority=1_000)
    async def refuse(agent: Agent, request: TextRequest) -> str:
        raise BudgetSpent("BUDGET_TOKENS", "the budget is used up")

    async with running_agent(Plugin("poor", models=[refuse])) as harness:
        [found] = await ask_model(harness.agent, settings())
    assert (found.status, found.advice) == (FindingStatus.WARN, "raise BUDGET_TOKENS, or wait until midnight UTC")
    assert found.message == "not tried: the budget is used up"


@pytest.fixture
def emulator(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Threaded]:
    """Start an emulated X and set the keys of an account."""
    (workdir / "ada.json").write_text('{"name": "Ada"}')
    with emulated() as emulator:
        for name, value in emulator.environment.items():
            monkeypatch.setenv(name, value)
        yield emulator


def check_account(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    code = entry(["doctor", "-c", "ada.json", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    return code, [finding for finding in findings if finding["check"] == "account"]


def test_the_account_the_remaining_plan_and_its_end_are_reported(
    emulator: Threaded, capsys: pytest.CaptureFixture[str]
) -> None:
    _, [finding] = check_account(capsys)
    assert finding["status"] == "ok"
    for expected in ("@greenroom_bot on X", "plan: free", "reads left this month: 100", "renewed: "):
        assert expected in finding["what"]
    assert [call.endpoint for call in emulator.calls] == ["GET /2/users/me"]


def test_refused_keys_are_reported_with_advice(emulator: Threaded, capsys: pytest.CaptureFixture[str]) -> None:
    emulator.is_revoked = True
    code, [finding] = check_account(capsys)
    assert (code, finding["status"], finding["is_outside"]) == (Exit.CONFIG, "fail", False)
    assert "X_ACCESS_TOKEN_SECRET" in finding["what"]
    assert emulator.environment["X_ACCESS_TOKEN_SECRET"] not in finding["what"]


def test_an_unreachable_platform_is_a_temporary_failure(
    emulator: Threaded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("X_API_BASE_URL", "http://127.0.0.1:9")
    _, [finding] = check_account(capsys)
    assert (finding["status"], finding["is_outside"]) == ("fail", True)
    assert "X cannot be reached" in finding["what"]
