"""Evaluators: when they run, and that their failures affect nothing else."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bot.domain.events import EvaluatorCompleted, EvaluatorStarted, Event
from bot.pipeline import commit as commit_module
from bot.pipeline.commit import evaluate
from bot.plugin_system.components import Evaluator, evaluator
from bot.plugin_system.plugin import Plugin
from bot.plugin_system.registry import Registry
from bot.testing import AgentHarness, make_turn
from bot.turn import Turn


def looking(name: str, look: Callable[[Turn], None], **details: Any) -> Evaluator:
    @evaluator(name, "Looks.", **details)
    async def handler(turn: Turn) -> None:
        look(turn)

    return handler


async def run(turn: Turn, *evaluators: Evaluator, was_to_be_answered: bool = True) -> list[Event]:
    events: list[Event] = []

    async def hear(event: Event) -> None:
        events.append(event)

    turn.agent.events.subscribe(Event, hear)
    await evaluate(turn, Registry([Plugin("some", evaluators=evaluators)]), should_reply=was_to_be_answered)
    await turn.agent.events.wait_idle()
    return events


async def wants(turn: Turn) -> bool:
    return "look" in turn.message.content.text


@pytest.mark.parametrize(("text", "count"), [("look here", 1), ("hello", 0)])
async def test_an_evaluator_runs_if_its_condition_holds(agent_harness: AgentHarness, text: str, count: int) -> None:
    looked: list[Turn] = []
    turn = make_turn(agent_harness.agent, text)
    events = await run(turn, looking("LOOK", looked.append, when=wants))
    assert looked == [turn] * count
    assert [type(event) for event in events] == [EvaluatorStarted, EvaluatorCompleted] * count


async def test_only_always_run_evaluators_see_unanswered_messages(agent_harness: AgentHarness) -> None:
    looked: list[str] = []
    always = looking("ALWAYS", lambda turn: looked.append("always"), always_run=True)
    other = looking("OTHER", lambda turn: looked.append("other"))
    await run(make_turn(agent_harness.agent, "hi"), always, other, was_to_be_answered=False)
    assert looked == ["always"]


async def test_a_failed_evaluator_is_reported_and_the_others_run(agent_harness: AgentHarness) -> None:
    looked: list[Turn] = []

    def fail(turn: Turn) -> None:
        raise SystemExit(1)

    events = await run(make_turn(agent_harness.agent, "hi"), looking("BAD", fail), looking("GOOD", looked.append))
    ends = {event.evaluator: event.error for event in events if isinstance(event, EvaluatorCompleted)}
    assert ends == {"BAD": "SystemExit: 1", "GOOD": ""}
    assert len(looked) == 1


async def test_an_evaluator_that_hangs_is_stopped(agent_harness: AgentHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "EVALUATOR_TIMEOUT", 0.01)

    @evaluator("SLOW", "Never ends.")
    async def slow(turn: Turn) -> None:
        await asyncio.Event().wait()

    events = await run(make_turn(agent_harness.agent, "hi"), slow)
    assert [event.error for event in events if isinstance(event, EvaluatorCompleted)] == ["no answer within 0.01 s"]


class Undecided:
    """A value that is neither true nor false, as an array of several numbers."""

    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


async def undecided_later(turn: Turn) -> Any:
    return Undecided()


@pytest.mark.parametrize("when", [lambda turn: Undecided(), undecided_later], ids=["plain", "async"])
async def test_a_condition_without_a_truth_value_is_logged_with_plugin_and_name_and_the_others_run(
    agent_harness: AgentHarness, caplog: pytest.LogCaptureFixture, when: Any
) -> None:
    looked: list[Turn] = []
    odd, good = looking("ODD", looked.append, when=when), looking("GOOD", looked.append)
    events = await run(make_turn(agent_harness.agent, "hi"), odd, good)
    assert [event.evaluator for event in events if isinstance(event, EvaluatorCompleted)] == ["GOOD"]
    assert "validating ODD of the plugin some failed: ValueError: neither true nor false" in caplog.text
