"""`Run`: the work on one message, bracketed by RunStarted and RunEnded."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Hashable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from uuid import UUID

from bot.domain.events import ModelRetried, ModelUsed, RunEnded, RunStarted, RunStatus, RunTimedOut
from bot.domain.ledger import ModelCall, Outcome
from bot.errors import ModelError
from bot.event_bus import EventBus
from bot.models.handler import ModelHandler
from bot.models.router import FailedAttempts, OnRetry, failed_attempts
from bot.receipts import TurnTrace, current_trace
from bot.user_texts import use_language

STATUS_BY_OUTCOME = {
    Outcome.ANSWERED: RunStatus.COMPLETED,
    Outcome.IGNORED: RunStatus.IGNORED,
    Outcome.SUPERSEDED: RunStatus.SUPERSEDED,
    Outcome.CANCELLED: RunStatus.CANCELLED,
    Outcome.EXPIRED: RunStatus.CANCELLED,
}


@dataclass(slots=True, eq=False)
class Run:
    """The work on one message: who, where, the model calls so far, and the outcome.

    `token_id` is that of the access token with which the message was sent, empty without one. `languages` are
    those of texts to the author, the first that has a catalogue counts.
    """

    id: UUID
    room_id: UUID
    message_id: UUID
    author_id: UUID | None = None
    token_id: str = ""
    languages: tuple[str, ...] = ()
    outcome: Outcome = Outcome.RECEIVED
    error: str = ""
    calls: list[ModelCall] = field(default_factory=list)
    trace: TurnTrace | None = None


current_run: ContextVar[Run | None] = ContextVar("current_run", default=None)


@asynccontextmanager
async def track_run(run: Run, events: EventBus, agent_id: UUID, *, timeout: float) -> AsyncIterator[Run]:
    """Emit RunStarted and RunEnded around the work on a message, however it ends.

    `timeout` is in seconds; reaching it cancels the work and, where there is none yet, sets the outcome to
    failed. Any other error, and a cancellation from outside, is raised again.
    """
    events.emit(RunStarted(agent_id, run.id, run.room_id, run.message_id))
    started = time.monotonic()
    status: RunStatus | None = None
    token, trace_token = current_run.set(run), current_trace.set(run.trace)
    failed_token = failed_attempts.set(FailedAttempts())
    try:
        with use_language(*run.languages):
            async with asyncio.timeout(timeout) as limit:
                yield run
    except TimeoutError as error:
        if not limit.expired():
            status, run.error = RunStatus.ERROR, f"TimeoutError: {error}"
            raise
        status = RunStatus.TIMEOUT
        if not run.outcome.is_final:
            run.outcome = Outcome.FAILED
        run.error = f"no end within RESPONSE_TIMEOUT ({timeout:g} s)"
        events.emit(RunTimedOut(agent_id, run.id, run.room_id, run.message_id, time.monotonic() - started))
    except asyncio.CancelledError:
        status = RunStatus.CANCELLED
        raise
    except BaseException as error:  # recorded in the run's report, and raised again
        status, run.error = RunStatus.ERROR, f"{type(error).__name__}: {error}"
        raise
    finally:
        current_run.reset(token)
        current_trace.reset(trace_token)
        failed_attempts.reset(failed_token)
        seconds = time.monotonic() - started
        status = status or STATUS_BY_OUTCOME.get(run.outcome, RunStatus.ERROR)
        events.emit(RunEnded(agent_id, run.id, run.room_id, run.message_id, status, run.outcome, seconds, run.error))


def usage_recorder(
    events: EventBus, agent_id: UUID, add_cost: Callable[[ModelCall, Run | None], ModelCall]
) -> Callable[[ModelCall], None]:
    """Return the function that adds a model call to the current run and emits ModelUsed.

    `add_cost` returns the call with its cost.
    """

    def record(call: ModelCall) -> None:
        run = current_run.get()
        call = add_cost(call, run)
        if run is not None:
            run.calls.append(call)
        events.emit(ModelUsed(agent_id, call, run.id if run else None, run.room_id if run else None))

    return record


def list_call_owners() -> Collection[Hashable]:
    """Return for whom model calls are made: the room, the person and the token of the current run."""
    run = current_run.get()
    owners = (run.room_id, run.author_id, run.token_id) if run is not None else ()
    return tuple(owner for owner in owners if owner)


def retry_reporter(events: EventBus, agent_id: UUID) -> OnRetry:
    """Return the function that emits ModelRetried for the current run."""

    def report(handler: ModelHandler, error: ModelError, delay: float) -> None:
        run = current_run.get()
        run_id, room_id = (run.id, run.room_id) if run else (None, None)
        events.emit(ModelRetried(agent_id, handler.name, str(error), delay, run_id, room_id))

    return report
