"""From a request to an answer: which handler is asked, how long, and who comes next when it fails."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from bot.boundary import Cancellation
from bot.domain.ledger import ModelCall
from bot.errors import ModelError, ModelUnavailable
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ImageRequest,
    ImageResult,
    ModelRequest,
    ModelResult,
    ModelType,
    TextRequest,
    TextResult,
    TranscriptionRequest,
    Usage,
)
from bot.text import tidy

R = TypeVar("R", TextResult, EmbeddingResult, ImageResult)
Handle = Callable[[Any], Awaitable[ModelResult]]

# Who may stand in for a size that nobody serves.
STAND_INS: dict[ModelType, tuple[ModelType, ...]] = {
    ModelType.TEXT_SMALL: (ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE),
    ModelType.TEXT_MEDIUM: (ModelType.TEXT_LARGE, ModelType.TEXT_SMALL),
    ModelType.TEXT_LARGE: (ModelType.TEXT_MEDIUM, ModelType.TEXT_SMALL),
}
BYTES_A_TOKEN = 4
LONGEST_ANSWER = 262_144


@dataclass(frozen=True, slots=True)
class ModelHandler:
    """One way to serve a model type; a higher priority is asked first."""

    type: ModelType
    handle: Handle
    name: str
    priority: int = 0


class ModelRouter:
    """Asks the handlers of a type in order of priority until one answers.

    `deadline` in seconds bounds each handler. `record` is told of every call, failed ones included.
    A text comes back storable and bounded, vectors as many as there were texts.
    """

    def __init__(self, *, record: Callable[[ModelCall], None], deadline: float = 60.0) -> None:
        self._handlers: defaultdict[ModelType, list[ModelHandler]] = defaultdict(list)
        self._record = record
        self._deadline = deadline

    def register(self, handler: ModelHandler) -> None:
        """Add a handler; among equals the earlier registered is asked first."""
        handlers = self._handlers[handler.type]
        handlers.append(handler)
        handlers.sort(key=lambda one: -one.priority)

    def serves(self, kind: ModelType) -> bool:
        """Tell whether any handler, or a stand-in, serves this type."""
        return bool(self._candidates(kind))

    async def text(self, request: TextRequest, kind: ModelType = ModelType.TEXT_LARGE) -> TextResult:
        """Have a text written.

        Raises ModelUnavailable, naming every handler's failure, or the one ModelError there was.
        """
        return await self._ask(kind, request, TextResult)

    async def embed(self, texts: Sequence[str], *, first_choice: bool = False) -> EmbeddingResult:
        """Turn texts into vectors; raises as `text` does.

        With `first_choice` nobody stands in for the first handler: another model's vectors are another's.
        """
        request = EmbeddingRequest(tuple(texts))
        most = 1 if first_choice else None
        return await self._ask(ModelType.TEXT_EMBEDDING, request, EmbeddingResult, most)

    async def describe(self, request: ImageDescriptionRequest) -> TextResult:
        """Have a picture described; raises as `text` does."""
        return await self._ask(ModelType.IMAGE_DESCRIPTION, request, TextResult)

    async def transcribe(self, request: TranscriptionRequest) -> TextResult:
        """Have a recording written down; raises as `text` does."""
        return await self._ask(ModelType.TRANSCRIPTION, request, TextResult)

    async def draw(self, request: ImageRequest) -> ImageResult:
        """Have a picture drawn; raises as `text` does."""
        return await self._ask(ModelType.IMAGE, request, ImageResult)

    def _candidates(self, kind: ModelType) -> list[ModelHandler]:
        for one in (kind, *STAND_INS.get(kind, ())):
            if self._handlers[one]:
                return self._handlers[one]
        return []

    async def _ask(
        self, kind: ModelType, request: ModelRequest, wanted: type[R], most: int | None = None
    ) -> R:
        candidates = self._candidates(kind)[:most]
        if not candidates:
            raise ModelUnavailable(f"no plugin of this agent serves {kind}; load one that does")
        errors: list[ModelError] = []
        for handler in candidates:
            try:
                return await self._call(handler, kind, request, wanted)
            except ModelError as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        raise ModelUnavailable("; ".join(str(error) for error in errors))

    async def _call(
        self, handler: ModelHandler, kind: ModelType, request: ModelRequest, wanted: type[R]
    ) -> R:
        started = time.monotonic()
        cancellation = Cancellation()
        result: R | None = None
        error = "cancelled"
        try:
            async with asyncio.timeout(self._deadline) as limit:
                given = await handler.handle(request)
            result = _fitting(given, request, wanted, handler.name)
            error = ""
        except ModelError as raised:
            error = str(raised)
            raise
        except TimeoutError as raised:
            error = f"{handler.name}: TimeoutError: {raised}"
            if limit.expired():
                error = f"{handler.name}: no answer within {self._deadline:g} s"
            raise ModelUnavailable(error) from None
        except BaseException as raised:  # a handler is a plugin's: what it raises is a failure of a model
            error = f"{handler.name}: {type(raised).__name__}: {raised}"
            raise ModelError(error) from raised
        else:
            return result
        finally:
            if cancellation.is_asked_for:
                error = "cancelled"
            self._record(_booked(handler, kind, request, result, time.monotonic() - started, error))
            if cancellation.is_asked_for:  # also where the handler has swallowed it
                raise asyncio.CancelledError


def _fitting(given: object, request: ModelRequest, wanted: type[R], name: str) -> R:
    """Check what a handler gave, and bound it; raises ModelError."""
    if not isinstance(given, wanted):
        raise ModelError(f"{name}: gave {type(given).__name__}, not {wanted.__name__}")
    if isinstance(given, TextResult):
        if not isinstance(given.text, str):
            raise ModelError(f"{name}: gave a text that is {type(given.text).__name__}")
        return replace(given, text=tidy(given.text, LONGEST_ANSWER))
    if isinstance(given, ImageResult):
        if not given.data and not given.url:
            raise ModelError(f"{name}: gave a picture without data and address")
        return given
    if isinstance(request, EmbeddingRequest) and len(given.vectors) != len(request.texts):
        raise ModelError(f"{name}: gave {len(given.vectors)} vectors for {len(request.texts)} texts")
    return given


def _booked(
    handler: ModelHandler,
    kind: ModelType,
    request: ModelRequest,
    result: ModelResult | None,
    seconds: float,
    error: str,
) -> ModelCall:
    size = _prompt_bytes(request)
    usage = result.usage if result is not None else None
    if usage is None or min(usage.tokens_in, usage.tokens_out, usage.tokens_cached) < 0:
        written = _bytes(result.text) if isinstance(result, TextResult) else 0
        usage = Usage(size // BYTES_A_TOKEN, written // BYTES_A_TOKEN, is_estimate=True)
    return ModelCall(
        type=kind.value,
        purpose=request.purpose.value,
        model=(result.model if result is not None else "") or handler.name,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        tokens_cached=usage.tokens_cached,
        is_estimate=usage.is_estimate,
        prompt_bytes=size,
        seconds=seconds,
        error=error,
    )


def _prompt_bytes(request: ModelRequest) -> int:
    if isinstance(request, TextRequest):
        return _bytes(request.system) + _bytes(request.prompt)
    if isinstance(request, ImageRequest):
        return _bytes(request.prompt)
    if isinstance(request, EmbeddingRequest):
        return sum(map(_bytes, request.texts))
    return 0


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
