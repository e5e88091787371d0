"""What is learnt from a turn, once the room's floor is free again."""

import asyncio

from bot.agent import Agent
from bot.boundary import Failure, contained
from bot.components.evaluator import Evaluator
from bot.domain.events import (
    EmbeddingCompleted,
    EmbeddingFailed,
    EmbeddingRequested,
    EvaluatorCompleted,
    EvaluatorStarted,
)
from bot.domain.memory import Memory
from bot.errors import ModelError
from bot.models.types import ModelType
from bot.registry import Registry
from bot.text import is_blank
from bot.turn import Turn

DEADLINE = 60.0


def has_lessons(agent: Agent) -> bool:
    """Tell whether anything is there that learns from turns."""
    return bool(agent.catalog.evaluators) or agent.models.serves(ModelType.TEXT_EMBEDDING)


async def evaluate(turn: Turn, registry: Registry, *, was_to_be_answered: bool) -> None:
    """Run the evaluators that have something to look at; their failures reach nobody."""
    async with asyncio.TaskGroup() as group:
        for evaluator in registry.evaluators.values():
            if was_to_be_answered or evaluator.spec.always_run:
                group.create_task(_run(turn, evaluator))


async def _run(turn: Turn, evaluator: Evaluator) -> None:
    agent, name = turn.agent, evaluator.spec.name
    wanted = await contained(evaluator.wants(turn), what=f"validating {name}", deadline=DEADLINE)
    if isinstance(wanted, Failure) or not wanted:
        return
    agent.events.emit(EvaluatorStarted(agent.id, turn.id, turn.room.id, name))
    result = await contained(evaluator(turn), what=f"evaluator {name}", deadline=DEADLINE)
    error = result.cause if isinstance(result, Failure) else ""
    agent.events.emit(EvaluatorCompleted(agent.id, turn.id, turn.room.id, name, error))


async def embed(turn: Turn, message: Memory) -> None:
    """Give a message, and what was said to it, their vectors; without any handler nothing is done."""
    agent = turn.agent
    if not agent.models.serves(ModelType.TEXT_EMBEDDING):
        return
    memories = [one for one in (message, *turn.replies) if not is_blank(one.content.text)]
    if not memories:
        return
    for memory in memories:
        agent.events.emit(EmbeddingRequested(agent.id, memory.id))
    try:
        result = await agent.models.embed([memory.content.text for memory in memories])
        if len(result.vectors) != len(memories):
            raise ModelError(f"{len(result.vectors)} vectors for {len(memories)} texts")
    except ModelError as error:
        for memory in memories:
            agent.events.emit(EmbeddingFailed(agent.id, memory.id, str(error)))
        return
    for memory, vector in zip(memories, result.vectors, strict=True):
        await agent.store.memories.set_embedding(memory.id, vector, result.model)
        agent.events.emit(EmbeddingCompleted(agent.id, memory.id))
