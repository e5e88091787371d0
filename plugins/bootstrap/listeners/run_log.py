"""Log each run as one entry when it ends."""

from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from bot import Agent, Service, on
from bot.events import (
    ActionCompleted,
    ActionStarted,
    EvaluatorCompleted,
    EvaluatorStarted,
    ModelUsed,
    RunEnded,
    RunStarted,
)
from bot.models import ModelCall
from bot.platform import Batcher
from bot.store import LogEntry, LogKind

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
    run_record = agent.services[RunLogs].running.get(event.run_id) if event.run_id else None
    if run_record is None:
        agent.services[RunLogs].entries.add(LogEntry(MODEL_CALL, body))
    elif len(run_record.models) < MAX_LISTED:
        run_record.models.append(body)


@on(RunEnded)
def run_ended(agent: Agent, event: RunEnded) -> None:
    """Log the run."""
    run_record = agent.services[RunLogs].running.pop(event.run_id, None) or RunRecord()
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
    agent.services[RunLogs].entries.add(LogEntry(LogKind.RUN, body, event.room_id))


def _start_step(steps: list[dict[str, Any]], name: str) -> None:
    if len(steps) < MAX_LISTED:
        steps.append({"name": name, "error": UNFINISHED})


def _end_step(steps: list[dict[str, Any]], name: str, error: str) -> None:
    for step in steps:
        if step["name"] == name and step["error"] == UNFINISHED:
            step["error"] = error
            return
