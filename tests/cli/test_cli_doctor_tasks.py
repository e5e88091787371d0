"""`bot doctor`: checks of stored tasks."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.background.posting import POST_WORKER
from bot.cli.main import entry
from bot.domain.ids import new_id
from bot.domain.task import Task
from bot.store.protocols import Store
from tests.cli.stored_character import FILE, answer_messages, run_with_store, write_character

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
Out = pytest.CaptureFixture[str]


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
