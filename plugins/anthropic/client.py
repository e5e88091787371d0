"""Build and send requests, omit refused parameters, and map errors.

Read a streamed message.

Parse responses of the API into results.

The settings of the anthropic plugin.

The handlers of text and of descriptions of pictures.
"""

import base64
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import aiohttp
from pydantic import BaseModel, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator, field_validator

from bot import Agent, Secret, Service, Settings, SettingsModel, model
from bot.models import (
    ImageDescriptionRequest,
    InvalidAnswer,
    ModelBusy,
    ModelError,
    ModelInfo,
    ModelRefused,
    ModelType,
    ModelUnreachable,
    PromptTooLong,
    ResponseMemory,
    TextRequest,
    TextResult,
    TextSink,
    ToolCall,
    ToolsRefused,
    Usage,
    host_label,
    note_call,
    parse_retry_after,
    read_arguments,
)
from bot.platform import LazyModule, find_cause
from bot.text import user_text

T = TypeVar("T")
MAX_EVENT_BYTES = 2**20  # of a stream; the SDK copies all of an event with each of its pieces
MAX_TOKENS_PER_CALL = 100_000_000  # larger counts are treated as invalid
TRANSIENT_ERRORS = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})
TRUNCATION_REASONS = frozenset({"max_tokens", "model_context_window_exceeded"})


def _none_if_invalid(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


Lenient = Annotated[T | None, WrapValidator(_none_if_invalid)]
TokenCount = Annotated[int, Field(strict=True, ge=0, lt=MAX_TOKENS_PER_CALL)]


class UsageBody(BaseModel):
    """The tokens of a response, or of its part so far; three kinds of input tokens are counted apart."""

    input_tokens: Lenient[TokenCount] = None
    output_tokens: Lenient[TokenCount] = None
    cache_creation_input_tokens: Lenient[TokenCount] = None
    cache_read_input_tokens: Lenient[TokenCount] = None

    def updated(self, newer: "UsageBody") -> "UsageBody":
        """Return these numbers, replaced by the newer ones that are set."""
        return self.model_copy(update=newer.model_dump(exclude_none=True))

    def to_usage(self) -> Usage | None:
        """Return the usage; None if its numbers are missing, invalid or zero."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        cached = self.cache_read_input_tokens or 0
        tokens_in = self.input_tokens + (self.cache_creation_input_tokens or 0) + cached
        if not tokens_in:
            return None
        return Usage(tokens_in, self.output_tokens, cached)


class ContentBlock(BaseModel):
    """A part of a message: text, a tool call, or a type that is ignored, such as thinking."""

    type: Lenient[str] = None
    text: Lenient[str] = None
    name: Lenient[str] = None
    input: Any = None


class StopDetails(BaseModel):
    """Why the model refused to answer."""

    explanation: Lenient[str] = None


class ErrorBody(BaseModel):
    """An error reported inside an answer."""

    type: Lenient[str] = None
    message: Lenient[str] = None

    def to_model_error(self, model: str) -> ModelError:
        """Return the ModelError; ModelBusy if the same request may succeed later."""
        message = " ".join((self.message or self.type or "no reason given").split())[:200]
        error_type = ModelBusy if self.type in TRANSIENT_ERRORS else ModelError
        return error_type(f"anthropic: {model} broke its answer off: {message}")


class MessageBody(BaseModel):
    """A response message. Its content may be a text or missing too: some servers of other makers send that."""

    content: list[ContentBlock]
    model: Lenient[str] = None
    stop_reason: Lenient[str] = None
    stop_details: Lenient[StopDetails] = None
    usage: Lenient[UsageBody] = None

    @field_validator("content", mode="before")
    @classmethod
    def _to_blocks(cls, value: Any) -> Any:
        blocks = [value] if isinstance(value, str | dict) else value or []
        if not isinstance(blocks, list):
            return blocks
        blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        return [block for block in blocks if isinstance(block, dict)]


class ErrorAnswer(BaseModel):
    """A response that reports an error though its status says success."""

    error: ErrorBody


def parse_message(body: bytes | str, model: str) -> TextResult:
    """Parse a response message. Raises InvalidAnswer if it has another form, ModelError if it reports an error."""
    try:
        message = MessageBody.model_validate_json(body)
    except ValidationError as error:
        [problem, *_] = error.errors(include_url=False, include_input=False, include_context=False)
        location = ".".join(map(str, problem["loc"])) or "the whole response"
        try:
            reported = ErrorAnswer.model_validate_json(body)
        except ValidationError:
            raise InvalidAnswer(
                f"anthropic: {model} returned no valid message ({location}: {problem['msg']}); check ANTHROPIC_BASE_URL"
            ) from None
        raise reported.error.to_model_error(model) from None
    return build_result(
        model=message.model or model,
        text="".join(block.text or "" for block in message.content if block.type in ("text", None)),
        calls=[(block.name or "", block.input) for block in message.content if block.type == "tool_use"],
        stop_reason=message.stop_reason or "",
        stop_details=message.stop_details,
        usage=message.usage or UsageBody(),
    )


def build_result(
    *,
    model: str,
    text: str,
    calls: Sequence[tuple[str, object]],
    stop_reason: str,
    stop_details: StopDetails | None,
    usage: UsageBody,
) -> TextResult:
    """Return a TextResult; a notice instead of the text that a refusal has cut off.

    Raises InvalidAnswer if a tool call in it is invalid.
    """
    if stop_reason == "refusal":
        text = (stop_details.explanation if stop_details else None) or user_text("notices.no_answer")
        calls = ()
    return TextResult(
        text=text,
        model=model,
        usage=usage.to_usage(),
        is_truncated=stop_reason in TRUNCATION_REASONS,
        tool_calls=tuple(call for name, arguments in calls for call in _build_tool_calls(name, arguments, model)),
    )


def _build_tool_calls(name: str, arguments: object, model: str) -> list[ToolCall]:
    try:
        values = read_arguments(arguments) if name else []
    except ValueError:
        values = []
    if not values:
        raise InvalidAnswer(f"anthropic: {model} returned a tool call that cannot be read")
    return [ToolCall(name, given) for given in values]


if TYPE_CHECKING:
    import anthropic
else:
    anthropic = LazyModule("anthropic")

MAX_ANSWER_LENGTH = 1_000_000  # characters
STREAM_STARTS = (b"data:", b"event:", b":")


class MessageStart(BaseModel):
    """Model and usage at the start of a message."""

    model: Lenient[str] = None
    usage: Lenient[UsageBody] = None


class Delta(BaseModel):
    """The next part of a block or of the message."""

    type: Lenient[str] = None
    text: Lenient[str] = None
    partial_json: Lenient[str] = None
    stop_reason: Lenient[str] = None
    stop_details: Lenient[StopDetails] = None


class StreamEvent(BaseModel):
    """One event of a stream."""

    type: Lenient[str] = None
    index: Lenient[int] = None
    message: Lenient[MessageStart] = None
    content_block: Lenient[ContentBlock] = None
    delta: Lenient[Delta] = None
    usage: Lenient[UsageBody] = None
    error: Lenient[ErrorBody] = None


def is_stream(content_type: str, start: bytes) -> bool:
    """Return whether an answer is a stream of events, by its media type or its first bytes."""
    return "event-stream" in content_type or start.lstrip().startswith(STREAM_STARTS)


class MessageStream:
    """Reads the events of one message, passes its text to a sink, and returns the result at the end."""

    def __init__(self, model: str, sink: TextSink | None, memory: ResponseMemory) -> None:
        self._model = model
        self._sink = sink
        self._memory = memory
        self._text = ""
        self._block = 0  # the index of the latest
        self._hidden_blocks: set[int] = set()  # neither text nor calls
        self._calls: dict[int, tuple[str, object, str]] = {}  # name, input at the start, its JSON so far
        self._stop_reason = ""
        self._stop_details: StopDetails | None = None
        self._usage = UsageBody()
        self._is_done = False
        self._whole: TextResult | None = None

    async def read(self, response: Any, start: bytes = b"") -> TextResult:
        """Read the stream to its end, `start` being what was read of it, and return the result.

        Raises ModelBusy if the stream breaks off or reports a transient error, ModelError otherwise.
        """
        async for data in self._read_events(_single(start) if start else response.aiter_bytes()):
            await self._write("")
            if data.strip() not in ("", "null", "[DONE]"):
                await self._handle_event(data)
        if self._whole is not None:
            return self._whole
        if not self._is_done:
            raise ModelBusy(f"anthropic: the answer of {self._model} broke off")
        return build_result(
            model=self._model,
            text=self._text,
            calls=[(name, arguments or start) for name, start, arguments in self._calls.values()],
            stop_reason=self._stop_reason,
            stop_details=self._stop_details,
            usage=self._usage,
        )

    async def _handle_event(self, data: str) -> None:
        try:
            event = StreamEvent.model_validate_json(data)
        except ValidationError:
            raise ModelBusy(f"anthropic: {self._model} broke its answer off with {data[:80]!r}") from None
        if event.type == "error" or event.error:
            raise (event.error or ErrorBody()).to_model_error(self._model)
        if event.type == "message":  # the whole answer in one event
            self._whole = parse_message(data, self._model)
        elif event.type == "message_start" and event.message:
            self._model = event.message.model or self._model
            self._usage = event.message.usage or self._usage
            note_call(self._model, self._usage.to_usage())
        elif event.type == "content_block_start" and event.content_block:
            self._block = self._block + 1 if event.index is None else event.index
            await self._start_block(self._block, event.content_block)
        elif event.type == "content_block_delta" and event.delta:
            await self._add_delta(self._block if event.index is None else event.index, event.delta)
        elif event.type == "message_delta":
            self._usage = self._usage.updated(event.usage or UsageBody())
            self._stop_reason = (event.delta.stop_reason if event.delta else None) or self._stop_reason
            self._stop_details = (event.delta.stop_details if event.delta else None) or self._stop_details
            self._is_done |= bool(self._stop_reason)
        elif event.type == "message_stop":
            self._is_done = True

    async def _start_block(self, index: int, block: ContentBlock) -> None:
        if block.type == "tool_use":
            self._calls[index] = (block.name or "", block.input, "")
        elif block.type in ("text", None):
            await self._write(block.text or "")
        else:
            self._hidden_blocks.add(index)

    async def _add_delta(self, index: int, delta: Delta) -> None:
        if delta.text and index not in self._hidden_blocks and delta.type in ("text_delta", None):
            await self._write(delta.text)
        if delta.partial_json and index in self._calls:
            name, start, arguments = self._calls[index]
            self._calls[index] = (name, start, arguments + delta.partial_json)
            self._memory.extend(sum(len(arguments) for _, _, arguments in self._calls.values()))
            if len(arguments) > MAX_ANSWER_LENGTH:
                raise ModelError(f"anthropic: {self._model} called a function without an end")

    async def _write(self, text: str) -> None:
        """Pass on a piece; an empty one reports progress: any event shows that the server is alive."""
        self._text += text
        self._memory.extend(len(self._text))
        if len(self._text) > MAX_ANSWER_LENGTH:
            raise ModelError(f"anthropic: {self._model} wrote without an end")
        if self._sink is not None:
            await self._sink.write(text)

    async def _read_events(self, body: AsyncIterator[bytes]) -> AsyncIterator[str]:
        """Yield the data of each event, including pings."""
        response: Any = SimpleNamespace(aiter_bytes=lambda: self._memory.count(body, MAX_EVENT_BYTES))
        try:
            async for event in anthropic.AsyncStream.raw_events(response):
                self._memory.reset()
                yield event.data
        except ModelError:
            raise
        except Exception as error:  # the SDK's versions use different HTTP libraries
            raise ModelBusy(f"anthropic: an answer broke off: {type(error).__name__}") from error


async def _single(chunk: bytes) -> AsyncIterator[bytes]:
    yield chunk


KEY = "ANTHROPIC_API_KEY"


class AnthropicSettings(SettingsModel):
    """Key, server and models. Anthropic has no embedding model: another plugin must provide one."""

    CHARACTER_SETTINGS = frozenset(
        ["ANTHROPIC_API_KEY", "ANTHROPIC_SMALL_MODEL", "ANTHROPIC_LARGE_MODEL", "ANTHROPIC_MAX_TOKENS"]
    )

    anthropic_api_key: Secret | None = Field(None, description="The key.")
    anthropic_base_url: str = Field(
        "https://api.anthropic.com",
        pattern="^https?://",
        description="The server, without /v1; another one that speaks the same API, such as a proxy.",
    )
    anthropic_small_model: str = Field("claude-haiku-4-5", description="Decides whether to answer; cheap and quick.")
    anthropic_large_model: str = Field(
        "claude-sonnet-4-6", description="Writes the answers, and says what a picture shows."
    )
    anthropic_max_tokens: int = Field(
        4096, ge=1, description="The longest text, in tokens, where nothing else says it."
    )


def missing_settings(settings: Settings) -> str:
    """Return what is missing; empty if the key is set."""
    return "" if KEY in settings else f"set {KEY} in .env"


def privacy_statement(settings: Settings) -> str:
    """Return the statement to which server user data is sent."""
    host = host_label(settings.load(AnthropicSettings).anthropic_base_url)
    data = ", ".join(user_text(f"privacy.data.{name}") for name in ("text", "pictures"))
    return user_text("privacy.sent", host=host, data=data)


if TYPE_CHECKING:
    import anthropic
else:
    anthropic = LazyModule("anthropic")  # 48 MB, which a bot without this plugin does not need

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT = 10.0  # seconds; for the rest the router has deadlines
ORIGIN = ("scheme", "host", "port")
MAX_TEMPERATURE = 1.0
# The API accepts these, but the SDK has no parameters for them any more: newer models refuse them.
SAMPLING = ("temperature", "top_p", "top_k")
OPTIONAL = {  # parameters that can be omitted, and how an error names them
    "temperature": "temperature",
    "top_p": "top[_ -]?p",
    "top_k": "top[_ -]?k",
    "stop_sequences": "stop[_ ]sequences?",
    "output_config": "output_(?:config|format)|structured outputs?|json_schema",
    "cache_control": "cache_control|prompt caching",
}
EXCLUSIVE = re.compile(r"\b(?:both|either|together|only one|one of|mutually exclusive|combined?)\b", re.IGNORECASE)
MAX_TOKENS = re.compile(r"max_tokens\W+\d+ > (\d+)")
TOOLS = re.compile(r"\btools?\b|tool_choice|input_schema|\bfunctions?\b", re.IGNORECASE)
TOOL_SCHEMA = re.compile(r"\btools\W{1,2}\d|input_schema", re.IGNORECASE)


class Client(Service):
    """One connection pool to the API, opened and closed with the agent."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.settings = agent.settings.load(AnthropicSettings)
        key = self.settings.anthropic_api_key
        self._key = key.get_secret_value() if key else ""
        self._refused: dict[str, set[str]] = {}
        self._max_tokens: dict[str, int] = {}
        self._sdk = anthropic.AsyncAnthropic(
            api_key=self._key,
            base_url=self.settings.anthropic_base_url,
            max_retries=0,  # the router retries, and records each try
            timeout=anthropic.Timeout(None, connect=CONNECT_TIMEOUT),
            http_client=anthropic.DefaultAioHttpClient(event_hooks={"request": [self._check_origin]}),
        )

    async def __aexit__(self, *_: object) -> None:
        await self._sdk.close()

    async def _check_origin(self, request: Any) -> None:
        """Refuse every request to another server: a redirect would hand it the conversation."""
        server = self._sdk.base_url
        if any(getattr(request.url, part) != getattr(server, part) for part in ORIGIN):
            target = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
            raise ModelRefused(
                f"anthropic: {server.netloc.decode('ascii')} redirects to {target}, another server, to which nothing "
                "is sent: if it is the right one, set ANTHROPIC_BASE_URL to its address"
            )

    async def write(self, model: str, request: TextRequest) -> TextResult:
        """Return the text that a model writes.

        Raises ModelRefused if a retry cannot help, ModelBusy if the server is busy or too slow,
        ModelError otherwise.
        """
        body = build_request(request, request.model or model, self.settings.anthropic_max_tokens)
        return await self.send(body, request.sink)

    async def send(self, body: dict[str, Any], sink: TextSink | None = None) -> TextResult:
        """Send a request without what its model refused before. Raises as `write` does."""
        model = str(body["model"])
        note_call(model)
        for name in self._refused.get(model, ()):
            omit(name, body)
        body["max_tokens"] = min(body["max_tokens"], self._max_tokens.get(model, body["max_tokens"]))
        is_repeated = False
        while True:
            with self._mapped_errors():
                try:
                    return await self._fetch(body, sink)
                except anthropic.APIStatusError as error:
                    if self._adapt(body, error, is_repeated=is_repeated):
                        is_repeated = True
                        continue
                    raise

    def _adapt(self, body: dict[str, Any], error: "anthropic.APIStatusError", *, is_repeated: bool) -> bool:
        """Change a request by what the error refuses; return whether to send it again.

        It is also repeated once as it is if the error refuses what was not sent.
        """
        message = error.api_message or error.message
        if error.status_code not in (400, 422) or PROMPT_TOO_LONG.search(message) or TOOL_SCHEMA.search(message):
            return False
        model = str(body["model"])
        if (limit := MAX_TOKENS.search(message)) and 0 < int(limit[1]) < body["max_tokens"]:
            self._max_tokens[model] = body["max_tokens"] = int(limit[1])
            return True
        named = [name for name, words in OPTIONAL.items() if re.search(rf"\b(?:{words})\b", message, re.IGNORECASE)]
        refused = [name for name in named if has(name, body)]
        if len(named) > 1 and EXCLUSIVE.search(message) and not is_repeated:
            refused = refused[1:]
        for name in refused:
            logger.warning("%s refuses the parameter %s; it is omitted", model, name, extra={"once": True})
            omit(name, body)
            if name not in ("stop_sequences", "output_config"):  # other values of these may be accepted
                self._refused.setdefault(model, set()).add(name)
        return bool(refused) or (bool(named) and not is_repeated)

    async def _fetch(self, body: Mapping[str, Any], sink: TextSink | None) -> TextResult:
        """Send a request and return the result. An answer may be a stream or not, whatever was requested."""
        model = str(body["model"])
        parameters = {name: value for name, value in body.items() if name not in SAMPLING}
        if sink is not None:
            parameters["stream"] = True
        extra_body = {name: body[name] for name in SAMPLING if name in body} or None
        async with self._sdk.messages.with_streaming_response.create(**parameters, extra_body=extra_body) as answer:
            response = answer.http_response
            content_type = response.headers.get("content-type", "")
            memory = ResponseMemory(self.agent.memory, f"anthropic: {model}")
            start = b""
            if not is_stream(content_type, b""):
                start = b"".join([chunk async for chunk in memory.count(response.aiter_bytes())])
            if not is_stream(content_type, start):
                return parse_message(start, model)
            return await MessageStream(model, sink, memory).read(response, start)

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except anthropic.AnthropicError as error:
            raise to_model_error(error, self._sdk.base_url.netloc.decode("ascii"), self._key) from error


def build_request(request: TextRequest, model: str, max_tokens: int) -> dict[str, Any]:
    """Return the body of a request, without parameters that are not set.

    The tools and the system prompt are the same in each request; they are marked for the prompt cache.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": request.prompt}],
        "max_tokens": request.max_tokens or max_tokens,
    }
    if request.system:
        cache_control = {"type": "ephemeral"}
        body["system"] = [{"type": "text", "text": request.system, "cache_control": cache_control}]
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
            for tool in request.tools
        ]
    if request.schema is not None:
        schema = {"type": "json_schema", "schema": anthropic.transform_schema(dict(request.schema))}
        body["output_config"] = {"format": schema}
    if request.stop:
        body["stop_sequences"] = list(request.stop)
    body |= {name: value for name in SAMPLING if (value := getattr(request, name)) is not None}
    if "temperature" in body:
        body["temperature"] = min(body["temperature"], MAX_TEMPERATURE)
    return body


def has(name: str, body: Mapping[str, Any]) -> bool:
    """Return whether a request contains a parameter; `cache_control` is one of the system prompt."""
    return "cache_control" in body["system"][0] if name == "cache_control" and "system" in body else name in body


def omit(name: str, body: dict[str, Any]) -> None:
    """Remove a parameter from a request."""
    if name == "cache_control" and "system" in body:
        body["system"][0].pop(name, None)
    body.pop(name, None)


REFUSAL_STATUSES = (400, 401, 402, 403, 404, 405, 413, 422)
NO_CREDIT_CODES = frozenset({"contract_spend_limit_reached", "enforced_spend_limit_reached"})
PROMPT_TOO_LONG = re.compile(r"prompt is too long|exceed\w* (?:the )?context|context (?:limit|window)", re.IGNORECASE)


def to_model_error(error: "anthropic.AnthropicError", host: str, key: str) -> ModelError:
    """Return the ModelError for an error of the SDK; its message does not contain the key."""
    if isinstance(error.__cause__, ModelRefused):
        return error.__cause__
    if isinstance(error, anthropic.APIConnectionError):
        return _to_connection_error(find_cause(error), host, key)
    if not isinstance(error, anthropic.APIStatusError):
        return ModelError(f"anthropic: {_shorten_message(str(error), key)}")
    return _to_status_error(error, host, key)


def _to_connection_error(cause: BaseException, host: str, key: str) -> ModelError:
    if isinstance(cause, aiohttp.ServerTimeoutError):
        return ModelBusy(f"anthropic: no connection to {host} in time")
    if isinstance(cause, aiohttp.ClientConnectorError):
        message = f"anthropic: cannot connect to {host}: {_shorten_message(str(cause.__cause__ or cause), key)}"
        return ModelUnreachable(f"{message}; check the network and ANTHROPIC_BASE_URL")
    return ModelBusy(f"anthropic: no answer from {host}: {_shorten_message(str(cause), key)}")


def _to_status_error(error: "anthropic.APIStatusError", host: str, key: str) -> ModelError:
    status, message = error.status_code, _shorten_message(error.api_message or error.message, key)
    if status == 401:
        return ModelRefused(f"anthropic: {host} refused the key in ANTHROPIC_API_KEY (401): set a valid key")
    if status == 404:
        return ModelRefused(
            f"anthropic: {host} does not know the model or path (404): check ANTHROPIC_LARGE_MODEL, "
            "ANTHROPIC_SMALL_MODEL and ANTHROPIC_BASE_URL"
        )
    if status == 402 or error.error_code in NO_CREDIT_CODES:
        return ModelRefused(f"anthropic: {host} has no credit left for the key: {message}")
    if status in REFUSAL_STATUSES:
        error_type: type[ModelRefused] = ModelRefused
        if status in (400, 413) and PROMPT_TOO_LONG.search(message):
            error_type = PromptTooLong
        elif status in (400, 422) and TOOLS.search(message):
            error_type = ToolsRefused
        return error_type(f"anthropic: {host} refused the request ({status}): {message}")
    retry_after = parse_retry_after(error.response.headers, datetime.now(UTC))
    return ModelBusy(f"anthropic: {host} cannot answer now ({status}): {message}", retry_after=retry_after)


def _shorten_message(message: str, key: str) -> str:
    return " ".join(message.replace(key, "[the key]").split())[:200]


DEFAULT_DESCRIPTION_PROMPT = "Describe this picture in a few sentences."
MAX_DESCRIPTION_TOKENS = 1024


async def _describe_small(agent: Agent) -> ModelInfo:
    return ModelInfo(agent.services[Client].settings.anthropic_small_model)


async def _describe_large(agent: Agent) -> ModelInfo:
    return ModelInfo(agent.services[Client].settings.anthropic_large_model)


@model(ModelType.TEXT_SMALL, can_call_tools=True, describe_model=_describe_small)
async def small(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the small model."""
    client = agent.services[Client]
    return await client.write(client.settings.anthropic_small_model, request)


@model(ModelType.TEXT_LARGE, can_call_tools=True, describe_model=_describe_large)
async def large(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the large model."""
    client = agent.services[Client]
    return await client.write(client.settings.anthropic_large_model, request)


@model(ModelType.IMAGE_DESCRIPTION)
async def describe_image(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
    """Return a description of a picture."""
    client = agent.services[Client]
    data = base64.b64encode(request.image).decode("ascii")
    source = {"type": "base64", "media_type": request.content_type, "data": data}
    content = [
        {"type": "image", "source": source},
        {"type": "text", "text": request.prompt or DEFAULT_DESCRIPTION_PROMPT},
    ]
    body = {
        "model": client.settings.anthropic_large_model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": MAX_DESCRIPTION_TOKENS,
    }
    return await client.send(body)
