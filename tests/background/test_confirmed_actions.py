"""A confirmed action runs once, whatever ends the process, and what became of it is said in its room."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from bot import (
    ActionResult,
    ChannelType,
    ChoiceRequest,
    Effect,
    Plugin,
    Receipt,
    Task,
    TaskTag,
    Turn,
    action,
    derived_id,
)
from bot.background.maintenance import ConfirmedActions
from bot.cli.commands.why import build_report
from bot.domain.ids import new_id
from bot.domain.ledger import Step, StepState
from bot.models import Purpose
from bot.operate.conversations import ConversationReader
from bot.prompts import Authority
from bot.store import LogKind
from bot.testing import AgentHarness, ScriptedModel, make_message, model_answer, running_agent
from bot.text import user_text
from tests.plugins.bootstrap.obeying import Obedient, decisions, run_due, waiting

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
    return await confirmed_task(harness)


async def confirmed_task(harness: AgentHarness) -> Task:
    """Return the only task that waits, as it is once Alice has confirmed it."""
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


CAUSE = "cannot open postgres://admin:hunter2@10.0.0.5/prod for /srv/secret/file"


def gifts(
    ends: Callable[[], ActionResult], effect: Effect = Effect.UNSAFE, when: Callable[[Turn], bool] | None = None
) -> Plugin:
    """Return a plugin whose only action is always confirmed, and ends as given."""

    @action("SEND_GIFT", "Send a gift.", effect=effect, authority=Authority.confirmed(), when=when)
    async def send_gift(turn: Turn) -> ActionResult:
        return ends()

    return Plugin("gifts", "Sends gifts.", actions=[send_gift])


def raise_cause() -> ActionResult:
    raise RuntimeError(CAUSE)


async def confirm_gift(harness: AgentHarness) -> Receipt:
    """Request a gift and confirm it; return the receipt of the request."""
    receipt = await harness.send("Send Sarah a gift")
    await harness.send("yes")
    await run_due(harness)
    found = await harness.agent.store.ledger.receipt(receipt.id)
    assert found is not None
    return found


def gift_model(closing: str = "It is on its way.") -> ScriptedModel:
    """Return a model that asks for a gift, and then says the closing text."""
    asking = model_answer("", actions=["SEND_GIFT"])
    return ScriptedModel(lambda request: model_answer(closing) if request.purpose is Purpose.SUMMARY else asking)


@pytest.mark.parametrize("effect", [Effect.UNSAFE, Effect.PURE])
async def test_what_an_action_raised_is_for_the_operator_and_the_room_reads_that_it_is_uncertain(
    effect: Effect, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_agent(gifts(raise_cause, effect), model=gift_model()) as harness:
        receipt = await confirm_gift(harness)
        assert harness.texts[-1] == user_text("choices.failed")
        assert not any("Nothing was done" in text or "hunter2" in text for text in harness.texts)
        assert f"SEND_GIFT failed: RuntimeError: {CAUSE}" in receipt.notes
        assert CAUSE in caplog.text


async def test_what_an_action_raised_in_an_earlier_process_is_not_shown_either() -> None:
    async with running_agent(gifts(raise_cause), model=gift_model()) as harness:
        await harness.send("Send Sarah a gift")
        task = await confirmed_task(harness)
        entry = {"success": False, "text": "", "values": {}, "data": {}, "error": f"RuntimeError: {CAUSE}"}
        raised = Step(
            derived_id(task.id, "confirmed"),
            "action:0:SEND_GIFT",
            "action",
            StepState.DONE,
            "unsafe",
            {**entry, "is_error_internal": True},
            harness.agent.clock(),
        )
        await harness.agent.store.ledger.save_step(raised)
        await ConfirmedActions(harness.agent_runtime.registry).worker(harness.agent, task)
        await harness.agent.outbox.drain(5.0)
        assert harness.texts[-1] == user_text("choices.failed")


async def test_an_error_that_an_action_returned_is_shown() -> None:
    def refuse() -> ActionResult:
        return ActionResult(success=False, error="Sarah takes no gifts", authors=())

    async with running_agent(gifts(refuse), model=gift_model()) as harness:
        await confirm_gift(harness)
        assert harness.texts[-1] == "Nothing was done: Sarah takes no gifts."


async def test_what_a_condition_raised_is_not_shown() -> None:
    is_broken = False

    def is_open(turn: Turn) -> bool:
        if is_broken:
            raise RuntimeError(CAUSE)
        return True

    async with running_agent(gifts(ActionResult, when=is_open), model=gift_model()) as harness:
        receipt = await harness.send("Send Sarah a gift")
        is_broken = True
        task = await confirmed_task(harness)
        await ConfirmedActions(harness.agent_runtime.registry).worker(harness.agent, task)
        await harness.agent.outbox.drain(5.0)
        assert harness.texts[-1] == "Nothing was done: SEND_GIFT could not be checked."
        stored = await harness.agent.store.ledger.receipt(receipt.id)
        assert stored is not None
        assert any(CAUSE in note for note in stored.notes)


async def test_a_confirmed_run_is_in_the_receipt_of_its_request_the_decision_log_and_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    sent = partial(ActionResult, text="sent a gift to Sarah", authors=())
    async with running_agent(gifts(sent), model=gift_model()) as harness:
        receipt = await confirm_gift(harness)
        assert harness.texts[-1] == "It is on its way."
        assert [call.purpose for call in receipt.model_calls] == [Purpose.REPLY, Purpose.SUMMARY]
        assert receipt.notes[-2:] == ("SEND_GIFT was confirmed by its asker", "SEND_GIFT is done")
        waits = (False, "it waits for confirmation: it is always confirmed")
        assert await decisions(harness, "SEND_GIFT") == [waits, (True, "its asker has confirmed it")]
        entry, *_ = [
            item["body"]
            for item in await harness.agent.store.logs.logs(kind=LogKind.AUTHORIZATION)
            if item["body"]["action"] == "SEND_GIFT"
        ]
        assert entry["actors"] == [str(derived_id("test", "entity", "Alice"))]
        assert entry["event"] == str(receipt.memory_id)
        lines = list((await build_report(ConversationReader(harness.agent.store), receipt, new_id(), "Ada")).lines())
        assert "  SEND_GIFT is done" in lines
        assert any(line.startswith("  called scripted for summary: ") for line in lines)
        logged = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
        assert f"message {receipt.memory_id}: it was confirmed, and SEND_GIFT is done" in logged
        yes = (await harness.agent.store.ledger.receipts(limit=1))[0]
        assert f"the action that was confirmed is in the receipt of message {receipt.memory_id}" in yes.notes


async def test_a_run_that_is_repeated_is_noted_once() -> None:
    obedient = Obedient()
    async with running_agent(payments, model=obedient.model) as harness:
        task = await ask(harness, obedient)
        worker = ConfirmedActions(harness.agent_runtime.registry).worker
        for _ in range(2):
            await worker(harness.agent, task)
        [receipt] = await harness.agent.store.ledger.receipts()
        assert receipt.notes.count("PAY is done") == 1
        allowed = [reason for is_allowed, reason in await decisions(harness, "PAY") if is_allowed]
        assert allowed == ["its asker has confirmed it"]
