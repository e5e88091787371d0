"""One way to serve a type of model, and what is asked of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bot.models.showing import Showing
from bot.models.types import (
    EmbeddingResult,
    ImageResult,
    ModelRequest,
    ModelResult,
    ModelType,
    SpeechResult,
    TextResult,
)

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
