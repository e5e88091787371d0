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

MOST_SHOWN = 262_144  # characters; a model that writes on for ever is not shown for ever


class Showing:
    """Whom the text is shown to, if anybody, and whether there is anything to take back."""

    def __init__(self, sink: TextSink | None = None) -> None:
        self._sink = sink
        self._shown = 0

    async def piece(self, text: str) -> None:
        """Show a piece; a sink that fails is shown nothing more."""
        if self._sink is None or not text or self._shown >= MOST_SHOWN:
            return
        self._shown += len(text)
        try:
            await self._sink.piece(text)
        except Exception:  # whoever looks on must not end the writing
            self._give_up()

    async def restart(self) -> None:
        """Take back what was shown."""
        if self._sink is None or not self._shown:
            return
        self._shown = 0
        try:
            await self._sink.restart()
        except Exception:  # likewise
            self._give_up()

    def _give_up(self) -> None:
        self._sink = None
        logger.warning("a text is shown no further: its sink failed", exc_info=True)


class Relay(AbstractAsyncContextManager["Relay"]):
    """The sink one handler is given for one try: every piece is a sign of life; after the try it is deaf.

    An empty piece is a sign of life alone: the model is thinking, or filling in a call.
    """

    def __init__(self, showing: Showing, alive: Callable[[], None]) -> None:
        self._showing = showing
        self._alive = alive
        self._is_over = False

    async def __aenter__(self) -> Self:
        await self._showing.restart()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True

    async def piece(self, text: str) -> None:
        """Take the next piece."""
        if not self._is_over:
            self._alive()
            await self._showing.piece(text)

    async def restart(self) -> None:
        """Begin the text anew."""
        if not self._is_over:
            await self._showing.restart()


Handle = Callable[[Any], Awaitable[ModelResult]]
R = TypeVar("R", TextResult, EmbeddingResult, ImageResult, SpeechResult)


@dataclass(frozen=True, slots=True)
class ModelHandler:
    """One way to serve a model type; a higher priority is asked first."""

    type: ModelType
    handle: Handle
    name: str
    priority: int = 0
    can_call_tools: bool = False


@dataclass(frozen=True, slots=True)
class Question(Generic[R]):
    """What is asked: of which type, what kind of result it must have, and to whom pieces of it are shown.

    One that `is_urgent` is better not answered than late: a busy handler is not asked again.
    """

    kind: ModelType
    request: ModelRequest
    wanted: type[R]
    showing: Showing
    is_urgent: bool = False
