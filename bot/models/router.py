"""`ModelRouter`: priority, failover, structured output."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bot.errors import BudgetSpent, ModelError, ModelRefused, ModelUnavailable, PromptTooLong
from bot.models.attempt import Record, Reserve
from bot.models.handler import ModelHandler, Question, R, Showing
from bot.models.retry import Alarm, Caller, Manner
from bot.models.settings import Sampling
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ImageRequest,
    ImageResult,
    ModelRequest,
    ModelType,
    Purpose,
    SpeechRequest,
    SpeechResult,
    TextRequest,
    TextResult,
    TranscriptionRequest,
)
from bot.prompts.reply_parser.json_objects import object_in
from bot.text import shorten

M = TypeVar("M", bound=BaseModel)

# Who may stand in for a type that nobody serves.
STAND_INS: dict[ModelType, tuple[ModelType, ...]] = {
    ModelType.TEXT_SMALL: (ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE),
    ModelType.TEXT_MEDIUM: (ModelType.TEXT_LARGE, ModelType.TEXT_SMALL),
    ModelType.TEXT_LARGE: (ModelType.TEXT_MEDIUM, ModelType.TEXT_SMALL),
    ModelType.OBJECT_SMALL: (ModelType.TEXT_SMALL, ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE),
    ModelType.OBJECT_MEDIUM: (ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE, ModelType.TEXT_SMALL),
    ModelType.OBJECT_LARGE: (ModelType.TEXT_LARGE, ModelType.TEXT_MEDIUM, ModelType.TEXT_SMALL),
}


class ModelRouter:
    """Asks the handlers of a type in order of priority until one answers.

    `record` is told of every try, failed ones included; where there is a `reserve`, it is asked before every
    try, and what it gives is told in place of that. `sampling` fills in what a request for a text leaves
    open. A text comes back storable and bounded, vectors finite and as many as there were texts.
    """

    def __init__(
        self,
        *,
        record: Record,
        reserve: Reserve | None = None,
        manner: Manner | None = None,
        sampling: Mapping[ModelType, Sampling] | None = None,
    ) -> None:
        self._manner = manner or Manner()
        self._callers: defaultdict[ModelType, list[Caller]] = defaultdict(list)
        self._record = record
        self._reserve = reserve or self._freely
        self._sampling = sampling or {}
        self._alarm = Alarm(self._manner.clock)

    def register(self, handler: ModelHandler) -> None:
        """Add a handler; among equals the earlier registered is asked first."""
        callers = self._callers[handler.type]
        callers.append(Caller(handler, self._manner, reserve=self._reserve, alarm=self._alarm))
        callers.sort(key=lambda one: -one.handler.priority)

    def serves(self, kind: ModelType) -> bool:
        """Tell whether any handler, or a stand-in, serves this type."""
        return bool(self._candidates(kind))

    def can_call_tools(self, kind: ModelType) -> bool:
        """Tell whether the handler that is asked first for this type can call tools."""
        return any(one.handler.can_call_tools for one in self._candidates(kind)[:1])

    async def text(self, request: TextRequest, kind: ModelType = ModelType.TEXT_LARGE) -> TextResult:
        """Have a text written.

        Raises ModelUnavailable, naming every handler's failure, or the one ModelError there was; where all
        have refused ModelRefused; PromptTooLong where all that are there find it too long.
        """
        return await self._ask(kind, self._filled(request, kind), TextResult)

    async def object(
        self, shape: type[M], request: TextRequest, kind: ModelType = ModelType.OBJECT_SMALL
    ) -> M:
        """Have an object made that fits a pydantic model; it is mended once where it does not.

        Raises ModelError where it does not fit then either, and as `text` does.
        """
        request = asking(shape, request)
        written = await self.text(request, kind)
        try:
            return read_object(shape, written.text)
        except ModelError as error:
            request = mending(request, written.text, str(error))
        mended = await self.text(request, kind)
        try:
            return read_object(shape, mended.text)
        except ModelError as error:
            raise ModelError(f"{mended.model} gave no {shape.__name__}:\n{error}") from None

    async def embed(
        self, texts: Sequence[str], *, first_choice: bool = False, is_urgent: bool = False
    ) -> EmbeddingResult:
        """Turn texts into vectors; raises as `text` does.

        With `first_choice` nobody stands in for the first handler: another model's vectors are another's.
        What `is_urgent`, because an answer waits for it, is asked once and not again.
        """
        request = EmbeddingRequest(tuple(texts))
        most = 1 if first_choice else None
        return await self._ask(ModelType.TEXT_EMBEDDING, request, EmbeddingResult, most, is_urgent=is_urgent)

    async def describe(self, request: ImageDescriptionRequest) -> TextResult:
        """Have a picture described; raises as `text` does."""
        return await self._ask(ModelType.IMAGE_DESCRIPTION, request, TextResult)

    async def transcribe(self, request: TranscriptionRequest) -> TextResult:
        """Have a recording written down; raises as `text` does."""
        return await self._ask(ModelType.TRANSCRIPTION, request, TextResult)

    async def draw(self, request: ImageRequest) -> ImageResult:
        """Have a picture drawn; raises as `text` does."""
        return await self._ask(ModelType.IMAGE, request, ImageResult)

    async def speak(self, request: SpeechRequest) -> SpeechResult:
        """Have a text spoken; raises as `text` does."""
        return await self._ask(ModelType.TEXT_TO_SPEECH, request, SpeechResult)

    def _filled(self, request: TextRequest, kind: ModelType) -> TextRequest:
        sampling = self._sampling.get(kind)
        return sampling.fill(request) if sampling else request

    def _candidates(self, kind: ModelType) -> list[Caller]:
        for one in (kind, *STAND_INS.get(kind, ())):
            if self._callers[one]:
                return self._callers[one]
        return []

    async def _ask(
        self,
        kind: ModelType,
        request: ModelRequest,
        wanted: type[R],
        most: int | None = None,
        *,
        is_urgent: bool = False,
    ) -> R:
        candidates = self._candidates(kind)[:most]
        if not candidates:
            raise ModelUnavailable(f"no plugin of this agent serves {kind}; load one that does")
        sink = request.sink if isinstance(request, TextRequest) else None
        question = Question(kind, request, wanted, Showing(sink), is_urgent)
        errors: list[ModelError] = []
        for number, caller in enumerate(candidates, start=1):
            try:
                return await caller.call(question, has_next=number < len(candidates))
            except BudgetSpent:
                raise
            except ModelError as error:
                errors.append(error)
        raise _all(errors)

    async def _freely(self, handler: ModelHandler, question: Question[Any]) -> Record:
        return self._record


def _all(errors: Sequence[ModelError]) -> ModelError:
    """Make one error of all: of the class that they have in common.

    A prompt that is too long for whoever is there at all may be asked shorter.
    """
    if len(errors) == 1:
        return errors[0]
    causes = "; ".join(map(str, errors))
    there = [error for error in errors if not isinstance(error, ModelUnavailable)]
    if there and all(isinstance(error, PromptTooLong) for error in there):
        return PromptTooLong(causes)
    if all(isinstance(error, ModelRefused) for error in errors):
        return ModelRefused(causes)
    return ModelUnavailable(causes)


LONGEST_QUOTE = 8_000
MOST_FAULTS = 8


def asking(shape: type[M], request: TextRequest) -> TextRequest:
    """Ask for an object: by the schema where a handler can be held to it, and in words."""
    schema = shape.model_json_schema()
    words = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    demand = f"Answer with one JSON object that fits this JSON schema, and nothing else:\n{words}"
    return replace(request, prompt=f"{request.prompt}\n\n{demand}", schema=schema, sink=None, tools=())


def mending(request: TextRequest, written: str, faults: str) -> TextRequest:
    """Ask for the object once more, showing what was wrong with it."""
    quoted = shorten(written, LONGEST_QUOTE)
    demand = f"This was your answer:\n{quoted}\n\nIt does not fit:\n{faults}\nGive it again, corrected."
    return replace(request, prompt=f"{request.prompt}\n\n{demand}", purpose=Purpose.REPAIR)


def read_object(shape: type[M], written: str) -> M:
    """Read the object in what a model wrote; raises ModelError saying what does not fit."""
    found = object_in(written)
    try:
        return shape.model_validate(found)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        faults = [f"- {'.'.join(map(str, one['loc'])) or 'all of it'}: {one['msg']}" for one in problems]
        raise ModelError("\n".join(faults[:MOST_FAULTS])) from None
