"""What is learnt from a turn, once the room's floor is free again."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from bot.agent import Agent
from bot.concurrency.isolation import Failure, asked, begun, contained
from bot.domain.events import EvaluatorCompleted, EvaluatorStarted
from bot.models.types import ModelType
from bot.plugin_system.components import Evaluator
from bot.plugin_system.registry import Registry
from bot.turn import Turn

DEADLINE = 60.0


def has_lessons(agent: Agent) -> bool:
    """Tell whether anything is there that learns from turns."""
    return bool(agent.catalog.evaluators) or agent.models.serves(ModelType.TEXT_EMBEDDING)


async def evaluate(turn: Turn, registry: Registry, *, was_to_be_answered: bool) -> None:
    """Run the evaluators that have something to look at; their failures reach nobody."""
    wanted: list[tuple[Evaluator, Awaitable[bool] | bool]] = []
    for one in registry.evaluators.values():
        if not (was_to_be_answered or one.spec.always_run):
            continue
        given = True if one.when is None else begun(partial(one.when, turn), what=_what(one))
        if given and not isinstance(given, Failure):
            wanted.append((one, given))
    if not wanted:
        return
    async with asyncio.TaskGroup() as group:
        for one, given in wanted:
            group.create_task(_run(turn, one, given))


async def _run(turn: Turn, evaluator: Evaluator, wanted: Awaitable[bool] | bool) -> None:
    agent, name = turn.agent, evaluator.spec.name
    if isinstance(wanted, Awaitable):
        given = await contained(wanted, what=_what(evaluator), deadline=DEADLINE)
        if isinstance(given, Failure) or not given:
            return
    agent.events.emit(EvaluatorStarted(agent.id, turn.id, turn.room.id, name))
    call: Callable[[], Awaitable[None] | None] = partial(evaluator.handler, turn)
    result = await asked(call, what=f"evaluator {name}", deadline=DEADLINE)
    error = result.cause if isinstance(result, Failure) else ""
    agent.events.emit(EvaluatorCompleted(agent.id, turn.id, turn.room.id, name, error))


def _what(evaluator: Evaluator) -> str:
    return f"validating {evaluator.spec.name}"
