"""`ModelRouter`: priority, failover and structured output.

Read the arguments of function calls, which models and servers write in several forms.
"""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bot.errors import BudgetSpent, ModelError, ModelRefused, ModelUnavailable, PromptTooLong
from bot.models.handler import ModelHandler, PendingCall, R, StreamOutput, measure_audio
from bot.models.retry import CallPolicy, HandlerClient, ListOwners, ModelStatus, OnRetry, OutageLog
from bot.models.settings import AnswerFormSetting, ModelProfile, Record, Reserve, Sampling, ServerQueue
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
from bot.prompts.reply_parser.field_scanner import first_object, read_mapping
from bot.text import shorten

M = TypeVar("M", bound=BaseModel)

# The types to use, in this order, if no handler serves a type.
FALLBACK_TYPES: dict[ModelType, tuple[ModelType, ...]] = {
    ModelType.TEXT_SMALL: (ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE),
    ModelType.TEXT_MEDIUM: (ModelType.TEXT_LARGE, ModelType.TEXT_SMALL),
    ModelType.TEXT_LARGE: (ModelType.TEXT_MEDIUM, ModelType.TEXT_SMALL),
    ModelType.OBJECT_SMALL: (ModelType.TEXT_SMALL, ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE),
    ModelType.OBJECT_MEDIUM: (ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE, ModelType.TEXT_SMALL),
    ModelType.OBJECT_LARGE: (ModelType.TEXT_LARGE, ModelType.TEXT_MEDIUM, ModelType.TEXT_SMALL),
}
MAX_QUOTE_LENGTH = 8_000
MAX_PROBLEMS = 8
MAX_READING_RETRIES = 1  # a reply waits for the description of an attachment, and goes on without it


class ModelRouter:
    """Calls the handlers of a model type in order of priority until one succeeds.

    `record` receives every attempt, failed ones included. If `reserve` is set, it is awaited before every
    attempt and returns the function to use instead of `record`, and the request with a limit of its answer that the
    budget can pay for. `on_retry` is called before a busy handler is called again, with its error and the delay in
    seconds. `list_owners` returns for whom a call is made; many calls of one owner leave room for those of others.
    `sampling` fills in what a text request leaves open.
    `answer_form` is the operator's choice of the form of answers.
    Texts are returned storable and bounded, vectors finite and as many as texts.
    """

    def __init__(
        self,
        *,
        record: Record,
        reserve: Reserve | None = None,
        on_retry: OnRetry | None = None,
        list_owners: ListOwners = tuple,
        policy: CallPolicy | None = None,
        sampling: Mapping[ModelType, Sampling] | None = None,
        answer_form: AnswerFormSetting = AnswerFormSetting.AUTO,
    ) -> None:
        self._policy = policy or CallPolicy()
        self._clients: defaultdict[ModelType, list[HandlerClient]] = defaultdict(list)
        self._record = record
        self._reserve = reserve or self._reserve_nothing
        self._on_retry = on_retry or _ignore_retry
        self._list_owners = list_owners
        self._profiles: dict[tuple[str, str], ModelProfile] = {}
        self._queues: dict[str, ServerQueue] = {}
        self._sampling = sampling or {}
        self._answer_form = answer_form
        self._outage_log = OutageLog(self._policy.time.monotonic)

    def register(self, handler: ModelHandler) -> None:
        """Add a handler; of equal priorities the earlier registered is called first."""
        clients = self._clients[handler.type]
        clients.append(
            HandlerClient(
                handler,
                self._policy,
                reserve=self._reserve,
                on_retry=self._on_retry,
                list_owners=self._list_owners,
                outage_log=self._outage_log,
                profiles=self._profiles,
                queues=self._queues,
            )
        )
        clients.sort(key=lambda client: -client.handler.priority)

    def statuses(self) -> list[ModelStatus]:
        """Return how every handler has answered, in the order in which those of a type are called."""
        return [client.status() for clients in self._clients.values() for client in clients]

    def has_handler_for(self, kind: ModelType) -> bool:
        """Return whether a handler or a fallback type serves this type."""
        return bool(self._candidates(kind))

    def can_call_tools(self, kind: ModelType) -> bool:
        """Return whether the first handler for this type can call tools."""
        return any(client.handler.calls_tools() for client in self._candidates(kind)[:1])

    def can_write_json(self, kind: ModelType) -> bool:
        """Return whether answers are requested as JSON.

        The operator says so, or the first handler for this type makes a model write JSON by a schema.
        """
        if self._answer_form is not AnswerFormSetting.AUTO:
            return self._answer_form is AnswerFormSetting.JSON
        return any(client.handler.writes_json() for client in self._candidates(kind)[:1])

    async def profile(self, kind: ModelType) -> ModelProfile | None:
        """Return what is known of the model that is asked first for this type; None without a handler."""
        candidates = self._candidates(kind)
        return await candidates[0].profile() if candidates else None

    async def described_profiles(self) -> list[ModelProfile]:
        """Return what is known of each model whose name its plugin knows before the model has answered."""
        clients = [client for clients in self._clients.values() for client in clients]
        profiles = [(client.handler.name, await client.profile()) for client in clients]
        return [profile for plugin, profile in profiles if profile.name != plugin]

    async def writes_plain_text(self, kind: ModelType) -> bool:
        """Return whether answers are requested as plain text: the operator says so, or the model is too small."""
        if self._answer_form is not AnswerFormSetting.AUTO:
            return self._answer_form is AnswerFormSetting.TEXT
        profile = await self.profile(kind)
        return profile is not None and profile.is_tiny

    async def text(self, request: TextRequest, kind: ModelType = ModelType.TEXT_LARGE) -> TextResult:
        """Generate a text.

        Raises ModelUnavailable with every handler's failure, or the only ModelError there was; ModelRefused
        if all have refused; PromptTooLong if the prompt is too long for all that are reachable.
        """
        return await self._call(kind, self._with_sampling(request, kind), TextResult)

    async def object(self, object_type: type[M], request: TextRequest, kind: ModelType = ModelType.OBJECT_SMALL) -> M:
        """Generate an object that fits a pydantic model; ask for a repair once if it does not.

        Raises ModelError if the repaired object does not fit either, and as `text` does.
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
            raise ModelError(f"{repaired.model} returned no {object_type.__name__}:\n{error}") from None

    async def embed(
        self, texts: Sequence[str], *, first_handler_only: bool = False, is_urgent: bool = False
    ) -> EmbeddingResult:
        """Return the embeddings of texts; raises as `text` does.

        With `first_handler_only` there is no failover, because vectors of different models cannot be
        compared. An `is_urgent` request, which a reply waits for, is not retried.
        """
        request = EmbeddingRequest(tuple(texts))
        max_handlers = 1 if first_handler_only else None
        max_retries = 0 if is_urgent else None
        return await self._call(
            ModelType.TEXT_EMBEDDING, request, EmbeddingResult, max_handlers, max_retries=max_retries
        )

    async def describe(self, request: ImageDescriptionRequest) -> TextResult:
        """Describe an image, with at most one retry of a busy model; raises as `text` does."""
        return await self._call(ModelType.IMAGE_DESCRIPTION, request, TextResult, max_retries=MAX_READING_RETRIES)

    async def transcribe(self, request: TranscriptionRequest) -> TextResult:
        """Transcribe a recording, with at most one retry of a busy model; raises as `text` does."""
        seconds = await asyncio.to_thread(measure_audio, request.audio)
        request = replace(request, seconds=seconds)
        return await self._call(ModelType.TRANSCRIPTION, request, TextResult, max_retries=MAX_READING_RETRIES)

    async def draw(self, request: ImageRequest) -> ImageResult:
        """Generate an image; raises as `text` does."""
        return await self._call(ModelType.IMAGE, request, ImageResult)

    async def speak(self, request: SpeechRequest) -> SpeechResult:
        """Generate speech from a text; raises as `text` does."""
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
        max_retries: int | None = None,
    ) -> R:
        candidates = self._candidates(kind)[:max_handlers]
        if not candidates:
            raise ModelUnavailable(f"no plugin of this agent provides {kind}; load one that does")
        sink = request.sink if isinstance(request, TextRequest) else None
        pending = PendingCall(kind, request, result_type, StreamOutput(sink), max_retries)
        errors: list[ModelError] = []
        for number, client in enumerate(candidates, start=1):
            try:
                return await client.call(pending, has_next=number < len(candidates))
            except BudgetSpent:
                raise
            except ModelError as error:
                errors.append(error)
        raise _combine_errors(errors)

    async def _reserve_nothing(self, handler: ModelHandler, pending: PendingCall[Any]) -> tuple[Record, ModelRequest]:
        return self._record, pending.request


def _ignore_retry(handler: ModelHandler, error: ModelError, delay: float) -> None:
    pass


def _combine_errors(errors: Sequence[ModelError]) -> ModelError:
    """Return one error for all, of the class that they have in common.

    A prompt that is too long for every reachable handler may be retried with a shorter one.
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


def object_request(object_type: type[M], request: TextRequest) -> TextRequest:
    """Return the request for an object: with its schema, and with the schema in the prompt."""
    schema = object_type.model_json_schema()
    schema_text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    instruction = f"Answer with one JSON object that fits this JSON schema, and nothing else:\n{schema_text}"
    return replace(request, prompt=f"{request.prompt}\n\n{instruction}", schema=schema, sink=None, tools=())


def repair_request(request: TextRequest, response: str, problems: str) -> TextRequest:
    """Return the request for a corrected object, quoting the answer and its problems."""
    quote = shorten(response, MAX_QUOTE_LENGTH)
    instruction = f"This was your answer:\n{quote}\n\nIt does not fit:\n{problems}\nGive it again, corrected."
    return replace(request, prompt=f"{request.prompt}\n\n{instruction}", purpose=Purpose.REPAIR)


def parse_object(object_type: type[M], response: str) -> M:
    """Parse the object in a model's answer; raises ModelError with what does not fit."""
    data = first_object(response)
    try:
        return object_type.model_validate(data)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        messages = [f"- {'.'.join(map(str, problem['loc'])) or 'all of it'}: {problem['msg']}" for problem in problems]
        raise ModelError("\n".join(messages[:MAX_PROBLEMS])) from None


FENCES = re.compile(r"\A```\w*\s*|\s*```\Z")
JSON_WORD = re.compile(r"\b(?:true|false|null)\b")
JSON_WORDS = {"true": "True", "false": "False", "null": "None"}
VALUE_START = re.compile(r"[^\s,]")
MAX_ENCODINGS = 3  # how often JSON may be encoded as a text in JSON
_DECODER = json.JSONDecoder(strict=False)


def parse_values(text: str) -> tuple[list[Any], str]:
    """Return the JSON values that a text consists of, and the rest that is not JSON."""
    values, position = [], 0
    try:
        while start := VALUE_START.search(text, position):
            position = start.start()
            value, position = _DECODER.raw_decode(text, position)
            values.append(value)
    except (ValueError, RecursionError):
        return values, text[position:]
    return values, ""


def read_arguments(value: object, encodings: int = MAX_ENCODINGS) -> list[dict[str, Any]]:
    """Return the arguments of one call, or of several that were written one after another.

    They may be an object, its JSON (also encoded twice, or in a list), a Python literal, or nothing. Raises ValueError
    if they cannot be read.
    """
    if isinstance(value, dict):
        return [{str(name): item for name, item in value.items()}]
    if value is None or value == []:
        return [{}]
    if isinstance(value, str) and encodings:
        values = _parse(FENCES.sub("", value.strip()))
    elif isinstance(value, list):
        values = value
    else:
        raise ValueError(value)
    objects = [found for item in values for found in read_arguments(item, encodings - 1)]
    return [found for found in objects if found] or [{}]


def _parse(text: str) -> list[Any]:
    """Return the values of a text. Raises ValueError if it is neither JSON nor Python."""
    values, rest = parse_values("null" if text in ("", "None") else text)
    if not values:
        python = JSON_WORD.sub(lambda word: JSON_WORDS[word[0]], text)
        values, rest = [read_mapping(text)[0] or read_mapping(python)[0]], ""
        if values == [None]:
            raise ValueError(text)
    if "{" in rest:
        raise ValueError(text)
    return values
