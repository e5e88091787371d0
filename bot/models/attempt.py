"""One call with deadlines; validates the result."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from bot.concurrency.isolation import Cancellation
from bot.domain.ledger import ModelCall
from bot.errors import ModelBusy, ModelError
from bot.models.handler import ModelHandler, Question, R, Relay
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageResult,
    ModelRequest,
    SpeechResult,
    TextRequest,
    TextResult,
)
from bot.models.usage import booked
from bot.text import tidy

Record = Callable[[ModelCall], None]
Reserve = Callable[[ModelHandler, Question[Any]], Awaitable[Record]]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How many seconds a try may take: until it begins to answer, between two pieces, in all."""

    first: float = 60.0
    stall: float = 30.0
    whole: float = 120.0


class _Limit:
    """The deadline of one try, moved on by every sign of life."""

    def __init__(self, timeout: asyncio.Timeout, deadlines: Deadlines) -> None:
        self._timeout = timeout
        self._deadlines = deadlines
        self._time = asyncio.get_running_loop().time
        self._end = self._time() + max(deadlines.first, deadlines.whole)
        self.cause = f"no answer within {deadlines.first:g} s"

    def move(self) -> None:
        """Note a sign of life."""
        if self._timeout.expired():
            return
        stalled = self._time() + self._deadlines.stall
        self._timeout.reschedule(min(stalled, self._end))
        self.cause = f"nothing more for {self._deadlines.stall:g} s"
        if stalled > self._end:
            self.cause = f"no end within {self._deadlines.whole:g} s"


async def attempt(handler: ModelHandler, question: Question[R], deadlines: Deadlines, reserve: Reserve) -> R:
    """Ask a handler once, when that may be paid for.

    Raises ModelBusy where another try may do, BudgetSpent where none is made, ModelError for anything else
    the handler does wrong.
    """
    record = await reserve(handler, question)
    started = time.monotonic()
    cancellation = Cancellation()
    result: R | None = None
    error = "cancelled"
    request = question.request
    try:
        async with asyncio.timeout(deadlines.first) as timeout:
            limit = _Limit(timeout, deadlines)
            async with Relay(question.showing, limit.move) as relay:
                given = await handler.handle(_shown(request, relay))
        result = fitting(given, request, question.wanted, handler.name)
        error = ""
    except ModelError as raised:
        error = str(raised)
        raise
    except TimeoutError as raised:
        error = f"{handler.name}: TimeoutError: {raised}"
        if timeout.expired():
            error = f"{handler.name}: {limit.cause}"
        raise ModelBusy(error) from None
    except BaseException as raised:  # a handler is a plugin's: what it raises is a failure of a model
        error = f"{handler.name}: {type(raised).__name__}: {raised}"
        raise ModelError(error) from raised
    else:
        return result
    finally:
        if cancellation.is_asked_for:
            error = "cancelled"
        record(booked(handler, question.kind, request, result, time.monotonic() - started, error))
        if cancellation.is_asked_for:  # also where the handler has swallowed it
            raise asyncio.CancelledError


def _shown(request: ModelRequest, relay: Relay) -> ModelRequest:
    """Have the pieces go through the relay, where anybody wants to see them."""
    if isinstance(request, TextRequest) and request.sink is not None:
        return replace(request, sink=relay)
    return request


LONGEST_ANSWER = 262_144
MOST_CALLS = 64


def fitting(given: object, request: ModelRequest, wanted: type[R], name: str) -> R:
    """Check what a handler gave, and bound it; raises ModelError."""
    if not isinstance(given, wanted):
        raise ModelError(f"{name}: gave {type(given).__name__}, not {wanted.__name__}")
    if isinstance(given, TextResult):
        if not isinstance(given.text, str):
            raise ModelError(f"{name}: gave a text that is {type(given.text).__name__}")
        text, calls = tidy(given.text, LONGEST_ANSWER), given.calls[:MOST_CALLS]
        is_bounded = text == given.text and len(calls) == len(given.calls)
        return given if is_bounded else replace(given, text=text, calls=calls)
    if isinstance(given, ImageResult) and not given.data and not given.url:
        raise ModelError(f"{name}: gave a picture without data and address")
    if isinstance(given, SpeechResult) and not given.audio:
        raise ModelError(f"{name}: gave a silence")
    if isinstance(given, EmbeddingResult) and isinstance(request, EmbeddingRequest):
        _check_vectors(given, len(request.texts), name)
    return given


def _check_vectors(given: EmbeddingResult, count: int, name: str) -> None:
    if len(given.vectors) != count:
        raise ModelError(f"{name}: gave {len(given.vectors)} vectors for {count} texts")
    if len({len(vector) for vector in given.vectors}) > 1:
        raise ModelError(f"{name}: gave vectors of several dimensions")
    if not all(vector and all(map(isfinite, vector)) for vector in given.vectors):
        raise ModelError(f"{name}: gave a vector that is empty or has a number that is none")
