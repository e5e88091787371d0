"""One attempt to call a `ModelHandler`: its deadlines, streamed text, usage and memory, and what is learnt of a model.

The settings for calling any model.
"""

import asyncio
import json
import logging
import random
import re
import string
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from io import BytesIO
from itertools import chain
from math import inf, isfinite
from typing import Any, Generic, TypeGuard, TypeVar

from pydantic import Field, ValidationError
from tinytag import TinyTag, TinyTagException

from bot.concurrency.clock import Backoff, TimeSource
from bot.concurrency.tasks import CancellationScope, MemorySemaphore
from bot.domain.ledger import ModelCall
from bot.errors import MemoryLimitReached, ModelBusy, ModelError, ModelTooSlow, SettingError
from bot.models import types
from bot.models.types import ModelType
from bot.prompts.reply_parser.dialects import peel
from bot.receipts import TracedCall, current_trace
from bot.settings import Settings, SettingsModel
from bot.text import sanitize_text

logger = logging.getLogger(__name__)

MAX_STREAMED_LENGTH = 262_144  # characters; a model may never stop writing
R = TypeVar("R", types.TextResult, types.EmbeddingResult, types.ImageResult, types.SpeechResult, types.ModerationResult)


@dataclass(slots=True, eq=False)
class StreamOutput:
    """Passes streamed text to a sink, if there is one, and knows whether there is text to discard."""

    _sink: types.TextSink | None = None
    _shown_length: int = 0

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


@dataclass(frozen=True, slots=True)
class ModelHandler:
    """One implementation of a model type; a higher priority is called first.

    `can_call_tools` is asked for each prompt, because some servers tell only later what their model can do;
    `describe_model` before each call.
    """

    type: ModelType
    handle: Callable[[Any], Awaitable[types.ModelResult]]
    name: str
    priority: int = 0
    can_call_tools: bool | Callable[[], bool] = False
    can_write_json: Callable[[], bool] | None = None
    describe_model: Callable[[], Awaitable[types.ModelInfo]] | None = None


@dataclass(frozen=True, slots=True)
class PendingCall(Generic[R]):
    """One request to the handlers of a type: the expected class of its result, and the output of streamed
    pieces.

    A call is retried at most `max_retries` times, where that is set, if a handler is busy. `model` is the one that will
    answer, where it is known. A budget that runs out may lower the limit of an answer, to no fewer than `min_tokens`.
    `waited_seconds` of the time for its retries have passed while its handler rested. With `has_next` another handler
    is called if this one fails.
    """

    kind: ModelType
    request: types.ModelRequest
    result_type: type[R]
    output: StreamOutput
    max_retries: int | None = None
    model: str = ""
    min_tokens: int | None = None
    waited_seconds: float = 0.0
    has_next: bool = False


BYTES_PER_TOKEN = 3  # letters, digits and spaces of ASCII; any other byte may be a token of its own
PLAIN_BYTES = b" " + string.ascii_letters.encode() + string.digits.encode()
IMAGE_TOKENS, IMAGE_OUTPUT_TOKENS = 5000, 6240  # assumed if unknown
HIDDEN_TOKENS_PER_SECOND = 200
SPEECH_BYTES_PER_TOKEN = 4  # speech has a price by length of its text
AUDIO_TOKENS, SPOKEN_TOKENS = 32, 8  # for a second of a recording, and of its words
MIN_BIT_RATE, MAX_BIT_RATE = 6_000, 3_000_000  # of a recording, per second: speech in Opus, two channels of PCM
MAX_PLAUSIBLE_TOKENS = 100_000_000  # per call


IMAGE_COPIES, AUDIO_COPIES = 5, 2  # of a file in a request, besides the file: base64 in JSON; the parts of a form
BYTES_PER_VECTOR = 128 * 1024  # of a response, as JSON and as numbers
IMAGE_BYTES, SPEECH_BYTES = 32 * 2**20, 16 * 2**20  # of responses with a generated image or speech
FREE_BYTES = 256 * 1024  # an ordinary answer takes less, and waits for no memory
STEP_BYTES = 1024 * 1024
COPIES = 4  # of what is read of a response: as bytes, as text, joined, and parsed


def _measure(request: types.ModelRequest) -> tuple[Iterable[str], int | None, int, int]:
    """Return the texts of a prompt, the most tokens in and out, and the bytes that a call may take.

    The tokens in are None where they are those of the texts.
    """
    match request:
        case types.TextRequest():
            tools = (f"{tool.name}{tool.description}{json.dumps(dict(tool.parameters))}" for tool in request.tools)
            texts = chain((request.system, request.prompt), tools)
            return texts, None, request.max_tokens or DEFAULT_OUTPUT_TOKENS, 0
        case types.EmbeddingRequest():
            return request.texts, None, 0, BYTES_PER_VECTOR * len(request.texts)
        case types.ImageDescriptionRequest():
            return (), IMAGE_TOKENS, DEFAULT_OUTPUT_TOKENS, IMAGE_COPIES * len(request.image)
        case types.TranscriptionRequest():
            tokens_in, tokens_out = (int(request.seconds * rate) + 1 for rate in (AUDIO_TOKENS, SPOKEN_TOKENS))
            return (), tokens_in, tokens_out, AUDIO_COPIES * len(request.audio)
        case types.ImageRequest():
            return (request.prompt,), None, IMAGE_OUTPUT_TOKENS, IMAGE_BYTES
        case types.SpeechRequest():
            tokens_in = -(-_count_bytes(request.text) // SPEECH_BYTES_PER_TOKEN)
            return (request.text,), tokens_in, 0, SPEECH_BYTES
        case types.ModerationRequest():
            return (request.text,), None, 0, 0


def estimate_usage(kind: ModelType, request: types.ModelRequest) -> ModelCall:
    """Return a call with the most that it may use, before it is made."""
    prompt, tokens_in, tokens_out, _ = _measure(request)
    texts = list(prompt)
    return ModelCall(
        type=kind.value,
        purpose=request.purpose.value,
        model="",
        tokens_in=sum(map(estimate_tokens, texts)) if tokens_in is None else tokens_in,
        tokens_out=tokens_out,
        is_estimate=True,
        prompt_bytes=sum(map(_count_bytes, texts)),
    )


def count_prompt_bytes(request: types.ModelRequest) -> int:
    """Return the size of a prompt in bytes, with its tools."""
    return sum(map(_count_bytes, _measure(request)[0]))


def count_bytes(request: types.ModelRequest) -> int:
    """Return how many bytes a call is expected to take at most, besides a file in its request; 0 for few.

    An answer that is longer than FREE_BYTES takes them while it comes, see `ResponseMemory`.
    """
    *_, memory = _measure(request)
    return memory if memory > FREE_BYTES else 0


def measure_audio(audio: bytes) -> float:
    """Return the seconds of a recording by its header, or by its size if it has none that is possible."""
    seconds, shortest, longest = 0.0, 8 * len(audio) / MAX_BIT_RATE, 8 * len(audio) / MIN_BIT_RATE
    with suppress(TinyTagException):
        seconds = TinyTag.get(file_obj=BytesIO(audio), tags=False).duration or 0.0
    return seconds if shortest <= seconds <= longest else longest


def _is_plausible(usage: object) -> TypeGuard[types.Usage]:
    if not isinstance(usage, types.Usage):
        return False
    numbers = (usage.tokens_in, usage.tokens_out, usage.tokens_cached)
    if not all(isinstance(tokens, int) and 0 <= tokens < MAX_PLAUSIBLE_TOKENS for tokens in numbers):
        return False  # plugins give anything
    return bool(usage.tokens_in or not usage.tokens_out)


def estimate_tokens(text: str) -> int:
    """Return about the most tokens that a text may have."""
    data = text.encode("utf-8", "surrogatepass")
    others = len(data.translate(None, PLAIN_BYTES))
    return others - (others - len(data)) // BYTES_PER_TOKEN


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


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


# The fields of a request that, as its `max_tokens`, can be set for all text types or for one.
SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "seed"),
    *("repetition_penalty", "frequency_penalty", "presence_penalty"),
)
# Names of elizaOS that apply to all types.
LEGACY_NAMES = {
    "MAX_TOKENS": "MODEL_MAX_TOKEN",
    "TEMPERATURE": "MODEL_TEMPERATURE",
    "FREQUENCY_PENALTY": "MODEL_FREQ_PENALTY",
    "PRESENCE_PENALTY": "MODEL_PRESENCE_PENALTY",
}
TEXT_TYPES = tuple(kind for kind in ModelType if kind.startswith(("TEXT_SMALL", "TEXT_M", "TEXT_L", "OBJECT_")))


class AnswerFormSetting(StrEnum):
    """The form in which answers are requested."""

    AUTO = "auto"
    TAGS = "tags"
    JSON = "json"
    TEXT = "text"


class ModelSettings(SettingsModel):
    """Settings for calling any model."""

    CHARACTER_SETTINGS = frozenset(f"DEFAULT_{name.upper()}" for name in ("max_tokens", *SAMPLING))

    model_timeout: float = Field(
        120.0,
        gt=0,
        description="Seconds to wait for the first word of a model. A server on this machine has as long as it needs "
        "to read the prompt, and works on one request after the other.",
    )
    model_token_timeout: float = Field(
        30.0, gt=0, description="Seconds that a model may pause between two words of an answer."
    )
    model_retries: int = Field(8, ge=0, le=8, description="How often a call to a busy or too slow model is retried.")
    model_answer_form: AnswerFormSetting = Field(
        AnswerFormSetting.AUTO,
        description="The form in which answers are requested: `json`, which some servers make a model write by a "
        "schema, `tags`, which most models can write, `text`, without actions, for the smallest, or `auto`: JSON until "
        "the server has refused or ignored it, and text for a model of less than a billion parameters.",
    )
    default_max_tokens: int | None = Field(
        None,
        ge=1,
        description="Maximum length of a text in tokens. This and the next eight can be set for one type "
        "alone: TEXT_SMALL_MAX_TOKENS, TEXT_LARGE_TEMPERATURE, OBJECT_SMALL_SEED. "
        "Unset, it is 1024 for a reply, and 8192 more for a model that thinks.",
    )
    default_temperature: float | None = Field(
        None, ge=0, le=2, description="Sampling temperature: higher is more random."
    )
    default_top_p: float | None = Field(
        None, ge=0, le=1, description="Sample only from the most likely tokens that have this probability together."
    )
    default_top_k: int | None = Field(None, ge=0, description="Sample only from this number of most likely tokens.")
    default_min_p: float | None = Field(
        None, ge=0, le=1, description="Skip tokens less likely than this share of the most likely one."
    )
    default_seed: int | None = Field(
        None, description="The same seed gives the same text, if the provider supports it."
    )
    default_repetition_penalty: float | None = Field(
        None, ge=0, description="Above 1, tokens that were used already become less likely."
    )
    default_frequency_penalty: float | None = Field(
        None, ge=-2, le=2, description="The same, by how often they were used."
    )
    default_presence_penalty: float | None = Field(
        None, ge=-2, le=2, description="The same, by whether they were used at all."
    )


def read_sampling(settings: Settings) -> dict[ModelType, dict[str, Any]]:
    """Return the values that are set for every text type, by the names of the request's fields.

    Raises SettingError with the name of an invalid variable.
    """
    return {kind: _read_type(kind, settings) for kind in TEXT_TYPES}


def _read_type(kind: ModelType, settings: Settings) -> dict[str, Any]:
    variables: dict[str, str] = {}  # that set a value, the most specific of each
    for name in map(str.upper, ("max_tokens", *SAMPLING)):
        names = (f"{kind}_{name}", f"DEFAULT_{name}", LEGACY_NAMES.get(name, ""))
        variables |= {f"DEFAULT_{name}": variable for variable in reversed(names) if variable in settings}
    try:
        values = ModelSettings.model_validate({name: settings.get(variable) for name, variable in variables.items()})
    except ValidationError as error:
        [problem, *_] = error.errors(include_url=False, include_input=False, include_context=False)
        variable = variables[str(problem["loc"][0])]
        raise SettingError(f"{variable} (in {settings.source_of(variable)}): {problem['msg']}") from None
    return {name.removeprefix("default_"): getattr(values, name) for name in map(str.lower, variables)}


Record = Callable[[ModelCall], None]
Reserve = Callable[[ModelHandler, PendingCall[Any]], Awaitable[tuple[Record, types.ModelRequest]]]
MAX_TEXT_LENGTH = 262_144
MAX_TOOL_CALLS = 64
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.5, 20.0
MAX_RETRY_SECONDS, FAILOVER_SECONDS = 90.0, 10.0  # after the first attempt: of the last handler, of others
JITTER = 0.25  # so that clients do not retry at the same time


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """How handlers are called: timeouts, retries, the time they are measured in, and the memory that they share.

    An attempt may take `first_seconds` until the first piece of a text, `pause_seconds` between two pieces, and
    `token_seconds` for each token of its limit. A result that is not streamed, such as a picture or a description, may
    take twice the first. The retries of all calls for one message are counted together.
    """

    first_seconds: float = 120.0
    pause_seconds: float = 30.0
    token_seconds: float = 2.0
    max_retries: int = 8
    random_fraction: Callable[[], float] = random.random
    time: TimeSource = field(default_factory=TimeSource)
    memory: MemorySemaphore = field(default_factory=MemorySemaphore)

    def next_delay(self, failures: int, elapsed: float, retry_after: float | None, *, has_next: bool) -> float | None:
        """Return the seconds to wait after `failures` failed attempts in `elapsed` seconds; None to stop.

        `retry_after` is the provider's request: the delay is never shorter than that.
        """
        if retry_after is None:
            delay = Backoff(FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS, JITTER, self.random_fraction).delay(failures)
        else:
            delay = max(retry_after, 0.0) * (1 + JITTER * self.random_fraction())
        remaining = (FAILOVER_SECONDS if has_next else MAX_RETRY_SECONDS) - elapsed
        return delay if delay <= remaining else None  # also where it is not a number


@dataclass(slots=True, eq=False)
class Attempt(Generic[R]):
    """One attempt to call a handler: its deadlines, the sink of its text, and what is known of it.

    It may take `first_seconds` until its first piece. A server on this machine may work on one request after the other:
    with the `queue` of its attempts, this time begins when those before it have ended. Every piece of the text moves
    the deadline; an empty one does only that: the model is thinking or writing a tool call. Pieces after its end are
    ignored.

    Before its result, its `model` and its `usage` so far are what is known of it; at first the model is the one that
    answered last. After it, `first_piece_seconds` is how long its first piece took, None if none came, and `call` is
    its record.
    """

    _handler: ModelHandler
    _pending: PendingCall[R]
    _policy: CallPolicy
    _first_seconds: float
    _queue: "list[Attempt[Any]] | None"
    model: str
    usage: types.Usage | None = None
    first_piece_seconds: float | None = None
    call: ModelCall | None = None
    _output_tokens: int = 0  # streamed so far, estimated
    _timeout: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    _timeout_cause: str = ""  # of the present deadline
    _time: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time)
    _started_at: float = 0.0
    _end: float = inf
    _total_seconds: float = inf
    _has_ended: bool = False

    async def run(self, reserve: Reserve) -> R:
        """Call the handler once, after its cost is reserved; the limit of its answer may be lower than requested.

        A call without a result counts for the model that the handler has noted, else for the one that answered last.
        Raises ModelBusy if another attempt may succeed, ModelTooSlow if none will, BudgetSpent if it may not be paid
        for, ModelError for any other failure of the handler.
        """
        name, pending, self._started_at = self._handler.name, self._pending, self._time()
        record, request = await reserve(self._handler, pending)
        started_at = time.monotonic()
        cancellation = CancellationScope()
        result: R | None = None
        error = "cancelled"
        token = current_attempt.set(self)
        try:
            async with self._deadline(request):
                await pending.output.restart()
                streamed = replace(request, sink=self) if isinstance(request, types.TextRequest) else request
                output = await self._handler.handle(streamed)
            result = validate_result(output, request, pending.result_type, name)
            error = ""
        except ModelError as exception:
            error = str(exception)
            raise
        except TimeoutError as exception:
            cause = self._timeout_cause if self._timeout.expired() else f"TimeoutError: {exception}"
            error = f"{name}: {cause}"
            # A server on this machine would begin again with what it has just not finished.
            raise (ModelBusy if self._queue is None else ModelTooSlow)(error) from None
        except BaseException as exception:  # a handler is plugin code: any exception is a failure of its model
            error = f"{name}: {type(exception).__name__}: {exception}"
            raise ModelError(error) from exception
        else:
            return result
        finally:
            was_cancelled = cancellation.requested  # also if the handler swallowed it
            if was_cancelled:
                error = "cancelled"
            with suppress(ValueError):  # a call stopped by force ends in another context
                current_attempt.reset(token)
            ended_at = time.monotonic()
            if (trace := current_trace.get()) is not None:
                sent, given = (request, result) if isinstance(request, types.TextRequest) else (None, None)
                trace.calls.append(TracedCall(started_at, ended_at, sent, given, trace.composed))
            was_stopped = was_cancelled or self._timeout.expired()
            self.call = self._build_call(request, result, ended_at - started_at, error, was_stopped=was_stopped)
            record(self.call)
            if was_cancelled:
                raise asyncio.CancelledError

    @asynccontextmanager
    async def _deadline(self, request: types.ModelRequest) -> AsyncIterator[None]:
        """Join the queue for the time of the block, which raises TimeoutError at the deadline."""
        if isinstance(request, types.TextRequest) and request.max_tokens is not None:
            self._total_seconds = request.max_tokens * self._policy.token_seconds
        queue = [] if self._queue is None else self._queue
        async with self._timeout:
            queue.append(self)
            queue[0]._start()
            try:
                yield
            finally:
                self._has_ended = True
                queue.remove(self)
                if queue:
                    queue[0]._start()

    def _start(self) -> None:
        """Start the time until the first piece, unless it has started."""
        if not self._timeout_cause and not self._timeout.expired():
            self._started_at = self._time()
            self._timeout.reschedule(self._started_at + self._first_seconds)
            self._timeout_cause = f"no answer within {self._first_seconds:g} s"

    async def write(self, text: str) -> None:
        """Pass on the next piece, and move the deadline."""
        if self._has_ended:
            return
        self._output_tokens += estimate_tokens(text)
        if not self._timeout.expired():
            now, pause = self._time(), self._policy.pause_seconds
            if self.first_piece_seconds is None:
                self.first_piece_seconds, self._end = now - self._started_at, now + self._total_seconds
            self._timeout.reschedule(min(now + pause, self._end))
            self._timeout_cause = f"no data for {pause:g} s"
            if now + pause > self._end:
                self._timeout_cause = f"not finished within {self._total_seconds:g} s after its first piece"
        await self._pending.output.write(text)

    async def restart(self) -> None:
        """Start the text again."""
        if not self._has_ended:
            await self._pending.output.restart()

    def _build_call(
        self, request: types.ModelRequest, result: R | None, seconds: float, error: str, *, was_stopped: bool
    ) -> ModelCall:
        """Return the record of the call; missing or implausible numbers are estimated and flagged.

        A call that `was_stopped` before its result, and of which nothing was seen, may have written hidden thoughts.
        """
        usage, estimate = result.usage if result is not None else None, estimate_usage(self._pending.kind, request)
        if not _is_plausible(usage):
            text = result.text if isinstance(result, types.TextResult) else ""
            tokens_out = max(self._output_tokens, estimate_tokens(text))
            if was_stopped and not tokens_out:
                tokens_out = min(estimate.tokens_out, int(seconds) * HIDDEN_TOKENS_PER_SECOND)
            usage, counted = types.Usage(estimate.tokens_in, tokens_out, is_estimate=True), self.usage
            if _is_plausible(counted):  # before the answer ended
                tokens_out = max(counted.tokens_out, tokens_out)
                usage = types.Usage(counted.tokens_in, tokens_out, counted.tokens_cached, is_estimate=True)
        return replace(
            estimate,
            model=(result.model if result is not None else self.model) or self._handler.name,
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            tokens_cached=usage.tokens_cached,
            is_estimate=usage.is_estimate,
            seconds=seconds,
            error=error,
        )


current_attempt: ContextVar[Attempt[Any] | None] = ContextVar("current_attempt", default=None)


def note_call(model: str, usage: types.Usage | None = None) -> None:
    """Note the model that the current call goes to, and what its provider has counted so far.

    A handler calls it before it sends a request: a call that is cancelled or fails is priced by it. Without a call in
    progress nothing happens.
    """
    if (attempt := current_attempt.get()) is not None:
        attempt.model, attempt.usage = model, usage or attempt.usage


def validate_result(result: object, request: types.ModelRequest, result_type: type[R], name: str) -> R:
    """Return the result of a handler, with bounded text; raises ModelError if it is invalid."""
    if not isinstance(result, result_type):
        raise ModelError(f"{name}: returned {type(result).__name__} instead of {result_type.__name__}")
    if isinstance(result, types.TextResult):
        if not isinstance(result.text, str):
            raise ModelError(f"{name}: returned a text of type {type(result.text).__name__}")
        text = sanitize_text(result.text, MAX_TEXT_LENGTH)
        return replace(result, text=text, tool_calls=result.tool_calls[:MAX_TOOL_CALLS])
    if isinstance(result, types.ImageResult) and not result.data and not result.url:
        raise ModelError(f"{name}: returned an image without data and URL")
    if isinstance(result, types.SpeechResult) and not result.audio:
        raise ModelError(f"{name}: returned empty audio")
    if isinstance(result, types.EmbeddingResult) and isinstance(request, types.EmbeddingRequest):
        if len(result.vectors) != len(request.texts):
            raise ModelError(f"{name}: returned {len(result.vectors)} vectors for {len(request.texts)} texts")
        if len({len(vector) for vector in result.vectors}) > 1:
            raise ModelError(f"{name}: returned vectors of different dimensions")
        if not all(vector and all(map(isfinite, vector)) for vector in result.vectors):
            raise ModelError(f"{name}: returned a vector that is empty or not finite")
    return result


# The limit of an answer in tokens by its purpose, where neither the request nor the operator sets one.
OUTPUT_TOKENS = {
    types.Purpose.SHOULD_RESPOND: 256,
    types.Purpose.CHECK: 256,
    types.Purpose.CARE: 256,
    types.Purpose.REFLECTION: 2048,
    types.Purpose.OTHER: 2048,
}
DEFAULT_OUTPUT_TOKENS = 1024  # assumed if unknown
THINKING_TOKENS = 8192  # in addition, for a model that thinks
MORE_TOKENS = 4  # times the limit, after an answer that ended before its text began
MIN_OUTPUT_TOKENS = 64
MIN_ANSWER_TOKENS, MIN_THINKING_TOKENS = 256, 2048  # a shorter answer or thought is not worth its price
SHORTENED_PURPOSES = frozenset({types.Purpose.REPLY, types.Purpose.SUMMARY})  # others are of no use when they are cut
MIN_WINDOW = 256  # tokens; a smaller number is not a context window in which a prompt fits
MAX_OUTPUT_SHARE = 4  # an answer has at least this part of a small context window
MARGIN_TOKENS = 64  # of a context window, for the template of the server
ASSUMED_BYTES_PER_TOKEN, MIN_BYTES_PER_TOKEN = 3.0, 1.0  # assumed before the first answer, and the smallest plausible
MIN_COUNTED_TOKENS = 64  # in a shorter prompt, the server's own text is too large a part
TINY_PARAMETERS = 1_000_000_000
SPEED_MARGIN = 2.0
MAX_EXTENSION = 10  # times the deadline for a first piece, for a server on this machine
MIN_THOUGHT_LENGTH = 32  # characters in front of an answer; headers are shorter
WINDOW = re.compile(
    r"(?:(?:context|model|prompt) (?:length|size|window)|n(?:um)?_ctx|max_model_len|\blimit|max size"
    r"|input length should)\W{0,8}(?:[^\W\d][\w./-]* ){0,4}?\W{0,4}(?:1, )?(\d[\d,]{2,8})\b(?!\)| \+)"
    r"|(?:(?:<=|>)\s|less than|cannot exceed|allowed \(|large for model with)\s*(\d[\d,]{2,8})\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class ModelProfile:
    """What is known of one model.

    `window` is its context window in tokens, None if it is unknown. `prompt_speed` is the slowest so far, in bytes a
    second. `factor` multiplies the limit of its answers. `thinks` says that it has written thoughts before an answer,
    `is_tiny` that it is too small to write an answer in a form.
    """

    name: str
    is_local: bool = False
    window: int | None = None
    bytes_per_token: float = ASSUMED_BYTES_PER_TOKEN
    prompt_speed: float | None = None
    factor: int = 1
    thinks: bool = False
    is_tiny: bool = False

    def update(self, info: types.ModelInfo) -> None:
        """Take over what the server reports now."""
        self.name, self.is_local = info.name or self.name, info.is_local
        if info.context_length is not None and info.context_length >= MIN_WINDOW:
            self.window = info.context_length
        self.is_tiny = 0 < (info.parameter_count or 0) < TINY_PARAMETERS

    def output_tokens(self, request: types.TextRequest) -> int:
        """Return the limit of the visible answer to a request, in tokens."""
        tokens = request.max_tokens or OUTPUT_TOKENS.get(request.purpose, DEFAULT_OUTPUT_TOKENS)
        tokens *= self.factor
        return tokens if self.window is None else min(tokens, max(MIN_OUTPUT_TOKENS, self.window // MAX_OUTPUT_SHARE))

    def min_tokens(self, request: types.TextRequest) -> int:
        """Return the lowest limit with which an answer to a request is worth its price, in tokens."""
        tokens = self.output_tokens(request)
        if request.purpose in SHORTENED_PURPOSES:
            tokens = min(tokens, MIN_ANSWER_TOKENS)
        return tokens + MIN_THINKING_TOKENS if self.thinks else tokens

    def max_prompt_bytes(self, request: types.TextRequest) -> int | None:
        """Return how long the prompt of a request may be; None if the model's context window is unknown."""
        if self.window is None:
            return None
        return max(0, int((self.window - self.output_tokens(request) - MARGIN_TOKENS) * self.bytes_per_token))

    def with_limit(self, request: types.TextRequest, prompt_bytes: int) -> types.TextRequest:
        """Return the request with the limit of its answer, which a model that thinks may exceed by an allowance."""
        tokens = self.output_tokens(request) + (THINKING_TOKENS if self.thinks else 0)
        return self.clamp(replace(request, max_tokens=tokens), prompt_bytes)

    def clamp(self, request: types.TextRequest, prompt_bytes: int) -> types.TextRequest:
        """Return the request with a limit that fits into the context window beside the prompt."""
        if self.window is None or request.max_tokens is None:
            return request
        left = self.window - MARGIN_TOKENS - int(prompt_bytes / self.bytes_per_token)
        return replace(request, max_tokens=min(request.max_tokens, max(MIN_OUTPUT_TOKENS, left)))

    def first_seconds(self, prompt_bytes: int, minimum: float) -> float:
        """Return the seconds to wait for the first piece of an answer.

        A server on this machine has no fewer than it needs to read the prompt, as far as its speed is known.
        """
        if not self.is_local or self.prompt_speed is None:
            return minimum
        return min(max(minimum, SPEED_MARGIN * prompt_bytes / self.prompt_speed), MAX_EXTENSION * minimum)

    def learn(self, result: types.TextResult, call: ModelCall) -> None:
        """Learn from an answer and its record."""
        if not call.is_estimate and call.tokens_in >= MIN_COUNTED_TOKENS:
            self.bytes_per_token = max(MIN_BYTES_PER_TOKEN, call.prompt_bytes / call.tokens_in)
        if not self.thinks:
            thought_length = len(result.text) - len(peel(result.text).text)
            self.thinks = result.has_thoughts or thought_length >= MIN_THOUGHT_LENGTH

    def learn_speed(self, prompt_bytes: int, seconds: float) -> None:
        """Learn that the first piece of an answer took so long, or longer: the next call may take longer."""
        speed = prompt_bytes / max(seconds, 1e-3)
        self.prompt_speed = speed if self.prompt_speed is None else min(speed, 2 * self.prompt_speed)

    def learn_window(self, message: str) -> None:
        """Learn the context window from the error for a prompt that is too long, if it contains the number."""
        for match in WINDOW.finditer(message):
            tokens = int((match[1] or match[2]).replace(",", ""))
            if tokens >= MIN_WINDOW and (self.window is None or tokens < self.window):
                self.window = tokens
                logger.info("%s: its context window has %d tokens, says its server", self.name, tokens)

    def learn_factor(self) -> None:
        """Remember that answers need more tokens."""
        if self.factor == 1:
            self.factor = MORE_TOKENS
            logger.warning(
                "%s reached the limit of an answer before its text began; from now on the limit is %d times as high",
                self.name,
                MORE_TOKENS,
                extra={"once": True},
            )
