"""One attempt to call a handler: deadlines, result validation."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite
from typing import Any

from bot.concurrency.isolation import CancellationScope
from bot.domain.ledger import ModelCall
from bot.errors import ModelBusy, ModelError, ModelTooSlow
from bot.models.handler import ModelHandler, PendingCall, R, StreamRelay
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageResult,
    ModelRequest,
    SpeechResult,
    TextRequest,
    TextResult,
)
from bot.models.usage import CallProgress, build_model_call, current_call
from bot.receipts.trace import TracedCall, current_trace
from bot.text import sanitize_text

Record = Callable[[ModelCall], None]
Reserve = Callable[[ModelHandler, PendingCall[Any]], Awaitable[tuple[Record, ModelRequest]]]
MAX_TEXT_LENGTH = 262_144
MAX_TOOL_CALLS = 64


@dataclass(frozen=True, slots=True)
class CallTimeouts:
    """Seconds an attempt may take: until the first piece of a text, between two pieces, for each token of its limit.

    A result that is not streamed, such as a picture or a description, may take twice the first.
    """

    first: float = 120.0
    token: float = 30.0
    slowest_token: float = 2.0

    def whole(self) -> float:
        """Return the seconds for a result that is not streamed."""
        return 2 * self.first


class CallTimer:
    """The deadlines of one attempt. `first` are the seconds until the first piece, once the attempt is `started`."""

    def __init__(self, timeout: asyncio.Timeout, timeouts: CallTimeouts, first: float, max_tokens: int | None) -> None:
        self._timeout = timeout
        self._timeouts = timeouts
        self._first = first
        self._total = inf if max_tokens is None else max_tokens * timeouts.slowest_token
        self._end = inf
        self._time = asyncio.get_running_loop().time
        self.started_at = self._time()
        self.first_piece_at: float | None = None
        self.cause = ""

    def start(self) -> None:
        """Start the time until the first piece."""
        if self.first_piece_at is None and not self._timeout.expired():
            self.started_at = self._time()
            self._timeout.reschedule(self.started_at + self._first)
            self.cause = f"no answer within {self._first:g} s"

    def extend(self) -> None:
        """Extend the deadline after a piece."""
        if self._timeout.expired():
            return
        now = self._time()
        if self.first_piece_at is None:
            self.first_piece_at, self._end = now, now + self._total
        pause_end = now + self._timeouts.token
        self._timeout.reschedule(min(pause_end, self._end))
        self.cause = f"no data for {self._timeouts.token:g} s"
        if pause_end > self._end:
            self.cause = f"not finished within {self._total:g} s after its first piece"


@dataclass(slots=True)
class Attempt:
    """One attempt: the seconds until its first piece, and the queue of a server on this machine.

    `last_model` is the model that answered last. After it, `timer` has its times and `call` is its record.
    """

    first_seconds: float
    queue: "ServerQueue | None" = None
    last_model: str = ""
    timer: CallTimer | None = None
    call: ModelCall | None = None


class ServerQueue:
    """The running attempts at one server on this machine, in order.

    Such a server may work on one request after the other: an attempt waits for its first piece only from the end of
    those before it.
    """

    def __init__(self) -> None:
        self._timers: list[CallTimer] = []

    @contextmanager
    def wait(self, timer: CallTimer) -> Iterator[None]:
        """Start the timer when it is first in the queue; it leaves the queue at the end of the block."""
        self._timers.append(timer)
        if self._timers[0] is timer:
            timer.start()
        try:
            yield
        finally:
            is_first = self._timers[0] is timer
            self._timers.remove(timer)
            if is_first and self._timers:
                self._timers[0].start()


async def attempt_call(
    handler: ModelHandler, pending: PendingCall[R], timeouts: CallTimeouts, reserve: Reserve, attempt: Attempt
) -> R:
    """Call a handler once, after its cost is reserved; the limit of its answer may be lower than requested.

    A call without a result counts for the model that the handler has noted, else for that of the `attempt`.
    Raises ModelBusy if another attempt may succeed, ModelTooSlow if none will, BudgetSpent if it may not be paid for,
    ModelError for any other failure of the handler.
    """
    record, request = await reserve(handler, pending)
    started_at = time.monotonic()
    cancellation = CancellationScope()
    result: R | None = None
    error = "cancelled"
    progress = CallProgress(attempt.last_model)
    token = current_call.set(progress)
    try:
        async with asyncio.timeout(None) as timeout:
            timer = attempt.timer = CallTimer(timeout, timeouts, attempt.first_seconds, _max_tokens(request))
            with (attempt.queue or ServerQueue()).wait(timer):
                async with StreamRelay(pending.output, partial(_note_piece, timer, progress)) as relay:
                    output = await handler.handle(_with_relay(request, relay))
        result = validate_result(output, request, pending.result_type, handler.name)
        error = ""
    except ModelError as exception:
        error = str(exception)
        raise
    except TimeoutError as exception:
        error = f"{handler.name}: TimeoutError: {exception}"
        if timeout.expired():
            error = f"{handler.name}: {timer.cause}"
        # A server on this machine would begin again with what it has just not finished.
        raise (ModelBusy if attempt.queue is None else ModelTooSlow)(error) from None
    except BaseException as exception:  # a handler is plugin code: any exception is a failure of its model
        error = f"{handler.name}: {type(exception).__name__}: {exception}"
        raise ModelError(error) from exception
    else:
        return result
    finally:
        if cancellation.requested:
            error = "cancelled"
        with suppress(ValueError):  # a call stopped by force ends in another context
            current_call.reset(token)
        ended_at = time.monotonic()
        if (trace := current_trace.get()) is not None:
            sent, given = (request, result) if isinstance(request, TextRequest) else (None, None)
            trace.calls.append(TracedCall(started_at, ended_at, sent, given, trace.composed))
        was_stopped = cancellation.requested or timeout.expired()
        attempt.call = build_model_call(
            handler, pending.kind, request, result, ended_at - started_at, error, progress, was_stopped=was_stopped
        )
        record(attempt.call)
        if cancellation.requested:  # also if the handler swallowed the cancellation
            raise asyncio.CancelledError


def _max_tokens(request: ModelRequest) -> int | None:
    return request.max_tokens if isinstance(request, TextRequest) else None


def _note_piece(timer: CallTimer, progress: CallProgress, text: str) -> None:
    timer.extend()
    progress.note_piece(text)


def _with_relay(request: ModelRequest, relay: StreamRelay) -> ModelRequest:
    """Return a request for a text with the relay as its sink: each piece shows that the model is at work."""
    return replace(request, sink=relay) if isinstance(request, TextRequest) else request


def validate_result(result: object, request: ModelRequest, result_type: type[R], name: str) -> R:
    """Return the result of a handler, with bounded text; raises ModelError if it is invalid."""
    if not isinstance(result, result_type):
        raise ModelError(f"{name}: returned {type(result).__name__} instead of {result_type.__name__}")
    if isinstance(result, TextResult):
        if not isinstance(result.text, str):
            raise ModelError(f"{name}: returned a text of type {type(result.text).__name__}")
        text, tool_calls = sanitize_text(result.text, MAX_TEXT_LENGTH), result.tool_calls[:MAX_TOOL_CALLS]
        is_bounded = text == result.text and len(tool_calls) == len(result.tool_calls)
        return result if is_bounded else replace(result, text=text, tool_calls=tool_calls)
    if isinstance(result, ImageResult) and not result.data and not result.url:
        raise ModelError(f"{name}: returned an image without data and URL")
    if isinstance(result, SpeechResult) and not result.audio:
        raise ModelError(f"{name}: returned empty audio")
    if isinstance(result, EmbeddingResult) and isinstance(request, EmbeddingRequest):
        _check_vectors(result, len(request.texts), name)
    return result


def _check_vectors(result: EmbeddingResult, count: int, name: str) -> None:
    if len(result.vectors) != count:
        raise ModelError(f"{name}: returned {len(result.vectors)} vectors for {count} texts")
    if len({len(vector) for vector in result.vectors}) > 1:
        raise ModelError(f"{name}: returned vectors of different dimensions")
    if not all(vector and all(map(isfinite, vector)) for vector in result.vectors):
        raise ModelError(f"{name}: returned a vector that is empty or not finite")
