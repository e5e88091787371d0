"""Embed memories without a vector of the present model, in the background.

The store itself is the queue: it lists what an outage, a crash or a change of model left without a vector.
New messages are embedded in the pipeline and do not wait for this.

Log each run as one entry when it ends.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from bot import Agent, Memory, Service, on
from bot.events import (
    ActionCompleted,
    ActionStarted,
    EmbeddingCompleted,
    EmbeddingRequested,
    EvaluatorCompleted,
    EvaluatorStarted,
    ModelUsed,
    RunEnded,
    RunStarted,
)
from bot.models import ModelCall, ModelError, ModelRefused, ModelType
from bot.platform import Backoff, Batcher, TaskSet
from bot.store import LogEntry, LogKind, StoreUnavailable
from bot.text import is_blank

logger = logging.getLogger(__name__)

PROBE_TEXT = "Hello"
BATCH_SIZE = 32
LOG_INTERVAL = 1000
BATCH_DELAY_SECONDS = 1.0
PAGE_DELAY_SECONDS = 0.05
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 5.0, 600.0  # while the provider fails


class EmbeddingBackfill(Service):
    """Adds missing vectors at start, and after an embedding call failed or another model answered it."""

    uses_models = True

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.model = ""
        self._wake_event = asyncio.Event()
        self._wake_event.set()
        self._refused: set[UUID] = set()
        self._tasks = TaskSet("adding missing vectors")
        self._unsubscribe: Callable[[], None] = lambda: None

    async def __aenter__(self) -> Self:
        if self.agent.models.has_handler_for(ModelType.TEXT_EMBEDDING):
            self._unsubscribe = self.agent.events.subscribe(ModelUsed, self._on_model_used)
            self._tasks.start(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop; the rest is found at the next start."""
        self._unsubscribe()
        await self._tasks.cancel()

    def _on_model_used(self, event: ModelUsed) -> None:
        """Scan again after an embedding call failed or another model than the first choice answered it."""
        call = event.call
        is_other = bool(self.model) and call.model != self.model
        if call.type == ModelType.TEXT_EMBEDDING.value and (call.error or is_other):
            self.wake()

    def wake(self) -> None:
        """Make the task scan the store again."""
        self._wake_event.set()

    async def fill(self) -> int:
        """Scan the whole store, newest first; return how many vectors were added.

        Raises ModelError if the first embedding handler fails or changes its model meanwhile.
        """
        embed, store = self.agent.models.embed, self.agent.store
        page = await store.memories.unembedded("")
        if not page.memories and page.before is None:
            return 0  # an empty store is not worth the call that finds the model's name
        self.model = (await embed([PROBE_TEXT], first_handler_only=True)).model
        count, cursor = 0, None
        while True:
            page = await store.memories.unembedded(self.model, cursor)
            pending = [
                memory
                for memory in page.memories
                if memory.id not in self._refused and not is_blank(memory.content.text)
            ]
            for start in range(0, len(pending), BATCH_SIZE):
                embedded = await self._embed(pending[start : start + BATCH_SIZE])
                if (count + embedded) // LOG_INTERVAL > count // LOG_INTERVAL:
                    logger.info("embedded %d messages and facts with %s so far", count + embedded, self.model)
                count += embedded
                await asyncio.sleep(BATCH_DELAY_SECONDS)
            cursor = page.before
            if cursor is None:
                return count
            await asyncio.sleep(PAGE_DELAY_SECONDS)

    async def _run(self) -> None:
        backoff, failures = Backoff(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS), 0
        while True:
            await self._wake_event.wait()
            self._wake_event.clear()
            try:
                if count := await self.fill():
                    logger.info("added missing vectors to %d messages and facts", count)
                failures = 0
            except Exception as error:  # boundary: an unexpected error must not end the task either
                failures += 1
                delay = backoff.delay(failures)
                is_unexpected = not isinstance(error, ModelError | StoreUnavailable)
                logger.info("embedding failed, next try in %.1f s: %s", delay, error, exc_info=is_unexpected)
                self.wake()
                await asyncio.sleep(delay)

    async def _embed(self, memories: Sequence[Memory]) -> int:
        """Return how many of a batch were embedded; a refused batch is retried one by one."""
        agent = self.agent
        try:
            result = await agent.models.embed([memory.content.text for memory in memories], first_handler_only=True)
        except ModelRefused as error:
            if len(memories) > 1:
                return sum([await self._embed([memory]) for memory in memories])
            logger.info("memory %s gets no vector: %s", memories[0].id, error)
            self._refused.add(memories[0].id)
            return 0
        if result.model != self.model:
            raise ModelError(f"the embedding model changed from {self.model} to {result.model}")
        for memory in memories:
            agent.events.emit(EmbeddingRequested(agent.id, memory.id))
        vectors = zip((memory.id for memory in memories), result.vectors, strict=True)
        await agent.store.memories.set_embeddings(dict(vectors), result.model)
        for memory in memories:
            agent.events.emit(EmbeddingCompleted(agent.id, memory.id))
        return len(memories)


MODEL_CALL = "model_call"  # the kind of log entry for a call outside of any run
MAX_LISTED = 100  # of each kind in one run
CALL_FIELDS = tuple(field.name for field in fields(ModelCall))
UNFINISHED = "it has not ended"


@dataclass(slots=True)
class RunRecord:
    """The actions, evaluators and model calls of a run so far; `error` is blank after success."""

    actions: list[dict[str, Any]] = field(default_factory=list)
    evaluators: list[dict[str, Any]] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=list)


class RunLogs(Service):
    """The records of unfinished runs, and the log entries to write.

    Entries are written in batches and may be lost if the process dies; receipts are not.
    """

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.running: dict[UUID, RunRecord] = {}
        self.entries = Batcher(agent.store.logs.log_all, label="log entries")

    async def __aenter__(self) -> Self:
        await self.entries.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.entries.__aexit__(kind, error, trace)


@on(RunStarted)
def run_started(agent: Agent, event: RunStarted) -> None:
    """Start the record of a run."""
    agent.services[RunLogs].running[event.run_id] = RunRecord()


@on(ActionStarted)
def action_started(agent: Agent, event: ActionStarted) -> None:
    """Record that an action started."""
    if run_record := agent.services[RunLogs].running.get(event.run_id):
        _start_step(run_record.actions, event.action)


@on(ActionCompleted)
def action_completed(agent: Agent, event: ActionCompleted) -> None:
    """Record the result of an action."""
    if run_record := agent.services[RunLogs].running.get(event.run_id):
        result = event.result
        _end_step(run_record.actions, result.action, "" if result.success else result.error or result.text or "failed")


@on(EvaluatorStarted)
def evaluator_started(agent: Agent, event: EvaluatorStarted) -> None:
    """Record that an evaluator started."""
    if run_record := agent.services[RunLogs].running.get(event.run_id):
        _start_step(run_record.evaluators, event.evaluator)


@on(EvaluatorCompleted)
def evaluator_completed(agent: Agent, event: EvaluatorCompleted) -> None:
    """Record the result of an evaluator."""
    if run_record := agent.services[RunLogs].running.get(event.run_id):
        _end_step(run_record.evaluators, event.evaluator, event.error)


@on(ModelUsed)
def model_used(agent: Agent, event: ModelUsed) -> None:
    """Record a model call in its run; a call outside of runs (of a task or a post) is logged by itself."""
    body = {name: getattr(event.call, name) for name in CALL_FIELDS}
    run_logs = agent.services[RunLogs]
    run_record = run_logs.running.get(event.run_id) if event.run_id else None
    if run_record is None:
        run_logs.entries.add(LogEntry(MODEL_CALL, body))
    elif len(run_record.models) < MAX_LISTED:
        run_record.models.append(body)


@on(RunEnded)
def run_ended(agent: Agent, event: RunEnded) -> None:
    """Log the run."""
    run_logs = agent.services[RunLogs]
    run_record = run_logs.running.pop(event.run_id, None) or RunRecord()
    body: dict[str, Any] = {
        "run_id": str(event.run_id),
        "message_id": str(event.message_id),
        "status": event.status.value,
        "outcome": event.outcome.value,
        "seconds": round(event.seconds, 3),
        "error": event.error,
        "actions": run_record.actions,
        "evaluators": run_record.evaluators,
        "models": run_record.models,
    }
    run_logs.entries.add(LogEntry(LogKind.RUN, body, event.room_id))


def _start_step(steps: list[dict[str, Any]], name: str) -> None:
    if len(steps) < MAX_LISTED:
        steps.append({"name": name, "error": UNFINISHED})


def _end_step(steps: list[dict[str, Any]], name: str, error: str) -> None:
    for step in steps:
        if step["name"] == name and step["error"] == UNFINISHED:
            step["error"] = error
            return
