"""`ModelHandler`, one pending call, relay of streamed text.

Usage of model calls: as the provider counted it, or estimated.

How much memory requests and responses of models take.
"""

import json
import logging
import string
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from math import inf
from types import TracebackType
from typing import Any, Generic, Self, TypeGuard, TypeVar

from tinytag import TinyTag, TinyTagException

from bot.concurrency.tasks import MemorySemaphore
from bot.domain.ledger import ModelCall
from bot.errors import MemoryLimitReached, ModelError
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ImageRequest,
    ImageResult,
    ModelInfo,
    ModelRequest,
    ModelResult,
    ModelType,
    SpeechRequest,
    SpeechResult,
    TextRequest,
    TextResult,
    TextSink,
    TranscriptionRequest,
    Usage,
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


BYTES_PER_TOKEN = 3  # letters, digits and spaces of ASCII; any other byte may be a token of its own
PLAIN_BYTES = b" " + string.ascii_letters.encode() + string.digits.encode()
DEFAULT_OUTPUT_TOKENS, IMAGE_TOKENS, IMAGE_OUTPUT_TOKENS = 1024, 5000, 6240  # assumed if unknown
HIDDEN_TOKENS_PER_SECOND = 200
SPEECH_BYTES_PER_TOKEN = 4  # speech has a price by length of its text
AUDIO_TOKENS, SPOKEN_TOKENS = 32, 8  # for a second of a recording, and of its words
MIN_BIT_RATE, MAX_BIT_RATE = 6_000, 3_000_000  # of a recording, per second: speech in Opus, two channels of PCM
MAX_PLAUSIBLE_TOKENS = 100_000_000  # per call


@dataclass(slots=True)
class CallProgress:
    """What is known of a call before its result: the model, the usage counted so far, and the tokens streamed so far,
    estimated.
    """

    model: str = ""
    usage: Usage | None = None
    output_tokens: int = 0

    def note_piece(self, text: str) -> None:
        """Note a streamed piece."""
        self.output_tokens += estimate_tokens(text)


current_call: ContextVar[CallProgress | None] = ContextVar("current_call", default=None)


def note_call(model: str, usage: Usage | None = None) -> None:
    """Note the model that the current call goes to, and what its provider has counted so far.

    A handler calls it before it sends a request: a call that is cancelled or fails is priced by it. Without a call in
    progress nothing happens.
    """
    if (progress := current_call.get()) is not None:
        progress.model, progress.usage = model, usage or progress.usage


def build_model_call(
    handler: ModelHandler,
    kind: ModelType,
    request: ModelRequest,
    result: ModelResult | None,
    seconds: float,
    error: str,
    progress: CallProgress,
    *,
    was_stopped: bool = False,
) -> ModelCall:
    """Return the record of one call; missing or implausible numbers are estimated and flagged.

    A call that `was_stopped` before its result, and of which nothing was seen, may have written hidden thoughts.
    """
    usage, estimate = result.usage if result is not None else None, estimate_usage(kind, request)
    if not _is_plausible(usage):
        tokens_out = max(progress.output_tokens, estimate_tokens(result.text) if isinstance(result, TextResult) else 0)
        if was_stopped and not tokens_out:
            tokens_out = min(estimate.tokens_out, int(seconds) * HIDDEN_TOKENS_PER_SECOND)
        usage = _estimate_from(progress.usage, estimate.tokens_in, tokens_out)
    return replace(
        estimate,
        model=(result.model if result is not None else progress.model) or handler.name,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        tokens_cached=usage.tokens_cached,
        is_estimate=usage.is_estimate,
        seconds=seconds,
        error=error,
    )


def estimate_usage(kind: ModelType, request: ModelRequest) -> ModelCall:
    """Return a call with the most that it may use, before it is made."""
    texts, tokens_out = list(_texts_of(request)), 0
    tokens_in = sum(map(estimate_tokens, texts))
    if isinstance(request, TextRequest):
        tokens_out = request.max_tokens or DEFAULT_OUTPUT_TOKENS
    elif isinstance(request, ImageDescriptionRequest):
        tokens_in, tokens_out = IMAGE_TOKENS, DEFAULT_OUTPUT_TOKENS
    elif isinstance(request, ImageRequest):
        tokens_out = IMAGE_OUTPUT_TOKENS
    elif isinstance(request, SpeechRequest):
        tokens_in = -(-_count_bytes(request.text) // SPEECH_BYTES_PER_TOKEN)
    elif isinstance(request, TranscriptionRequest):
        tokens_in, tokens_out = (int(request.seconds * rate) + 1 for rate in (AUDIO_TOKENS, SPOKEN_TOKENS))
    return ModelCall(
        type=kind.value,
        purpose=request.purpose.value,
        model="",
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        is_estimate=True,
        prompt_bytes=sum(map(_count_bytes, texts)),
    )


def measure_audio(audio: bytes) -> float:
    """Return the seconds of a recording by its header, or by its size if it has none that is possible."""
    seconds, shortest, longest = 0.0, 8 * len(audio) / MAX_BIT_RATE, 8 * len(audio) / MIN_BIT_RATE
    with suppress(TinyTagException):
        seconds = TinyTag.get(file_obj=BytesIO(audio), tags=False).duration or 0.0
    return seconds if shortest <= seconds <= longest else longest


def _estimate_from(counted: object, tokens_in: int, tokens_out: int) -> Usage:
    """Return an estimate with the numbers that a provider has counted before its answer ended, if it has."""
    if not _is_plausible(counted):
        return Usage(tokens_in, tokens_out, is_estimate=True)
    return Usage(counted.tokens_in, max(counted.tokens_out, tokens_out), counted.tokens_cached, is_estimate=True)


def _is_plausible(usage: object) -> TypeGuard[Usage]:
    if not isinstance(usage, Usage):
        return False
    numbers = (usage.tokens_in, usage.tokens_out, usage.tokens_cached)
    if not all(isinstance(tokens, int) and 0 <= tokens < MAX_PLAUSIBLE_TOKENS for tokens in numbers):
        return False  # plugins give anything
    return bool(usage.tokens_in or not usage.tokens_out)


def count_prompt_bytes(request: ModelRequest) -> int:
    """Return the size of a prompt in bytes, with its tools."""
    return sum(map(_count_bytes, _texts_of(request)))


def estimate_tokens(text: str) -> int:
    """Return about the most tokens that a text may have."""
    data = text.encode("utf-8", "surrogatepass")
    others = len(data.translate(None, PLAIN_BYTES))
    return others - (others - len(data)) // BYTES_PER_TOKEN


def _texts_of(request: ModelRequest) -> Iterator[str]:
    if isinstance(request, TextRequest):
        yield from (request.system, request.prompt)
        for tool in request.tools:
            yield f"{tool.name}{tool.description}{json.dumps(dict(tool.parameters))}"
    elif isinstance(request, ImageRequest):
        yield request.prompt
    elif isinstance(request, SpeechRequest):
        yield request.text
    elif isinstance(request, EmbeddingRequest):
        yield from request.texts


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


IMAGE_COPIES, AUDIO_COPIES = 5, 2  # of a file in a request, besides the file: base64 in JSON; the parts of a form
BYTES_PER_VECTOR = 128 * 1024  # of a response, as JSON and as numbers
IMAGE_BYTES, SPEECH_BYTES = 32 * 2**20, 16 * 2**20  # of responses with a generated image or speech
FREE_BYTES = 256 * 1024  # an ordinary answer takes less, and waits for no memory
STEP_BYTES = 1024 * 1024
COPIES = 4  # of what is read of a response: as bytes, as text, joined, and parsed


def count_bytes(request: ModelRequest) -> int:
    """Return how many bytes a call is expected to take at most, besides a file in its request; 0 for few.

    An answer that is longer than FREE_BYTES takes them while it comes, see `ResponseMemory`.
    """
    match request:
        case TextRequest():
            size = 0
        case EmbeddingRequest():
            size = BYTES_PER_VECTOR * len(request.texts)
        case ImageDescriptionRequest():
            size = IMAGE_COPIES * len(request.image)
        case TranscriptionRequest():
            size = AUDIO_COPIES * len(request.audio)
        case ImageRequest():
            size = IMAGE_BYTES
        case SpeechRequest():
            size = SPEECH_BYTES
    return size if size > FREE_BYTES else 0


class ResponseMemory:
    """The memory of one response, which grows while it is read; all of it is given back when the call ends.

    `label` begins its errors: the provider and the model.
    """

    def __init__(self, memory: MemorySemaphore, label: str) -> None:
        self._memory = memory
        self._label = label
        self._size = FREE_BYTES
        self._pending = 0

    async def count(self, chunks: AsyncIterable[bytes], max_pending: float = inf) -> AsyncIterator[bytes]:
        """Yield the chunks of a body, and take what all of them need that came since the last `reset`.

        Raises as `extend` does, and ModelError once more than `max_pending` bytes came since then.
        """
        async for chunk in chunks:
            self._pending += len(chunk)
            if self._pending > max_pending:
                raise ModelError(f"{self._label}: the response has a piece of more than {max_pending:,.0f} bytes")
            self.extend(self._pending)
            yield chunk

    def reset(self) -> None:
        """Count from here on: what came before has been read, and is not held any more."""
        self._pending = 0

    def extend(self, length: int) -> None:
        """Take what so many bytes or characters need that are held of the response now.

        Raises ModelError if MEMORY_LIMIT leaves too little: to ask again would cost the same again.
        """
        missing = COPIES * length - self._size
        if missing <= 0:
            return
        missing += STEP_BYTES
        try:
            self._memory.grow(missing)
        except MemoryLimitReached as error:
            raise ModelError(f"{self._label}: the response is too long: {error}") from None
        self._size += missing
