"""Rules of what comes after: evaluators and vectors, whose failures reach nobody."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bot.agent import Agent
from bot.components.evaluator import Evaluator, evaluator
from bot.domain.events import (
    EmbeddingCompleted,
    EmbeddingFailed,
    EmbeddingRequested,
    EvaluatorCompleted,
    EvaluatorStarted,
    Event,
)
from bot.errors import ModelUnavailable
from bot.models.types import EmbeddingRequest, EmbeddingResult
from bot.pipeline import evaluate as stage_of_the_road
from bot.pipeline.evaluate import embed, evaluate
from bot.plugin import Plugin
from bot.registry import Registry
from bot.testing import ScriptedModel, Stage, make_turn, on_stage
from bot.turn import Turn


def looking(name: str, look: Callable[[Turn], None], **details: Any) -> Evaluator:
    @evaluator(name, "Looks.", **details)
    async def handler(turn: Turn) -> None:
        look(turn)

    return handler


async def run(turn: Turn, *evaluators: Evaluator, was_to_be_answered: bool = True) -> list[Event]:
    told: list[Event] = []

    async def hear(event: Event) -> None:
        told.append(event)

    turn.agent.events.subscribe(Event, hear)
    await evaluate(
        turn, Registry([Plugin("some", evaluators=evaluators)]), was_to_be_answered=was_to_be_answered
    )
    await turn.agent.events.settle()
    return told


async def wants(turn: Turn) -> bool:
    return "look" in turn.message.content.text


@pytest.mark.parametrize(("text", "count"), [("look here", 1), ("hello", 0)])
async def test_one_looks_when_there_is_something_to_see(stage: Stage, text: str, count: int) -> None:
    looked: list[Turn] = []
    turn = make_turn(stage.agent, text)
    told = await run(turn, looking("LOOK", looked.append, when=wants))
    assert looked == [turn] * count
    assert [type(event) for event in told] == [EvaluatorStarted, EvaluatorCompleted] * count


async def test_of_what_was_left_unanswered_only_those_hear_that_always_run(stage: Stage) -> None:
    looked: list[str] = []
    always = looking("ALWAYS", lambda turn: looked.append("always"), always_run=True)
    other = looking("OTHER", lambda turn: looked.append("other"))
    await run(make_turn(stage.agent, "hi"), always, other, was_to_be_answered=False)
    assert looked == ["always"]


async def test_one_that_fails_is_told_of_and_the_others_look(stage: Stage) -> None:
    looked: list[Turn] = []

    def fail(turn: Turn) -> None:
        raise SystemExit(1)

    told = await run(make_turn(stage.agent, "hi"), looking("BAD", fail), looking("GOOD", looked.append))
    ends = {event.evaluator: event.error for event in told if isinstance(event, EvaluatorCompleted)}
    assert ends == {"BAD": "SystemExit: 1", "GOOD": ""}
    assert len(looked) == 1


async def test_one_that_hangs_is_stopped(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_of_the_road, "DEADLINE", 0.01)

    @evaluator("SLOW", "Never ends.")
    async def slow(turn: Turn) -> None:
        await asyncio.Event().wait()

    told = await run(make_turn(stage.agent, "hi"), slow)
    assert [event.error for event in told if isinstance(event, EvaluatorCompleted)] == [
        "no answer within 0.01 s"
    ]


async def test_the_message_and_what_was_said_to_it_get_their_vectors() -> None:
    told: list[Event] = []

    async def hear(event: Event) -> None:
        told.append(event)

    async with on_stage(model=ScriptedModel(embeds=True)) as stage:
        stage.agent.events.subscribe(Event, hear)
        turn = make_turn(stage.agent, "Hello")
        await stage.agent.store.memories.add([turn.message])
        reply = await turn.reply("Hi")
        assert reply is not None
        await embed(turn, turn.message)
        kept = await stage.agent.store.memories.memories([turn.message.id, reply.id])
        await stage.agent.events.settle()
    assert [memory.embedding for memory in kept.values()] == [(5.0, 1.0), (2.0, 1.0)]
    assert {memory.embedding_model for memory in kept.values()} == {"scripted-2"}
    for kind in (EmbeddingRequested, EmbeddingCompleted):
        assert {event.memory_id for event in told if isinstance(event, kind)} == set(kept)


@pytest.mark.parametrize("text", ["", "\u200b"])
async def test_nothing_gets_no_vector(text: str) -> None:
    async with on_stage(model=ScriptedModel(embeds=True)) as stage:
        turn = make_turn(stage.agent, text)
        await embed(turn, turn.message)
        assert await stage.agent.store.memories.memories([turn.message.id]) == {}


class Unable(ScriptedModel):
    """A model whose vectors are too few, or do not come."""

    def __init__(self, fault: str) -> None:
        super().__init__(embeds=True)
        self.fault = fault

    async def _embed(self, agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
        if self.fault == "down":
            raise ModelUnavailable("no vectors today")
        return EmbeddingResult((), "m")


@pytest.mark.parametrize("fault", ["down", "too few"])
async def test_without_vectors_listeners_are_told_and_nothing_else_happens(fault: str) -> None:
    told: list[EmbeddingFailed] = []

    async def hear(event: EmbeddingFailed) -> None:
        told.append(event)

    async with on_stage(model=Unable(fault)) as stage:
        stage.agent.events.subscribe(EmbeddingFailed, hear)
        turn = make_turn(stage.agent, "Hello")
        await stage.agent.store.memories.add([turn.message])
        await embed(turn, turn.message)
        await stage.agent.events.settle()
        [kept] = (await stage.agent.store.memories.memories([turn.message.id])).values()
    assert [event.memory_id for event in told] == [turn.message.id]
    assert kept.embedding is None
