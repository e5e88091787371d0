"""`ModelHandler`, one in-flight request, relay of streamed text."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from bot.models.types import (
    EmbeddingResult,
    ImageResult,
    ModelRequest,
    ModelResult,
    ModelType,
    SpeechResult,
    TextResult,
    TextSink,
)

logger = logging.getLogger(__name__)

MAX_STREAMED_LENGTH = 262_144  # characters; a model that writes on for ever is not shown for ever


class StreamOutput:
    """Whom the text is shown to, if anybody, and whether there is anything to take back."""

    def __init__(self, sink: TextSink | None = None) -> None:
        self._sink = sink
        self._shown_length = 0

    async def write(self, text: str) -> None:
        """Show a piece; a sink that fails is shown nothing more."""
        if self._sink is None or not text or self._shown_length >= MAX_STREAMED_LENGTH:
            return
        self._shown_length += len(text)
        try:
            await self._sink.write(text)
        except Exception:  # whoever looks on must not end the writing
            self._disable()

    async def restart(self) -> None:
        """Take back what was shown."""
        if self._sink is None or not self._shown_length:
            return
        self._shown_length = 0
        try:
            await self._sink.restart()
        except Exception:  # likewise
            self._disable()

    def _disable(self) -> None:
        self._sink = None
        logger.warning("a text is shown no further: its sink failed", exc_info=True)


class StreamRelay(AbstractAsyncContextManager["StreamRelay"]):
    """The sink one handler is given for one try: every piece is a sign of life; after the try it is deaf.

    An empty piece is a sign of life alone: the model is thinking, or filling in a call.
    """

    def __init__(self, output: StreamOutput, on_piece: Callable[[], None]) -> None:
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
        """Take the next piece."""
        if not self._is_closed:
            self._on_piece()
            await self._output.write(text)

    async def restart(self) -> None:
        """Begin the text anew."""
        if not self._is_closed:
            await self._output.restart()


ModelFunction = Callable[[Any], Awaitable[ModelResult]]
R = TypeVar("R", TextResult, EmbeddingResult, ImageResult, SpeechResult)


@dataclass(frozen=True, slots=True)
class ModelHandler:
    """One way to serve a model type; a higher priority is asked first."""

    type: ModelType
    handle: ModelFunction
    name: str
    priority: int = 0
    can_call_tools: bool = False


@dataclass(frozen=True, slots=True)
class PendingCall(Generic[R]):
    """What is asked: of which type, what kind of result it must have, and to whom pieces of it are shown.

    One that `is_urgent` is better not answered than late: a busy handler is not asked again.
    """

    kind: ModelType
    request: ModelRequest
    result_type: type[R]
    output: StreamOutput
    is_urgent: bool = False
