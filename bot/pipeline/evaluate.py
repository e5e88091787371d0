"""After the reply: embeddings and evaluators."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bot.agent import Agent
from bot.concurrency.isolation import Failure, asked, begun, contained
from bot.domain.events import (
    EmbeddingCompleted,
    EmbeddingFailed,
    EmbeddingRequested,
    EvaluatorCompleted,
    EvaluatorStarted,
)
from bot.domain.memory import Memory
from bot.errors import ModelError, ModelRefused
from bot.models.types import ModelType
from bot.plugin_system.components import Evaluator
from bot.plugin_system.registry import Registry
from bot.text import is_blank
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


MOST = 32  # turns in one call


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """What one turn wants vectors for."""

    memories: tuple[Memory, ...]


class Vectors:
    """Gives messages their vectors, one call at a time.

    Whoever comes first asks for everybody who waits by then. What gets none, because nobody answers or the
    process ends, is found in the store later.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._calling = asyncio.Lock()
        self._waiting: list[_Wanted] = []

    async def give(self, turn: Turn, message: Memory) -> None:
        """Give a message, and what was said to it, their vectors; without any handler nothing is done."""
        agent = self._agent
        if not agent.models.serves(ModelType.TEXT_EMBEDDING):
            return
        memories = tuple(one for one in (message, *turn.replies) if not is_blank(one.content.text))
        if not memories:
            return
        for memory in memories:
            agent.events.emit(EmbeddingRequested(agent.id, memory.id))
        wanted = _Wanted(memories)
        self._waiting.append(wanted)
        try:
            async with self._calling:
                while wanted in self._waiting:
                    await self._ask(self._waiting[:MOST])
        finally:
            if wanted in self._waiting:
                self._waiting.remove(wanted)

    async def _ask(self, batch: Sequence[_Wanted]) -> None:
        """Ask for a batch; where one of several is refused, each is asked for alone."""
        memories = [memory for wanted in batch for memory in wanted.memories]
        try:
            await self._embed(memories)
        except ModelRefused as error:
            if len(memories) == 1:
                self._tell(memories, error)
            else:
                for memory in memories:
                    await self._embed_alone(memory)
        except ModelError as error:
            self._tell(memories, error)
        for wanted in batch:
            if wanted in self._waiting:
                self._waiting.remove(wanted)

    async def _embed_alone(self, memory: Memory) -> None:
        try:
            await self._embed([memory])
        except ModelError as error:
            self._tell([memory], error)

    async def _embed(self, memories: Sequence[Memory]) -> None:
        agent = self._agent
        result = await agent.models.embed([memory.content.text for memory in memories])
        keep = agent.store.memories.set_embedding
        pairs = zip(memories, result.vectors, strict=True)
        await asyncio.gather(*(keep(memory.id, vector, result.model) for memory, vector in pairs))
        for memory in memories:
            agent.events.emit(EmbeddingCompleted(agent.id, memory.id))

    def _tell(self, memories: Sequence[Memory], error: ModelError) -> None:
        for memory in memories:
            self._agent.events.emit(EmbeddingFailed(self._agent.id, memory.id, str(error)))
