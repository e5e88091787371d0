"""One attempt to call a handler: timeouts, result validation."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import Any

from bot.concurrency.isolation import CancellationScope
from bot.domain.ledger import ModelCall
from bot.errors import ModelBusy, ModelError
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
Reserve = Callable[[ModelHandler, PendingCall[Any]], Awaitable[Record]]
MAX_TEXT_LENGTH = 262_144
MAX_TOOL_CALLS = 64


@dataclass(frozen=True, slots=True)
class CallTimeouts:
    """Seconds an attempt may take: until the first piece, between two pieces, in total."""

    first: float = 60.0
    stall: float = 30.0
    total: float = 120.0


class _CallTimer:
    """The timeout of one attempt, extended by every piece."""

    def __init__(self, timeout: asyncio.Timeout, timeouts: CallTimeouts) -> None:
        self._timeout = timeout
        self._timeouts = timeouts
        self._time = asyncio.get_running_loop().time
        self._end = self._time() + max(timeouts.first, timeouts.total)
        self.cause = f"no answer within {timeouts.first:g} s"

    def extend(self) -> None:
        """Extend the timeout after a piece."""
        if self._timeout.expired():
            return
        stall_end = self._time() + self._timeouts.stall
        self._timeout.reschedule(min(stall_end, self._end))
        self.cause = f"no data for {self._timeouts.stall:g} s"
        if stall_end > self._end:
            self.cause = f"not finished within {self._timeouts.total:g} s"


async def attempt_call(
    handler: ModelHandler, pending: PendingCall[R], timeouts: CallTimeouts, reserve: Reserve, last_model: str = ""
) -> R:
    """Call a handler once, after its cost is reserved.

    A call without a result counts for the model that the handler has noted, else for its `last_model`.
    Raises ModelBusy if another attempt may succeed, BudgetSpent if it may not be paid for, ModelError for any
    other failure of the handler.
    """
    record = await reserve(handler, pending)
    started_at = time.monotonic()
    cancellation = CancellationScope()
    result: R | None = None
    error = "cancelled"
    request = pending.request
    progress = CallProgress(last_model)
    token = current_call.set(progress)
    try:
        async with asyncio.timeout(timeouts.first) as timeout:
            timer = _CallTimer(timeout, timeouts)
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
        raise ModelBusy(error) from None
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
        record(build_model_call(handler, pending.kind, request, result, ended_at - started_at, error, progress))
        if cancellation.requested:  # also if the handler swallowed the cancellation
            raise asyncio.CancelledError


def _note_piece(timer: _CallTimer, progress: CallProgress, text: str) -> None:
    timer.extend()
    progress.note_piece(text)


def _with_relay(request: ModelRequest, relay: StreamRelay) -> ModelRequest:
    """Return the request with the relay as its sink, if it has a sink."""
    if isinstance(request, TextRequest) and request.sink is not None:
        return replace(request, sink=relay)
    return request


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
