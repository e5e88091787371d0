"""`bot doctor`: checks of platform accounts, against an emulated X."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.cli.main import entry
from bot.cli.process.shutdown import Exit
from tests.adapters.x.threaded import Threaded, emulated


@pytest.fixture
def emulator(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Threaded]:
    """Start an emulated X and set the keys of an account."""
    (workdir / "ada.json").write_text('{"name": "Ada"}')
    with emulated() as emulator:
        for name, value in emulator.environment.items():
            monkeypatch.setenv(name, value)
        yield emulator


def run_doctor(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    code = entry(["doctor", "-c", "ada.json", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    return code, [finding for finding in findings if finding["check"] == "account"]


def test_the_account_the_remaining_plan_and_its_end_are_reported(
    emulator: Threaded, capsys: pytest.CaptureFixture[str]
) -> None:
    _, [finding] = run_doctor(capsys)
    assert finding["status"] == "ok"
    for expected in ("@greenroom_bot on X", "plan: free", "reads left this month: 100", "renewed: "):
        assert expected in finding["what"]
    assert [call.endpoint for call in emulator.calls] == ["GET /2/users/me"]


def test_refused_keys_are_reported_with_advice(emulator: Threaded, capsys: pytest.CaptureFixture[str]) -> None:
    emulator.is_revoked = True
    code, [finding] = run_doctor(capsys)
    assert (code, finding["status"], finding["is_outside"]) == (Exit.CONFIG, "fail", False)
    assert "X_ACCESS_TOKEN_SECRET" in finding["what"]
    assert emulator.environment["X_ACCESS_TOKEN_SECRET"] not in finding["what"]


def test_an_unreachable_platform_is_a_temporary_failure(
    emulator: Threaded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("X_API_BASE_URL", "http://127.0.0.1:9")
    _, [finding] = run_doctor(capsys)
    assert (finding["status"], finding["is_outside"]) == ("fail", True)
    assert "X cannot be reached" in finding["what"]
