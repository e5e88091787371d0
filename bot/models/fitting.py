"""Whether a handler gave what it was asked for, and bounding it."""

from dataclasses import replace
from math import isfinite

from bot.errors import ModelError
from bot.models.handler import R
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageResult,
    ModelRequest,
    SpeechResult,
    TextResult,
)
from bot.text import tidy

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
