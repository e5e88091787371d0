"""Actions that take long: their deadline, what the room sees meanwhile, and what ends them."""

import asyncio
from dataclasses import replace

import pytest

from bot import ActionResult, Effect, Outcome, Plugin, Turn, action
from bot.domain.memory import PROGRESS_KEY
from bot.errors import PluginError
from bot.models import Purpose, TextRequest
from bot.pipeline import run_actions
from bot.plugin_system.components import Action
from bot.prompts import parse_history
from bot.receipts import TRACE_KEY
from bot.store import InMemoryStore
from bot.testing import RecordingAdapter, ScriptedModel, model_answer, running_agent
from bot.user_texts import user_text

ON_IT = user_text("actions.under_way")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report at once that an action is in progress."""
    monkeypatch.setattr(run_actions, "ACKNOWLEDGE_SECONDS", 0.0)
    monkeypatch.setattr(run_actions, "EDIT_SECONDS", 0.0)


class Export:
    """An action that waits to be released, with the steps that it reports."""

    def __init__(self, effect: Effect = Effect.UNSAFE) -> None:
        self.begun, self.released = asyncio.Event(), asyncio.Event()
        self.runs = 0

        @action("EXPORT", "Export everything.", effect=effect, deadline=1_800)
        async def export(turn: Turn) -> ActionResult:
            self.runs += 1
            self.turn = turn
            self.begun.set()
            await self.released.wait()
            return ActionResult(text="512 files exported", authors=())

        self.action: Action[[]] = export
        self.plugin = Plugin("exports", "Exports.", actions=[export])


def script(request: TextRequest) -> str:
    if request.purpose is Purpose.SUMMARY:
        return model_answer("All 512 files are there.")
    lines = [line.text for line in parse_history(request.prompt) if not line.is_agent]
    if lines and lines[-1] == "Export it":
        return model_answer("I do that.", actions=["REPLY", "EXPORT"])
    return model_answer("Hello.")


async def wait_edited(adapter: RecordingAdapter, text: str) -> None:
    for _ in range(10_000):
        if any(part.content.text == text for part in adapter.edited):
            return
        await asyncio.sleep(0)
    raise AssertionError(f"no message was edited to {text!r}")


async def test_an_action_that_takes_long_is_acknowledged_shows_its_progress_and_is_reported_in_the_end() -> None:
    export, adapter = Export(), RecordingAdapter(can_edit=True)
    async with running_agent(export.plugin, model=ScriptedModel(script), adapter=adapter) as harness:
        receipt = await harness.submit("Export it")
        assert await adapter.wait_until_sent(1) == [ON_IT]
        await harness.agent.outbox.drain(5.0)
        for text in ("100 of 512 files", "200 of 512 files"):
            export.turn.report_progress(text)
            await wait_edited(adapter, text)
            await harness.agent.outbox.drain(5.0)
        export.released.set()
        receipt = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await harness.agent.outbox.drain(5.0)
        assert receipt.outcome is Outcome.ANSWERED
        assert adapter.texts == [ON_IT, "All 512 files are there."]
        assert {part.replaces_external_id for part in adapter.edited} == {"sent-1"}


async def test_what_was_reported_last_is_shown_when_the_action_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_actions, "EDIT_SECONDS", 3_600.0)
    export, adapter = Export(), RecordingAdapter(can_edit=True)
    async with running_agent(export.plugin, model=ScriptedModel(script), adapter=adapter) as harness:
        receipt = await harness.submit("Export it")
        await adapter.wait_until_sent(1)
        await harness.agent.outbox.drain(5.0)
        for text in ("511 of 512 files", "512 of 512 files"):
            export.turn.report_progress(text)
        export.released.set()
        await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await harness.agent.outbox.drain(5.0)
        assert [part.content.text for part in adapter.edited] == ["512 of 512 files"]
        assert adapter.texts == [ON_IT, "All 512 files are there."]


async def test_the_progress_of_an_action_that_ends_soon_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_actions, "ACKNOWLEDGE_SECONDS", 3_600.0)
    export, adapter = Export(), RecordingAdapter(can_edit=True)
    async with running_agent(export.plugin, model=ScriptedModel(script), adapter=adapter) as harness:
        receipt = await harness.submit("Export it")
        await export.begun.wait()
        export.turn.report_progress("512 of 512 files")
        export.released.set()
        await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await harness.agent.outbox.drain(5.0)
        assert (adapter.texts, adapter.edited) == (["All 512 files are there."], [])


async def test_the_room_goes_on_while_an_action_takes_long() -> None:
    export = Export()
    async with running_agent(export.plugin, model=ScriptedModel(script)) as harness:
        receipt = await harness.submit("Export it")
        await harness.adapter.wait_until_sent(1)
        await harness.send("Good morning")
        export.released.set()
        await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await harness.agent.outbox.drain(5.0)
        assert harness.texts == [ON_IT, "Hello.", "All 512 files are there."]


async def test_deleting_the_message_cancels_its_action() -> None:
    export, store = Export(), InMemoryStore()
    async with running_agent(export.plugin, model=ScriptedModel(script), store=store) as harness:
        receipt = await harness.submit("Export it")
        await export.begun.wait()
        await harness.agent_runtime.handle.edits.delete_messages(receipt.room_id, [receipt.key.message_id])
        closed = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        assert closed.outcome is Outcome.CANCELLED
        assert (export.runs, export.turn.is_cancelled) == (1, True)
        await harness.send("Good morning")
        assert "All 512 files are there." not in harness.texts
    assert closed.turn_id is not None
    assert TRACE_KEY not in await store.ledger.steps(closed.turn_id)  # it has the deleted text


@pytest.mark.parametrize("effect", [Effect.UNSAFE, Effect.IDEMPOTENT])
async def test_a_long_action_that_a_crash_has_ended_is_repeated_or_reported_by_its_effect(effect: Effect) -> None:
    export, store = Export(effect), InMemoryStore()
    async with running_agent(export.plugin, model=ScriptedModel(script), store=store) as harness:
        receipt = await harness.submit("Export it")
        await harness.adapter.wait_until_sent(1)
        await harness.agent_runtime.inbox.processor.release()
    export.released.set()
    model = ScriptedModel(script)
    async with running_agent(export.plugin, model=model, store=store) as harness:
        closed = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await harness.agent.outbox.drain(5.0)
        [request] = model.requests_for(Purpose.SUMMARY)
    is_known = "- EXPORT: ok: 512 files exported" in request.prompt
    is_unknown = "- EXPORT: failed: outcome unknown" in request.prompt
    assert (export.runs, is_known, is_unknown) == ((1, False, True) if effect is Effect.UNSAFE else (2, True, False))
    assert closed.outcome is Outcome.ANSWERED
    memories = await store.memories.by_turn(closed.turn_id or closed.id)
    assert sum(PROGRESS_KEY in memory.metadata for memory in memories) == 1


@pytest.mark.parametrize("deadline", [0, -1, 1_801, float("nan")])
def test_a_deadline_is_at_most_half_an_hour(deadline: float) -> None:
    with pytest.raises(PluginError, match="action EXPORT: its deadline is"):
        action("EXPORT", "Export.", deadline=deadline)(Export().action.handler)


async def test_an_action_may_take_as_long_as_its_deadline_says() -> None:
    export = Export()
    quick = replace(export.action, spec=replace(export.action.spec, deadline=0.01))
    plugin = Plugin("exports", "Exports.", actions=[quick])
    async with running_agent(plugin, model=ScriptedModel(script)) as harness:
        receipt = await harness.send("Export it")
        assert "EXPORT failed: no answer within 0.01 s" in receipt.notes
