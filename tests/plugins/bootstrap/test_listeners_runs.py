"""A run has one entry in the log."""

from collections.abc import Sequence
from typing import Any

import pytest

from bot import ActionResult, Effect, Plugin, Turn, action, evaluator, new_id
from bot.events import ActionStarted
from bot.models import ModelType, ModelUnavailable, Purpose, TextRequest
from bot.store import InMemoryStore, LogEntry
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent
from plugins.bootstrap.listeners import RunLogs


@action("WORK", "Works.", effect=Effect.PURE)
async def work(turn: Turn) -> ActionResult:
    return ActionResult(text="done")


@action("FAIL", "Fails.", effect=Effect.PURE)
async def fail(turn: Turn) -> ActionResult:
    return ActionResult(success=False, error="no tools")


@evaluator("LOOK", "Looks.")
async def look(turn: Turn) -> None:
    return None


@evaluator("STUMBLE", "Stumbles.")
async def stumble(turn: Turn) -> None:
    raise ValueError("no ground")


BUSY = Plugin("busy", actions=[work, fail], evaluators=[look, stumble])


async def entries(harness: AgentHarness, kind: str) -> list[dict[str, Any]]:
    async with harness.agent.services[RunLogs].entries:  # what is gathered is written at its end
        await harness.agent.events.wait_idle()
    return [dict(entry) for entry in await harness.agent.store.logs.logs(kind=kind)]


async def after_a_message(model: ScriptedModel, *plugins: Plugin) -> tuple[Any, list[dict[str, Any]]]:
    """Process and evaluate a message; return its receipt and the log's entries of runs."""
    async with running_agent(*plugins, model=model) as harness:
        receipt = await harness.send("Work, please")
        store = harness.agent.store
    return receipt, [dict(entry) for entry in await store.logs.logs(kind="run")]


async def test_a_run_is_an_entry_with_its_actions_evaluators_and_model_calls() -> None:
    model = ScriptedModel([model_answer(actions=["WORK", "FAIL"]), model_answer("It failed.")])
    receipt, [entry] = await after_a_message(model, BUSY)
    body = entry["body"]
    assert entry["room_id"] == receipt.room_id
    assert (body["run_id"], body["message_id"]) == (str(receipt.turn_id), str(receipt.memory_id))
    assert (body["status"], body["outcome"], body["error"]) == ("completed", "answered", "")
    assert body["actions"] == [{"name": "WORK", "error": ""}, {"name": "FAIL", "error": "no tools"}]
    looked = {entry["name"]: entry["error"] for entry in body["evaluators"]}
    assert (looked["LOOK"], looked["STUMBLE"]) == ("", "ValueError: no ground")
    assert [call["purpose"] for call in body["models"]][:2] == [Purpose.REPLY.value, Purpose.SUMMARY.value]


async def test_a_run_that_fails_is_an_entry_with_the_failed_calls() -> None:
    def refuse(request: TextRequest) -> str:
        raise ModelUnavailable("out of order")

    _, [entry] = await after_a_message(ScriptedModel(refuse))
    assert entry["body"]["outcome"] == "failed"
    assert {call["error"] for call in entry["body"]["models"]} == {"out of order"}


async def test_messages_that_come_together_cost_a_single_write(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    store = InMemoryStore()

    async def counted(entries: Sequence[LogEntry]) -> None:
        written.append(len(entries))

    monkeypatch.setattr(store.logs, "log_all", counted)
    async with running_agent(BUSY, store=store) as harness:
        await harness.send("one")
        await harness.send("two")
    assert written == [2]


async def test_a_model_call_outside_of_any_run_is_an_entry_by_itself(agent_harness: AgentHarness) -> None:
    await agent_harness.agent.models.text(TextRequest("Say something"), ModelType.TEXT_SMALL)
    [entry] = await entries(agent_harness, "model_call")
    assert entry["body"]["type"] == ModelType.TEXT_SMALL.value
    assert await entries(agent_harness, "run") == []


async def test_events_of_an_unknown_run_are_ignored(agent_harness: AgentHarness) -> None:
    agent_harness.agent.events.emit(ActionStarted(agent_harness.agent.id, new_id(), new_id(), "LATE"))
    assert await entries(agent_harness, "run") == []
    assert agent_harness.agent.services[RunLogs].running == {}
