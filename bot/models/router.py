"""`ModelRouter`: priority, failover, structured output."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bot.errors import BudgetSpent, ModelError, ModelRefused, ModelUnavailable, PromptTooLong
from bot.models.attempt import Record, Reserve
from bot.models.handler import ModelHandler, PendingCall, R, StreamOutput
from bot.models.retry import CallPolicy, HandlerClient, OutageLog
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
from bot.prompts.reply_parser.json_objects import first_object
from bot.text import shorten

M = TypeVar("M", bound=BaseModel)

# Who may stand in for a type that nobody serves.
FALLBACK_TYPES: dict[ModelType, tuple[ModelType, ...]] = {
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
        policy: CallPolicy | None = None,
        sampling: Mapping[ModelType, Sampling] | None = None,
    ) -> None:
        self._policy = policy or CallPolicy()
        self._clients: defaultdict[ModelType, list[HandlerClient]] = defaultdict(list)
        self._record = record
        self._reserve = reserve or self._reserve_nothing
        self._sampling = sampling or {}
        self._outage_log = OutageLog(self._policy.clock)

    def register(self, handler: ModelHandler) -> None:
        """Add a handler; among equals the earlier registered is asked first."""
        clients = self._clients[handler.type]
        clients.append(
            HandlerClient(handler, self._policy, reserve=self._reserve, outage_log=self._outage_log)
        )
        clients.sort(key=lambda client: -client.handler.priority)

    def has_handler_for(self, kind: ModelType) -> bool:
        """Tell whether any handler, or a stand-in, serves this type."""
        return bool(self._candidates(kind))

    def can_call_tools(self, kind: ModelType) -> bool:
        """Tell whether the handler that is asked first for this type can call tools."""
        return any(client.handler.can_call_tools for client in self._candidates(kind)[:1])

    async def text(self, request: TextRequest, kind: ModelType = ModelType.TEXT_LARGE) -> TextResult:
        """Have a text written.

        Raises ModelUnavailable, naming every handler's failure, or the one ModelError there was; where all
        have refused ModelRefused; PromptTooLong where all that are there find it too long.
        """
        return await self._call(kind, self._with_sampling(request, kind), TextResult)

    async def object(
        self, object_type: type[M], request: TextRequest, kind: ModelType = ModelType.OBJECT_SMALL
    ) -> M:
        """Have an object made that fits a pydantic model; it is mended once where it does not.

        Raises ModelError where it does not fit then either, and as `text` does.
        """
        request = object_request(object_type, request)
        response = await self.text(request, kind)
        try:
            return parse_object(object_type, response.text)
        except ModelError as error:
            request = repair_request(request, response.text, str(error))
        repaired = await self.text(request, kind)
        try:
            return parse_object(object_type, repaired.text)
        except ModelError as error:
            raise ModelError(f"{repaired.model} gave no {object_type.__name__}:\n{error}") from None

    async def embed(
        self, texts: Sequence[str], *, first_handler_only: bool = False, is_urgent: bool = False
    ) -> EmbeddingResult:
        """Turn texts into vectors; raises as `text` does.

        With `first_choice` nobody stands in for the first handler: another model's vectors are another's.
        What `is_urgent`, because an answer waits for it, is asked once and not again.
        """
        request = EmbeddingRequest(tuple(texts))
        max_handlers = 1 if first_handler_only else None
        return await self._call(
            ModelType.TEXT_EMBEDDING, request, EmbeddingResult, max_handlers, is_urgent=is_urgent
        )

    async def describe(self, request: ImageDescriptionRequest) -> TextResult:
        """Have a picture described; raises as `text` does."""
        return await self._call(ModelType.IMAGE_DESCRIPTION, request, TextResult)

    async def transcribe(self, request: TranscriptionRequest) -> TextResult:
        """Have a recording written down; raises as `text` does."""
        return await self._call(ModelType.TRANSCRIPTION, request, TextResult)

    async def draw(self, request: ImageRequest) -> ImageResult:
        """Have a picture drawn; raises as `text` does."""
        return await self._call(ModelType.IMAGE, request, ImageResult)

    async def speak(self, request: SpeechRequest) -> SpeechResult:
        """Have a text spoken; raises as `text` does."""
        return await self._call(ModelType.TEXT_TO_SPEECH, request, SpeechResult)

    def _with_sampling(self, request: TextRequest, kind: ModelType) -> TextRequest:
        sampling = self._sampling.get(kind)
        return sampling.fill(request) if sampling else request

    def _candidates(self, kind: ModelType) -> list[HandlerClient]:
        for candidate in (kind, *FALLBACK_TYPES.get(kind, ())):
            if self._clients[candidate]:
                return self._clients[candidate]
        return []

    async def _call(
        self,
        kind: ModelType,
        request: ModelRequest,
        result_type: type[R],
        max_handlers: int | None = None,
        *,
        is_urgent: bool = False,
    ) -> R:
        candidates = self._candidates(kind)[:max_handlers]
        if not candidates:
            raise ModelUnavailable(f"no plugin of this agent serves {kind}; load one that does")
        sink = request.sink if isinstance(request, TextRequest) else None
        pending = PendingCall(kind, request, result_type, StreamOutput(sink), is_urgent)
        errors: list[ModelError] = []
        for number, client in enumerate(candidates, start=1):
            try:
                return await client.call(pending, has_next=number < len(candidates))
            except BudgetSpent:
                raise
            except ModelError as error:
                errors.append(error)
        raise _combine_errors(errors)

    async def _reserve_nothing(self, handler: ModelHandler, pending: PendingCall[Any]) -> Record:
        return self._record


def _combine_errors(errors: Sequence[ModelError]) -> ModelError:
    """Make one error of all: of the class that they have in common.

    A prompt that is too long for whoever is there at all may be asked shorter.
    """
    if len(errors) == 1:
        return errors[0]
    causes = "; ".join(map(str, errors))
    reachable = [error for error in errors if not isinstance(error, ModelUnavailable)]
    if reachable and all(isinstance(error, PromptTooLong) for error in reachable):
        return PromptTooLong(causes)
    if all(isinstance(error, ModelRefused) for error in errors):
        return ModelRefused(causes)
    return ModelUnavailable(causes)


MAX_QUOTE_LENGTH = 8_000
MAX_PROBLEMS = 8


def object_request(object_type: type[M], request: TextRequest) -> TextRequest:
    """Ask for an object: by the schema where a handler can be held to it, and in words."""
    schema = object_type.model_json_schema()
    schema_text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    instruction = f"Answer with one JSON object that fits this JSON schema, and nothing else:\n{schema_text}"
    return replace(request, prompt=f"{request.prompt}\n\n{instruction}", schema=schema, sink=None, tools=())


def repair_request(request: TextRequest, response: str, problems: str) -> TextRequest:
    """Ask for the object once more, showing what was wrong with it."""
    quote = shorten(response, MAX_QUOTE_LENGTH)
    instruction = f"This was your answer:\n{quote}\n\nIt does not fit:\n{problems}\nGive it again, corrected."
    return replace(request, prompt=f"{request.prompt}\n\n{instruction}", purpose=Purpose.REPAIR)


def parse_object(object_type: type[M], response: str) -> M:
    """Read the object in what a model wrote; raises ModelError saying what does not fit."""
    data = first_object(response)
    try:
        return object_type.model_validate(data)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        messages = [
            f"- {'.'.join(map(str, problem['loc'])) or 'all of it'}: {problem['msg']}" for problem in problems
        ]
        raise ModelError("\n".join(messages[:MAX_PROBLEMS])) from None
