"""A confirmed action runs once, whatever ends the process, and what became of it is said in its room."""

import asyncio
from dataclasses import replace

import pytest

from bot import ActionResult, ChannelType, ChoiceRequest, Effect, Plugin, Task, TaskTag, Turn, action, derived_id
from bot.background.maintenance import ConfirmedActions
from bot.domain.ledger import Step, StepState
from bot.prompts import Authority
from bot.testing import AgentHarness, ScriptedModel, make_message, model_answer, running_agent
from bot.text import user_text
from tests.plugins.bootstrap.obeying import Obedient, run_due, waiting

RUNS: list[str] = []


@action("PAY", "Pay.", effect=Effect.UNSAFE)
async def pay(turn: Turn, amount: int) -> ActionResult:
    RUNS.append(f"{amount} by {turn.author.name}")
    return ActionResult(text=f"paid {amount}", authors=())


payments = Plugin("payments", "Pays.", actions=[pay])


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    RUNS.clear()


async def ask(harness: AgentHarness, obedient: Obedient) -> Task:
    """Request a payment; return its task after the confirmation."""
    obedient.does("PAY", amount=5)
    await harness.send("Ada, good morning", kind=ChannelType.GROUP)
    [task] = await waiting(harness)
    request = ChoiceRequest.from_metadata(task.metadata)
    return request.choose(task, "confirm", derived_id("test", "entity", "Alice"), harness.agent.clock())


async def test_a_task_that_runs_again_does_nothing_again() -> None:
    obedient = Obedient()
    async with running_agent(payments, model=obedient.model) as harness:
        task = await ask(harness, obedient)
        worker = ConfirmedActions(harness.agent_runtime.registry).worker
        for _ in range(3):
            await worker(harness.agent, task)
        await harness.agent.outbox.drain(5.0)
        assert RUNS == ["5 by Alice"]
        assert len(harness.texts) == 2  # the question and one report
        assert len(await harness.agent.store.memories.by_turn(derived_id(task.id, "confirmed"))) == 2


async def test_a_run_that_a_crash_has_ended_is_not_repeated_and_reported_as_unknown() -> None:
    obedient = Obedient()
    async with running_agent(payments, model=obedient.model) as harness:
        task = await ask(harness, obedient)
        turn_id = derived_id(task.id, "confirmed")
        begun = Step(turn_id, "action:0:PAY", "action", StepState.INTENDED, "unsafe", recorded_at=harness.agent.clock())
        await harness.agent.store.ledger.save_step(begun)
        await ConfirmedActions(harness.agent_runtime.registry).worker(harness.agent, task)
        await harness.agent.outbox.drain(5.0)
        assert RUNS == []
        assert "Nothing was done: " not in harness.texts[-1]
        assert harness.texts[-1] == user_text("actions.unknown")


async def test_what_a_plugins_action_returned_is_reported_in_the_characters_words() -> None:
    obedient = Obedient()
    async with running_agent(payments, model=obedient.model) as harness:
        task = await ask(harness, obedient)
        obedient.does()
        await harness.agent.store.tasks.save_task(task)
        await run_due(harness)
        assert harness.texts[-1] == "Very well."
        obedient.does()
        await harness.send("Ada, and now?", kind=ChannelType.GROUP)
        assert "(your action PAY returned, shown only to you): paid 5" in harness.model.requests[-1].prompt


@pytest.mark.parametrize("gone", ["message", "action"])
async def test_without_its_message_or_its_plugin_nothing_is_done_and_that_is_reported(gone: str) -> None:
    obedient = Obedient()
    async with running_agent(payments, model=obedient.model) as harness:
        task = await ask(harness, obedient)
        registry = harness.agent_runtime.registry
        if gone == "message":
            request = ChoiceRequest.from_metadata(task.metadata)
            operation = {**request.operation, "message": str(derived_id("gone"))}
            task = replace(task, metadata={**task.metadata, "change": operation})
        else:
            request = ChoiceRequest.from_metadata(task.metadata)
            task = replace(task, metadata={**task.metadata, "change": {**request.operation, "action": "GONE"}})
        await ConfirmedActions(registry).worker(harness.agent, task)
        await harness.agent.outbox.drain(5.0)
        assert RUNS == []
        assert harness.texts[-1].startswith("Nothing was done: ")


async def test_an_answer_that_is_resumed_after_a_crash_does_not_ask_again() -> None:
    answer = model_answer("", actions=["PAY"], parameters={"amount": "5"})
    async with running_agent(payments, model=ScriptedModel(answer)) as harness:
        receipt = await harness.send("Ada, good morning", kind=ChannelType.GROUP)
        assert receipt.turn_id is not None
        step = (await harness.agent.store.ledger.steps(receipt.turn_id))["action:0:PAY"]
        assert step.state is StepState.DONE
        assert step.result["text"] == "asked for confirmation; nothing has been changed yet"
        [task] = await waiting(harness)
        assert TaskTag.AWAITING_CHOICE in task.tags


async def test_stop_ends_a_confirmed_action_that_takes_long() -> None:
    begun = asyncio.Event()

    @action("EXPORT", "Export.", authority=Authority.confirmed(), deadline=600)
    async def export(turn: Turn) -> None:
        begun.set()
        await asyncio.Event().wait()

    model = ScriptedModel(model_answer("", actions=["EXPORT"]))
    async with running_agent(Plugin("exports", "Exports.", actions=[export]), model=model) as harness:
        await harness.send("Export it")
        await harness.send("yes")
        async with asyncio.timeout(10):
            await begun.wait()
        message = make_message("", sent_at=harness.agent.clock())
        stopped = harness.agent_runtime.handle.edits.stop_room(message.room.id, message.author.id)
        assert list(stopped.values()) == [("EXPORT",)]
        await run_due(harness)
        assert await harness.agent.store.tasks.tasks() == []
        assert harness.texts[-1] == user_text("choices.done", choice="confirm")
