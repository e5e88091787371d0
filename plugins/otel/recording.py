"""What is noted while the bot works, as events come in: small values that a thread later turns into telemetry.

A note holds no text of people unless content is captured.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from bot import Agent, Receipt, Turn, new_id
from bot.events import DeliveryFinished, MessageClosed, ModelUsed, TurnEnded
from bot.models import ModelCall, TextRequest, TextResult
from bot.platform import Delivery, LogLine, current_run

MAX_SPANS = 200  # of one turn
MAX_NOTES = 10_000  # that wait for the collector; the oldest are dropped
EXCLUDED_LOGGERS = "opentelemetry"  # what sending itself logs


@dataclass(frozen=True, slots=True)
class CallContent:
    """The prompt of a call as it was sent, and what the model answered; noted only where content is captured."""

    request: TextRequest
    result: TextResult | None


class TurnNote(NamedTuple):
    """The steps of a turn as its trace has them, and its model calls: when each began and ended, and their content.

    `turn_id` is that of the turn which answered in the end. The times of steps and calls are seconds of the clock
    that stood at `started` at `started_at`. `contents` is empty unless content is captured.
    """

    turn_id: UUID
    is_superseded: bool
    receipt: Receipt
    started_at: datetime | None
    started: float
    spans: Sequence[tuple[str, str, float, float, str]]
    calls: Sequence[ModelCall]
    call_times: Sequence[tuple[float, float]]
    contents: Sequence[CallContent | None]


class DeliveryNote(NamedTuple):
    """A part of a reply, and when it was finished."""

    delivery: Delivery
    finished_at: datetime


class CallNote(NamedTuple):
    """A model call that belongs to no message; `id` is for its trace."""

    id: UUID
    call: ModelCall
    ended_at: datetime


class LogNote(NamedTuple):
    """A line of the log, and the turn within which it was written."""

    line: LogLine
    turn_id: UUID | None


Note = Receipt | TurnNote | DeliveryNote | CallNote | LogNote


class Recorder:
    """Collects notes of one agent until they are taken. Other threads may take them, and may write lines of the log."""

    def __init__(self, agent: Agent, *, captures_content: bool) -> None:
        self._agent = agent
        self._captures_content = captures_content
        self._notes = deque[Note](maxlen=MAX_NOTES)

    def take(self) -> list[Note]:
        """Return the notes in their order, and forget them."""
        notes = []
        while self._notes:
            notes.append(self._notes.popleft())
        return notes

    def on_closed(self, event: MessageClosed) -> None:
        """Note the outcome of a message."""
        self._notes.append(event.receipt)

    def on_turn(self, event: TurnEnded) -> None:
        """Note the steps of a turn."""
        turn, turn_input = event.turn, event.turn.inputs[-1]
        final, trace = _find_final(turn), turn.trace
        contents: Sequence[CallContent | None] = ()
        if self._captures_content:
            contents = [_content_of(call.request, call.result) for call in trace.calls]
        self._notes.append(
            TurnNote(
                final.id,
                final is not turn,
                turn_input.receipt,
                trace.started_at,
                trace.started,
                trace.spans[:MAX_SPANS],
                tuple(turn_input.calls),
                [(call.started, call.ended) for call in trace.calls],
                contents,
            )
        )

    def on_delivery(self, event: DeliveryFinished) -> None:
        """Note what became of a part."""
        self._notes.append(DeliveryNote(event.delivery, self._agent.clock()))

    def on_model(self, event: ModelUsed) -> None:
        """Note a model call that no turn will report."""
        if event.run_id is None:
            self._notes.append(CallNote(new_id(), event.call, self._agent.clock()))

    def on_line(self, line: LogLine) -> None:
        """Note a line of the log, but none about sending."""
        if not line.logger.startswith(EXCLUDED_LOGGERS):
            run = current_run.get()
            self._notes.append(LogNote(line, None if run is None else run.id))


def _content_of(request: object, result: object) -> CallContent | None:
    if not isinstance(request, TextRequest):
        return None
    return CallContent(request, result if isinstance(result, TextResult) else None)


def _find_final(turn: Turn) -> Turn:
    """Return the turn that took over the messages of this one, or itself."""
    while turn.superseded_by is not None:
        turn = turn.superseded_by
    return turn
