"""`ModelHandler`, one pending call, relay of streamed text."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from bot.models.types import (
    EmbeddingResult,
    ImageResult,
    ModelInfo,
    ModelRequest,
    ModelResult,
    ModelType,
    SpeechResult,
    TextResult,
    TextSink,
)

logger = logging.getLogger(__name__)

MAX_STREAMED_LENGTH = 262_144  # characters; a model may never stop writing
R = TypeVar("R", TextResult, EmbeddingResult, ImageResult, SpeechResult)


class StreamOutput:
    """Passes streamed text to a sink, if there is one, and knows whether there is text to discard."""

    def __init__(self, sink: TextSink | None = None) -> None:
        self._sink = sink
        self._shown_length = 0

    async def write(self, text: str) -> None:
        """Pass on a piece; a sink that raised gets no more."""
        if self._sink is None or not text or self._shown_length >= MAX_STREAMED_LENGTH:
            return
        self._shown_length += len(text)
        await self._call_sink(partial(self._sink.write, text))

    async def restart(self) -> None:
        """Discard the text passed on so far."""
        if self._sink is None or not self._shown_length:
            return
        self._shown_length = 0
        await self._call_sink(self._sink.restart)

    async def _call_sink(self, call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except Exception:  # a sink is code of an adapter or plugin: its failure must not end the generation
            self._sink = None
            logger.warning("the rest of a text is not streamed: its sink failed", exc_info=True)


class StreamRelay(AbstractAsyncContextManager["StreamRelay"]):
    """The sink of one attempt: every piece resets the attempt's timer; after the attempt, pieces are ignored.

    An empty piece only resets the timer: the model is thinking or writing a tool call.
    """

    def __init__(self, output: StreamOutput, on_piece: Callable[[str], None]) -> None:
        self._output = output
        self._on_piece = on_piece
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self._output.restart()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True

    async def write(self, text: str) -> None:
        """Pass on the next piece."""
        if not self._is_closed:
            self._on_piece(text)
            await self._output.write(text)

    async def restart(self) -> None:
        """Start the text again."""
        if not self._is_closed:
            await self._output.restart()


ModelFunction = Callable[[Any], Awaitable[ModelResult]]


@dataclass(frozen=True, slots=True)
class ModelHandler:
    """One implementation of a model type; a higher priority is called first.

    `can_call_tools` is asked for each prompt, because some servers tell only later what their model can do;
    `describe_model` before each call.
    """

    type: ModelType
    handle: ModelFunction
    name: str
    priority: int = 0
    can_call_tools: bool | Callable[[], bool] = False
    can_write_json: Callable[[], bool] | None = None
    describe_model: Callable[[], Awaitable[ModelInfo]] | None = None

    def writes_json(self) -> bool:
        """Return whether the server makes the model write JSON by a schema, as far as is known."""
        return self.can_write_json is not None and self.can_write_json()

    def calls_tools(self) -> bool:
        """Return whether the model can call tools now."""
        return self.can_call_tools() if callable(self.can_call_tools) else self.can_call_tools


@dataclass(frozen=True, slots=True)
class PendingCall(Generic[R]):
    """One request to the handlers of a type: the expected class of its result, and the output of streamed
    pieces.

    A call is retried at most `max_retries` times, where that is set, if a handler is busy. `model` is the one that will
    answer, where it is known. A budget that runs out may lower the limit of an answer, to no fewer than `min_tokens`.
    """

    kind: ModelType
    request: ModelRequest
    result_type: type[R]
    output: StreamOutput
    max_retries: int | None = None
    model: str = ""
    min_tokens: int | None = None
