"""Build and send requests, omit refused parameters, and map errors."""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bot import Agent, Service
from bot.models import (
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelUnreachable,
    PromptTooLong,
    ResponseMemory,
    TextRequest,
    TextResult,
    TextSink,
    ToolsRefused,
    note_call,
    parse_retry_after,
)
from bot.platform import LazyModule
from plugins.anthropic.responses import parse_message
from plugins.anthropic.settings import AnthropicSettings
from plugins.anthropic.streaming import MessageStream, is_stream

if TYPE_CHECKING:
    import anthropic
else:
    anthropic = LazyModule("anthropic")  # 48 MB, which a bot without this plugin does not need

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT = 10.0  # seconds; for the rest the router has deadlines
ORIGIN = ("scheme", "host", "port")
CONNECT_ERROR = "ConnectError"  # in each of the HTTP libraries that the versions of the SDK use
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
            http_client=anthropic.DefaultAsyncHttpxClient(event_hooks={"request": [self._check_origin]}),
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
        body = build_request(request, model, self.settings.anthropic_max_tokens)
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
    if isinstance(error, anthropic.APITimeoutError):
        return ModelBusy(f"anthropic: no connection to {host} in time")
    if type(error.__cause__).__name__ == CONNECT_ERROR:
        message = f"anthropic: cannot connect to {host}: {_shorten_message(str(error.__cause__), key)}"
        return ModelUnreachable(f"{message}; check the network and ANTHROPIC_BASE_URL")
    if isinstance(error, anthropic.APIConnectionError):
        return ModelBusy(f"anthropic: no answer from {host}: {_shorten_message(error.message, key)}")
    if not isinstance(error, anthropic.APIStatusError):
        return ModelError(f"anthropic: {_shorten_message(str(error), key)}")
    return _to_status_error(error, host, key)


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
