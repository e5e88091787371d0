"""Usage of model calls: as the provider counted it, or estimated."""

import json
import string
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TypeGuard

from tinytag import TinyTag, TinyTagException

from bot.domain.ledger import ModelCall
from bot.models.handler import ModelHandler
from bot.models.types import (
    EmbeddingRequest,
    ImageDescriptionRequest,
    ImageRequest,
    ModelRequest,
    ModelResult,
    ModelType,
    SpeechRequest,
    TextRequest,
    TextResult,
    TranscriptionRequest,
    Usage,
)

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
