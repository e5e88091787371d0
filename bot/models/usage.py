"""Usage of model calls: as the provider counted it, or estimated."""

import json
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeGuard

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

BYTES_PER_TOKEN, MIN_BYTES_PER_TOKEN = 4, 3
DEFAULT_OUTPUT_TOKENS, IMAGE_TOKENS = 1024, 1500  # assumed if unknown
MAX_PLAUSIBLE_TOKENS = 100_000_000  # per call


@dataclass(slots=True)
class CallProgress:
    """What is known of a call before its result: the model, the usage counted so far, and the text streamed so far."""

    model: str = ""
    usage: Usage | None = None
    output_bytes: int = 0

    def note_piece(self, text: str) -> None:
        """Note a streamed piece."""
        self.output_bytes += _count_bytes(text)


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
) -> ModelCall:
    """Return the record of one call; missing or implausible numbers are estimated and flagged."""
    prompt_bytes = count_prompt_bytes(request)
    usage = result.usage if result is not None else None
    if not _is_plausible(usage):
        output_bytes = _count_bytes(result.text) if isinstance(result, TextResult) else progress.output_bytes
        usage = _estimate_from(progress.usage, prompt_bytes // BYTES_PER_TOKEN, output_bytes // BYTES_PER_TOKEN)
    return ModelCall(
        type=kind.value,
        purpose=request.purpose.value,
        model=(result.model if result is not None else progress.model) or handler.name,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        tokens_cached=usage.tokens_cached,
        is_estimate=usage.is_estimate,
        prompt_bytes=prompt_bytes,
        seconds=seconds,
        error=error,
    )


def estimate_usage(kind: ModelType, request: ModelRequest) -> ModelCall:
    """Estimate a call before it is made, rather too high than too low."""
    prompt_bytes = count_prompt_bytes(request)
    tokens_out = 0
    if isinstance(request, TextRequest):
        tokens_out = request.max_tokens or DEFAULT_OUTPUT_TOKENS
    elif isinstance(request, ImageDescriptionRequest | TranscriptionRequest):
        tokens_out = DEFAULT_OUTPUT_TOKENS
    image_tokens = IMAGE_TOKENS if isinstance(request, ImageDescriptionRequest) else 0
    return ModelCall(
        type=kind.value,
        purpose=request.purpose.value,
        model="",
        tokens_in=-(-prompt_bytes // MIN_BYTES_PER_TOKEN) + image_tokens,
        tokens_out=tokens_out,
        is_estimate=True,
        prompt_bytes=prompt_bytes,
    )


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
    if isinstance(request, TextRequest):
        tool_texts = (f"{tool.name}{tool.description}{json.dumps(dict(tool.parameters))}" for tool in request.tools)
        return _count_bytes(request.system) + _count_bytes(request.prompt) + sum(map(_count_bytes, tool_texts))
    if isinstance(request, ImageRequest):
        return _count_bytes(request.prompt)
    if isinstance(request, SpeechRequest):
        return _count_bytes(request.text)
    if isinstance(request, EmbeddingRequest):
        return sum(map(_count_bytes, request.texts))
    return 0


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
