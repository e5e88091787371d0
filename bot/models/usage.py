"""What a call has cost, as the provider counted it or as well as it can be estimated."""

import json

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

BYTES_A_TOKEN, FEWEST_BYTES_A_TOKEN = 4, 3
LONG_ANSWER, PICTURE = 1024, 1500  # tokens, where a request sets no bound, or nobody can count
HUGE = 100_000_000  # more tokens than this in one call are a mistake


def booked(
    handler: ModelHandler,
    kind: ModelType,
    request: ModelRequest,
    result: ModelResult | None,
    seconds: float,
    error: str,
) -> ModelCall:
    """Put one call down; numbers that are missing or make no sense are estimated and flagged."""
    size = _prompt_bytes(request)
    usage = result.usage if result is not None else None
    if usage is None or not _makes_sense(usage):
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


def expected(kind: ModelType, request: ModelRequest) -> ModelCall:
    """Estimate a call before it is made, and rather too high: nobody knows what it will come to."""
    size = _prompt_bytes(request)
    tokens_out = 0
    if isinstance(request, TextRequest):
        tokens_out = request.max_tokens or LONG_ANSWER
    elif isinstance(request, ImageDescriptionRequest | TranscriptionRequest):
        tokens_out = LONG_ANSWER
    seen = PICTURE if isinstance(request, ImageDescriptionRequest) else 0
    return ModelCall(
        type=kind.value,
        purpose=request.purpose.value,
        model="",
        tokens_in=-(-size // FEWEST_BYTES_A_TOKEN) + seen,
        tokens_out=tokens_out,
        is_estimate=True,
        prompt_bytes=size,
    )


def _makes_sense(usage: Usage) -> bool:
    numbers = (usage.tokens_in, usage.tokens_out, usage.tokens_cached)
    is_from_nothing = usage.tokens_out and not usage.tokens_in
    return not is_from_nothing and all(0 <= tokens < HUGE for tokens in numbers)


def _prompt_bytes(request: ModelRequest) -> int:
    if isinstance(request, TextRequest):
        told = (f"{one.name}{one.description}{json.dumps(dict(one.parameters))}" for one in request.tools)
        return _bytes(request.system) + _bytes(request.prompt) + sum(map(_bytes, told))
    if isinstance(request, ImageRequest):
        return _bytes(request.prompt)
    if isinstance(request, SpeechRequest):
        return _bytes(request.text)
    if isinstance(request, EmbeddingRequest):
        return sum(map(_bytes, request.texts))
    return 0


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
