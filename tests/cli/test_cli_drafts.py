"""`bot drafts` beside a running bot and on the store of a stopped one: list, send, edit and drop."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bot.cli.main import entry
from bot.runtime.agent_runtime import AgentRuntime
from bot.testing import make_message
from tests.cli.test_cli_reload import running_bot

Out = pytest.CaptureFixture[str]
FILE = "ada.json"


@pytest.fixture(autouse=True)
def character(workdir: Path) -> None:
    """Write a character whose replies wait."""
    document = {"name": "Ada", "plugins": ["sql", "bootstrap", "offline"], "settings": {"APPROVAL": "all"}}
    (workdir / FILE).write_text(json.dumps(document), encoding="utf-8")


async def propose(running: AgentRuntime) -> None:
    """Answer a message of a platform that is not connected."""
    inbound = make_message("hello", sent_at=running.agent.clock(), platform="web")
    receipt = await running.inbox.submit(inbound)
    await running.inbox.wait_outcome(receipt.id)


def list_drafts(capsys: Out, *options: str) -> list[dict[str, Any]]:
    """Return what `bot drafts list` prints."""
    capsys.readouterr()
    assert entry(["drafts", "list", "-c", FILE, "--json", *options]) == 0
    drafts: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["drafts"]
    return drafts


async def give(capsys: Out, *arguments: str) -> tuple[int, str]:
    """Run `bot drafts` beside the bot; return its exit code and what it printed."""
    capsys.readouterr()
    code = await asyncio.to_thread(entry, ["drafts", *arguments, "-c", FILE])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


@pytest.mark.long
async def test_the_running_bot_sends_a_draft_and_why_shows_who_decided(
    monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    async with running_bot(monkeypatch) as runtime:
        await propose(runtime.agents[0])
        [draft] = await asyncio.to_thread(list_drafts, capsys)
        draft_id = draft["id"]
        assert (draft["question"], draft["reason"]) == ("hello", "APPROVAL=all")
        code, out = await give(capsys, "edit", draft_id, "Good day.")
        assert code == 0
        assert out.splitlines()[-1] == "Good day."
        code, text = await give(capsys, "send", draft_id, "--revision", "1")
        assert (code, "Good day." in text) == (2, True)
        assert await give(capsys, "send", draft_id) == (0, f"Draft {draft_id} is sent.\n")
        code, text = await give(capsys, "drop", draft_id)
        assert (code, "already sent by an operator" in text) == (2, True)
        assert (await give(capsys, "send", "0123456789ab"))[0] == 2
        [sent] = await asyncio.to_thread(list_drafts, capsys, "--state", "sent")
        assert sent["decided_by"] == "an operator"
        assert await asyncio.to_thread(list_drafts, capsys) == []
        assert await asyncio.to_thread(list_drafts, capsys, "--state", "all") == [sent]
    assert await asyncio.to_thread(entry, ["why", "-c", FILE]) == 0
    shown = capsys.readouterr().out
    assert f"draft {draft_id}: sent by an operator" in shown
    assert "'Good day.'" in shown


@pytest.mark.parametrize("draft_id", ["../../reload", "0123.1", "DRAFT"])
def test_an_unknown_draft_is_a_mistake_of_the_user(draft_id: str, capsys: Out) -> None:
    assert entry(["drafts", "send", draft_id, "-c", FILE]) == 2
    assert "`bot drafts list` shows those that wait" in capsys.readouterr().err


def test_an_unknown_state_of_drafts_is_answered_with_the_states(capsys: Out) -> None:
    assert entry(["drafts", "list", "--state", "open", "-c", FILE]) == 2
    assert (
        "--state 'open': there are waiting, sent, dropped, replaced, withdrawn, expired, all" in capsys.readouterr().err
    )
