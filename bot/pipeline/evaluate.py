"""The evaluate stage: embeddings and evaluators, after the reply."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from bot.concurrency.tasks import Batcher, Failure, call_isolated, crash_point, log_failure, run_isolated
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
from bot.turn import Agent, Turn, TurnInput

logger = logging.getLogger(__name__)
EVALUATOR_TIMEOUT = 60.0
EMBEDDING_TIMEOUT = 120.0
MAX_BATCH_TURNS = 32  # in one embedding call
MAX_RETRIES = 3
RETRY_COUNT_TTL = timedelta(days=30)


def has_evaluation_work(agent: Agent) -> bool:
    """Whether the agent has evaluators or embeds messages."""
    return bool(agent.components.catalog.evaluators) or agent.models.has_handler_for(ModelType.TEXT_EMBEDDING)


async def evaluate(turn: Turn, registry: Registry, *, should_reply: bool) -> None:
    """Run the evaluators whose condition holds, concurrently; failures are logged."""
    selected: list[tuple[Evaluator, Awaitable[bool] | bool]] = []
    for evaluator in registry.evaluators.values():
        if not (should_reply or evaluator.spec.always_run):
            continue
        condition: Awaitable[bool] | bool | Failure = True
        if evaluator.when is not None:
            try:
                condition = evaluator.when(turn)
            except BaseException as error:  # plugin code may raise anything, SystemExit included
                condition = log_failure(error, label=_condition_label(evaluator))
        if condition and not isinstance(condition, Failure):
            selected.append((evaluator, condition))
    if not selected:
        return
    async with asyncio.TaskGroup() as group:
        for evaluator, condition in selected:
            trusted = id(evaluator) in registry.trusted_ids
            group.create_task(_run_evaluator(turn, evaluator, condition, trusted=trusted))


async def _run_evaluator(turn: Turn, evaluator: Evaluator, condition: Awaitable[bool] | bool, *, trusted: bool) -> None:
    agent, name = turn.agent, evaluator.spec.name
    if isinstance(condition, Awaitable):
        is_needed = await run_isolated(
            condition, label=_condition_label(evaluator), timeout=EVALUATOR_TIMEOUT, trusted=trusted
        )
        if isinstance(is_needed, Failure) or not is_needed:
            return
    agent.events.emit(EvaluatorStarted(agent.id, turn.id, turn.room.id, name))
    call: Callable[[], Awaitable[None] | None] = partial(evaluator.handler, turn)
    started = time.monotonic()
    result = await call_isolated(call, label=f"evaluator {name}", timeout=EVALUATOR_TIMEOUT, trusted=trusted)
    error = result.cause if isinstance(result, Failure) else ""
    turn.trace.spans.append(("evaluator", name, started, time.monotonic(), error))
    agent.events.emit(EvaluatorCompleted(agent.id, turn.id, turn.room.id, name, error))


def _condition_label(evaluator: Evaluator) -> str:
    return f"validating {evaluator.spec.name}"


@dataclass(frozen=True, slots=True, eq=False)
class _EmbeddingJob:
    """The memories of one turn that wait for embeddings."""

    memories: tuple[Memory, ...]


class Embeddings:
    """Embeds messages of one agent with one model call at a time; turns that wait meanwhile form a batch.

    Messages that get no embedding, because of an error or a restart, are found in the store later.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._lock = asyncio.Lock()
        self._waiting: list[_EmbeddingJob] = []

    async def embed(self, turn: Turn, message: Memory) -> None:
        """Embed a message and the replies to it; does nothing without a handler for embeddings."""
        agent = self._agent
        if not agent.models.has_handler_for(ModelType.TEXT_EMBEDDING):
            return
        memories = tuple(item for item in (message, *turn.replies) if not is_blank(item.content.text))
        if not memories:
            return
        for memory in memories:
            agent.events.emit(EmbeddingRequested(agent.id, memory.id))
        job = _EmbeddingJob(memories)
        self._waiting.append(job)
        try:
            async with self._lock:
                while job in self._waiting:
                    await self._run_batch(self._waiting[:MAX_BATCH_TURNS])
        finally:
            if job in self._waiting:
                self._waiting.remove(job)

    async def _run_batch(self, batch: Sequence[_EmbeddingJob]) -> None:
        """Embed a batch; if the request is refused, embed each message alone."""
        memories = [memory for job in batch for memory in job.memories]
        try:
            await self._embed_batch(memories)
        except ModelRefused as error:
            if len(memories) == 1:
                self._emit_failures(memories, error)
            else:
                for memory in memories:
                    await self._embed_alone(memory)
        except ModelError as error:
            self._emit_failures(memories, error)
        for job in batch:
            if job in self._waiting:
                self._waiting.remove(job)

    async def _embed_alone(self, memory: Memory) -> None:
        try:
            await self._embed_batch([memory])
        except ModelError as error:
            self._emit_failures([memory], error)

    async def _embed_batch(self, memories: Sequence[Memory]) -> None:
        agent = self._agent
        result = await agent.models.embed([memory.content.text for memory in memories])
        vectors = zip((memory.id for memory in memories), result.vectors, strict=True)
        await agent.store.memories.set_embeddings(dict(vectors), result.model)
        for memory in memories:
            agent.events.emit(EmbeddingCompleted(agent.id, memory.id))

    def _emit_failures(self, memories: Sequence[Memory], error: ModelError) -> None:
        for memory in memories:
            self._agent.events.emit(EmbeddingFailed(self._agent.id, memory.id, str(error)))


class Evaluation:
    """The evaluate stage of one agent: embeddings, evaluators, and the mark that they have run.

    `evaluated` collects receipt ids and writes them in batches; the pipeline's owner enters and leaves it.

    What an earlier process did not finish is evaluated one turn after another, and each try is counted before
    it begins: the evaluation itself may be what ended that process.
    """

    def __init__(self, agent: Agent, registry: Registry) -> None:
        self._agent = agent
        self._registry = registry
        self._embeddings = Embeddings(agent)
        self._retry_lock = asyncio.Lock()
        self.evaluated = Batcher(agent.store.ledger.mark_evaluated, label="marks of evaluated messages")

    async def evaluate(self, turn: Turn, turn_input: TurnInput, *, should_reply: bool) -> None:
        """Embed the messages of a turn and run its evaluators, unless the budget is spent, or too little is left."""
        agent = self._agent
        if agent.budget.find_reached_limit(turn.room.id, turn_input.author.id) is None:
            if agent.models.has_handler_for(ModelType.TEXT_EMBEDDING):
                embedding = self._embeddings.embed(turn, turn_input.message)
                await run_isolated(embedding, label="embedding", timeout=EMBEDDING_TIMEOUT)
            crash_point("eval.pre")
            if turn.degradation is None or turn.degradation.is_evaluated:
                await evaluate(turn, self._registry, should_reply=should_reply)
        self.mark_evaluated(turn_input)

    async def evaluate_again(self, turn: Turn, turn_input: TurnInput, *, should_reply: bool) -> None:
        """Evaluate what an earlier process did not finish, unless MAX_RETRIES processes died while they did this."""
        cache, key = self._agent.store.cache, f"evaluation retries:{turn_input.receipt.id}"
        async with self._retry_lock:
            retries = await cache.get(key) or 0
            if retries >= MAX_RETRIES:
                cause = f"the process died {retries} times while this was done again"
                logger.error("message %s is not evaluated: %s", turn_input.message.id, cause)
                self.mark_evaluated(turn_input)
                return
            await cache.set(key, retries + 1, expires_at=self._agent.clock() + RETRY_COUNT_TTL)
            try:
                await self.evaluate(turn, turn_input, should_reply=should_reply)
            finally:  # stopped is not died
                await cache.delete(key)

    def mark_evaluated(self, turn_input: TurnInput) -> None:
        """Note that the evaluators have run; for a message still open the commit stores it."""
        turn_input.is_evaluated = True
        receipt = turn_input.receipt
        if receipt.outcome.is_final and not receipt.is_evaluated:
            turn_input.receipt = replace(receipt, is_evaluated=True)
            self.evaluated.add(receipt.id)
