"""What a turn notes, and the steps, prompts and memories that a receipt shows of it."""

import asyncio
from typing import Any

import pytest

from bot import Plugin, ProviderResult, Turn, provider
from bot.domain.ids import new_id
from bot.receipts import TRACE_KEY, TurnTrace, read_sections, read_steps
from bot.testing import ScriptedModel, running_agent

REMEMBERED = new_id()


@provider("WEATHER", "The weather.", position=20)
async def weather(turn: Turn) -> ProviderResult:
    return ProviderResult("# Weather\nIt rains.", data={"memories": [(REMEMBERED, 0.82)]}, authors=())


@provider("BROKEN", "Fails.", position=21)
async def broken(turn: Turn) -> ProviderResult:
    raise RuntimeError("no sensor")


async def noted(harness: Any, turn_id: Any) -> Any:
    for _ in range(200):
        if (step := (await harness.agent.store.ledger.steps(turn_id)).get(TRACE_KEY)) is not None:
            return step.result
        await asyncio.sleep(0.01)
    pytest.fail("nothing was noted")


async def test_a_turn_notes_its_steps_in_their_order_with_what_contains_them() -> None:
    async with running_agent(Plugin("sky", providers=[weather, broken])) as harness:
        receipt = await harness.send("Will it rain?")
    body = await noted(harness, receipt.turn_id)
    steps = read_steps(body, receipt.received_at)
    names = [step.name for step in steps]
    assert names[:2] == ["Stored", "Gate"]
    providers = names.index("Providers")
    assert steps[names.index("WEATHER")].parent == providers
    failed = steps[names.index("BROKEN")]
    assert (failed.state, "no sensor" in failed.note) == ("failed", True)
    [call] = [step for step in steps if step.kind == "model"]
    assert (call.name, call.call, call.state) == ("reply", 0, "done")
    assert names.index("reply") < names.index("Commit")
    assert all(step.start_ms <= step.end_ms for step in steps)
    assert body["gate"] == receipt.rule
    assert body["memories"] == [[str(REMEMBERED), 0.82]]


async def test_the_sections_of_a_prompt_are_the_prompt_as_it_was_sent() -> None:
    model = ScriptedModel("Yes.")
    async with running_agent(Plugin("sky", providers=[weather]), model=model) as harness:
        receipt = await harness.send("Will it rain?")
    [prompt] = (await noted(harness, receipt.turn_id))["prompts"]
    sections = read_sections(prompt)
    [request] = model.requests
    assert [section.text for section in sections if section.name == "System"] == [request.system]
    assert ("WEATHER", "# Weather\nIt rains.") in [(section.name, section.text) for section in sections]
    sent = "\n".join(section.text for section in sections if section.name not in ("System", "Functions"))
    assert sent.split() == request.prompt.split()


async def test_a_turn_without_a_model_call_stores_nothing() -> None:
    async with running_agent() as harness:
        receipt = await harness.send("   ")
        assert not (await harness.agent.store.ledger.steps(receipt.turn_id or new_id())).get(TRACE_KEY)
    assert TurnTrace().calls == []
