"""What happened in each run, written into the log in one piece when the run is over."""

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
MAX_LISTED = 100  # of each sort in one run
CALL_FIELDS = tuple(field.name for field in fields(ModelCall))
UNFINISHED = "it has not ended"


@dataclass(slots=True)
class RunRecord:
    """What has happened in a run so far; the errors of actions and evaluators, blank where they went well."""

    actions: list[dict[str, Any]] = field(default_factory=list)
    evaluators: list[dict[str, Any]] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=list)


class RunLogs(Service):
    """The runs that are under way, each with its course, and the log entries that are to be written.

    Entries are written a few at a time and may be lost with the process; receipts are not.
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
    """Begin to note."""
    agent.services[RunLogs].running[event.run_id] = RunRecord()


@on(ActionStarted)
def action_started(agent: Agent, event: ActionStarted) -> None:
    """Note an action; until it is heard of again, it has not ended."""
    if run_record := agent.services[RunLogs].running.get(event.run_id):
        _start_step(run_record.actions, event.action)


@on(ActionCompleted)
def action_completed(agent: Agent, event: ActionCompleted) -> None:
    """Note how it went."""
    if run_record := agent.services[RunLogs].running.get(event.run_id):
        result = event.result
        _end_step(
            run_record.actions,
            result.action,
            "" if result.success else result.error or result.text or "failed",
        )


@on(EvaluatorStarted)
def evaluator_started(agent: Agent, event: EvaluatorStarted) -> None:
    """Note an evaluator, likewise."""
    if run_record := agent.services[RunLogs].running.get(event.run_id):
        _start_step(run_record.evaluators, event.evaluator)


@on(EvaluatorCompleted)
def evaluator_completed(agent: Agent, event: EvaluatorCompleted) -> None:
    """Note how it went."""
    if run_record := agent.services[RunLogs].running.get(event.run_id):
        _end_step(run_record.evaluators, event.evaluator, event.error)


@on(ModelUsed)
def model_used(agent: Agent, event: ModelUsed) -> None:
    """Note a call with its run; one that belongs to none (a task's, a post's) is an entry by itself."""
    body = {name: getattr(event.call, name) for name in CALL_FIELDS}
    run_record = agent.services[RunLogs].running.get(event.run_id) if event.run_id else None
    if run_record is None:
        agent.services[RunLogs].entries.add(LogEntry(MODEL_CALL, body))
    elif len(run_record.models) < MAX_LISTED:
        run_record.models.append(body)


@on(RunEnded)
def run_ended(agent: Agent, event: RunEnded) -> None:
    """Write it down: one entry a run, which may be lost in a power cut; the receipt is not."""
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
