"""Public module for model plugins whose server speaks OpenAI's API: connections, calls and handlers.

A plugin subclasses `CompatibleClient` with its endpoints, and `make_handlers` returns its handlers.

Sources of context windows: llama.cpp's tools/server/README.md (`/props`), Ollama's docs/api.md (`/api/show`,
`/api/ps`), LM Studio's "REST API v0" (`/api/v0/models`).
"""

import asyncio
import base64
import codecs
import io
import json
import logging
import os
import re
import struct
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from ipaddress import ip_address
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from bot.concurrency.tasks import MemorySemaphore
from bot.errors import InvalidAnswer, ModelBusy, ModelError, ModelRefused, ModelUnreachable, PromptTooLong, ToolsRefused
from bot.fetch.client import Proxies, build_tls_context, find_cause
from bot.http import host_label
from bot.models.handler import MAX_PLAUSIBLE_TOKENS, SAMPLING, ResponseMemory, note_call
from bot.models.listing import ModelListing
from bot.models.router import parse_retry_after, parse_values, read_arguments
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ModelInfo,
    ModelType,
    TextRequest,
    TextResult,
    TextSink,
    ToolCall,
    Usage,
)
from bot.plugin_system.components import Model, Service, SettingsCondition, model
from bot.plugin_system.loading import LazyModule
from bot.prompts.reply_parser.dialects import clean, clean_name
from bot.prompts.reply_parser.field_scanner import decode_value
from bot.prompts.reply_parser.server_bodies import message_of
from bot.settings import Secret, Settings, SettingsModel
from bot.text import redact, shorten, user_text
from bot.turn import Agent

if TYPE_CHECKING:
    import openai
else:
    openai = LazyModule("openai")  # which a bot without a plugin for its API does not need

__all__ = [
    "OLLAMA_OWNER",
    "OPENAI_HOST",
    "CompatibleClient",
    "Connection",
    "Endpoint",
    "complete",
    "embed",
    "list_entries",
    "make_handlers",
    "ollama_window",
    "read_usage",
]

logger = logging.getLogger(__name__)

OPENAI_HOST = "api.openai.com"
# What the SDK would tell every server about this machine.
PLATFORM_HEADERS = tuple(
    f"X-Stainless-{name}" for name in ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")
)
LOCAL_SUFFIXES = (".local", ".localhost", ".internal", ".lan", ".home.arpa")
REFUSAL_STATUSES = (400, 401, 402, 403, 404, 405, 410, 413, 415, 422)
TOO_LONG_STATUSES = (400, 402, 422, 500)  # for a reason in PROMPT_TOO_LONG
# These are searched for in the code, the type and the message of an error.
NO_CREDIT = re.compile(
    r"insufficient.{0,9}(?:quota|balance)|billing_(?:hard_limit|not_active)|exceeded_current_quota|余额不足",
    re.IGNORECASE,
)
CONTENT_REFUSED = re.compile(
    r"^1301\b|content.?(?:filter|policy(?!_fallback))|moderation_blocked|flagged by moderation|data.?inspection"
    r"|responsible.?ai|content management policy|content exists risk|usage guidelines|new_sensitive",
    re.IGNORECASE,
)
FAILED_ANSWER = re.compile(r"^(?:tool_use|json_validate)_failed\b|failed_generation", re.IGNORECASE)
PROMPT_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|context (?:length|size|window|limit)|model token limit"
    r"|maximum (?:context|model length|prompt length|supported sequence)|range of input length|large for model"
    r"|\b(?:prompt|input)\b.{0,30}(?:too (?:long|large)|exceed)|prompt tokens limit|reduce (?:the length|your message)"
    r"|\binputs`? (?:tokens \+|must have less)|must be at least 1, got -|(?:entity|payload|request) too large",
    re.IGNORECASE,
)
# The status that an error in a response without an error status stands for, unless its code is a status.
MEANINGS = (
    (400, PROMPT_TOO_LONG),
    (402, re.compile(r"credits?\b|billing|insufficient|balance|payment", re.IGNORECASE)),
    (401, re.compile(r"api.?key|authenticat|unauthori[sz]ed", re.IGNORECASE)),
    (429, re.compile(r"rate.?limit|too.many|throttl|quota", re.IGNORECASE)),
    (404, re.compile(r"not.?found|does not exist", re.IGNORECASE)),
    (400, CONTENT_REFUSED),
    (400, re.compile(r"invalid.request|bad.?request", re.IGNORECASE)),
)
BUSY_STATUS = 503
END = object()
ERROR_TEXTS = ("message", "detail", "status_msg")
ERRORS = (("error",), ("errors",), ("x_groq", "error"))  # the paths to an error in a response
TITLE = re.compile(r"<title>\s*([^<]+?)\s*<", re.IGNORECASE)
STATUS = re.compile(r"([45]\d\d)(?:\.0)?")
CONNECT_TIMEOUT = 10.0  # seconds; for the rest the router has deadlines
MAX_RESPONSE_BYTES, MAX_ERROR_BYTES = 64 << 20, 64 << 10
ORIGIN = ("scheme", "host", "port")


@dataclass(frozen=True)
class Endpoint:
    """A server and its key, with what messages about it must name.

    `provider` is the plugin's name. `url` is None for OpenAI's own server. `url_name` and `key_name` are the
    variables that set the two. `model_advice` says what to do about an unknown model; "{model}" in it is
    replaced by the model's name.
    """

    provider: str
    url: str | None
    key: Secret | None
    url_name: str
    key_name: str
    model_advice: str

    @property
    def is_configured(self) -> bool:
        """Whether a server or a key is set."""
        return self.url is not None or self.key is not None

    @cached_property
    def is_local(self) -> bool:
        """Whether the server is on this machine or in its network."""
        host = (urlsplit(self.url).hostname or "") if self.url is not None else OPENAI_HOST
        try:
            address = ip_address(host)
        except ValueError:
            return "." not in host or host.endswith(LOCAL_SUFFIXES)  # such as "ollama" between containers
        return address.is_private or address.is_loopback

    @cached_property
    def is_openai(self) -> bool:
        """Whether the server is OpenAI itself."""
        return self.url is None or urlsplit(self.url).hostname == OPENAI_HOST

    @property
    def length_parameter(self) -> str:
        """The name of the parameter that limits the length of an answer."""
        return "max_completion_tokens" if self.is_openai else "max_tokens"


def member(value: object, *path: str | int) -> Any:
    """Return the member of nested JSON values that a path of names and indexes leads to; None if there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def to_text(value: object) -> str:
    """Return a value that is a text; blank if it is not one."""
    return value if isinstance(value, str) else ""


def is_error(value: object) -> bool:
    """Return whether a JSON value reports an error instead of a result."""
    is_result = member(value, "choices") or member(value, "data")
    has_text = not is_result and any(to_text(member(value, name)) for name in ERROR_TEXTS)
    return bool(has_text or any(member(value, *path) for path in (*ERRORS, ("base_resp", "status_code"))))


class ServerError(Exception):
    """An error that a server reports, by its status or in the body of a response without an error status.

    `is_partial` says that a part of an answer came before it, `is_too_long` that the prompt is longer than the model
    can read, `is_declined` that the provider declines its content, `is_of_answer` that the server could not read what
    the model wrote.
    """

    def __init__(
        self, body: object, status: int = 0, headers: Mapping[str, str] | None = None, *, is_partial: bool = False
    ) -> None:
        super().__init__(f"error {status}")
        self.is_partial = is_partial
        body = member(body, 0) or body
        every_field = (member(body, *path) for path in (*ERRORS, ("base_resp",)))
        fields = next((found for found in every_field if found and isinstance(found, str | dict | list)), body)
        fields = member(fields, 0) or fields
        found = next(filter(None, (member(fields, name) for name in ERROR_TEXTS)), fields)
        raw = member(fields, "metadata", "raw")  # what OpenRouter got from the provider
        self.message = found if isinstance(found, str) else json.dumps(found, default=str)
        self.message += f" {raw}" if raw else ""
        if title := TITLE.search(self.message):
            self.message = title[1]
        if window := member(fields, "n_ctx"):
            self.message += f"; n_ctx: {window}"
        self.code, self.type, self.param = (str(member(fields, name) or "") for name in ("code", "type", "param"))
        self.text = f"{self.code} {self.type} {self.message}"
        inner = member(fields, "metadata", "headers")
        every = {**(headers or {}), **(inner if isinstance(inner, dict) else {})}
        self.headers = {str(name).lower(): str(value) for name, value in every.items()}
        self.status = status = status or self._find_status(member(fields, "status"))
        is_too_long = status in TOO_LONG_STATUSES and bool(PROMPT_TOO_LONG.search(self.text))
        self.is_too_long = is_too_long or status == 413 or "Request too large" in self.text
        self.is_declined = status in REFUSAL_STATUSES and bool(CONTENT_REFUSED.search(self.text))
        self.is_of_answer = bool(FAILED_ANSWER.search(self.text))

    def _find_status(self, named: object) -> int:
        numbers = (match[1] for value in (self.code, named) if (match := STATUS.fullmatch(str(value))))
        meant = (status for status, words in MEANINGS if words.search(f"{named} {self.text}"))
        return int(next(numbers, 0)) or next(meant, BUSY_STATUS)


async def _split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[str | None]:
    r"""Yield the lines of a body and then None; they end with \n, \r or \r\n: a text may contain other separators."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")("replace"), translate=True)
    parts: list[str] = []
    async for chunk in chunks:
        first, *others = decoder.decode(chunk).split("\n")
        parts.append(first)
        for line in others:
            yield "".join(parts)
            parts = [line]
    yield "".join(parts)
    yield None


async def read_values(chunks: AsyncIterator[bytes], memory: ResponseMemory) -> AsyncIterator[Any]:
    """Yield the JSON values of a body, and END for each end mark.

    It may be an event stream, JSON lines, objects one after another, or one value. Raises ValueError with the text that
    is not JSON, and ModelError where a value takes more than is left of `memory`.
    """
    pending: list[str] = []
    async for line in _split_lines(memory.count(chunks)):
        if not pending:
            memory.reset()
        name, colon, data = (line or "").partition(":")
        if colon and name in ("", "event", "id", "retry"):
            continue
        part = data.removeprefix(" ") if colon and name == "data" else line or ""
        if part.strip(' "').casefold() == "[done]":
            yield END
            continue
        pending.append(part)
        # A value that takes several lines ends with one that is not indented; other lines are not worth an attempt.
        if line and (not part.endswith(("}", "]")) or part[0].isspace()):
            continue
        text = "\n".join(pending).strip()
        values, rest = parse_values(text)
        if rest and not line:
            raise ValueError(text)
        if not rest:
            pending.clear()
            for value in values:
                yield value


async def _check_response(response: Any) -> None:
    """Raise ServerError for an error status, with the beginning of the body: the SDK reads all of it."""
    if response.status_code >= 300 and not response.has_redirect_location:
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_ERROR_BYTES:
                break
        text = body[:MAX_ERROR_BYTES].decode("utf-8", "replace")
        values, rest = parse_values(text)
        raise ServerError(values[0] if values and not rest else text, response.status_code, response.headers)


class Connection:
    """A connection to one server. `CompatibleClient` opens and closes it; its errors contain none of the secrets."""

    def __init__(self, endpoint: Endpoint, secrets: frozenset[str], memory: MemorySemaphore) -> None:
        url = endpoint.url or f"https://{OPENAI_HOST}/v1"
        proxy = Proxies.from_environment(os.environ).proxy_for(URL(url))
        self.endpoint, self.secrets, self._memory = endpoint, secrets, memory
        self.sdk = openai.AsyncOpenAI(
            api_key=endpoint.key.get_secret_value() if endpoint.key else "none",
            base_url=url,
            default_headers=dict.fromkeys(PLATFORM_HEADERS, openai.Omit()),  # type: ignore[arg-type]  # removes them
            max_retries=0,  # the router retries, and records each try
            timeout=openai.Timeout(None, connect=CONNECT_TIMEOUT),
            http_client=openai.DefaultAioHttpClient(
                proxy=str(proxy) if proxy else None,
                trust_env=False,  # the proxy and the certificates are those of the bot's other connections
                verify=build_tls_context(),
                event_hooks={"request": [self._check_request], "response": [_check_response]},
            ),
        )
        # The host of the server, with its port where the URL names one.
        self.host = self.sdk.base_url.netloc.decode("ascii")
        # What each model has refused, ignored or not listed: parameters, and the role "system".
        self.refused: defaultdict[str, set[str]] = defaultdict(set)
        self.max_tokens: dict[str, int] = {}  # the longest answer that a model allows, where it has said so

    async def _check_request(self, request: Any) -> None:
        """Refuse a redirect to another server: it would receive the conversation."""
        if any(getattr(request.url, part) != getattr(self.sdk.base_url, part) for part in ORIGIN):
            target = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
            raise ModelRefused(
                f"{self.name} redirects to {target}, another server, to which nothing is sent: if it is the right one, "
                f"set {self.endpoint.url_name} to its address"
            )
        if self.endpoint.key is None:
            request.headers.pop("Authorization", None)  # the SDK requires a key

    @property
    def name(self) -> str:
        """The plugin's name and the server, with which errors begin."""
        return f"{self.endpoint.provider}: {self.host}"

    def shorten(self, message: str) -> str:
        """Return a message in one line of at most 200 characters, without secrets."""
        return shorten(redact(message, self.secrets), 200)

    @contextmanager
    def mapped_errors(self, model: str = "") -> Iterator[None]:
        """Map errors of requests inside the block, which asks for this model.

        Raises ModelRefused if a retry cannot help, ModelUnreachable if there is no connection, ModelBusy if
        the server is busy or too slow, ModelError otherwise.
        """
        try:
            yield
        except ServerError as error:
            raise self._map_server_error(error, model) from error
        except openai.APIConnectionError as error:
            raise self._map_connection_error(find_cause(error)) from error
        except openai.OpenAIError as error:
            raise ModelError(f"{self.endpoint.provider}: {self.shorten(str(error))}") from error

    def _map_connection_error(self, cause: BaseException) -> ModelError:
        if isinstance(cause, aiohttp.ServerTimeoutError):
            return ModelBusy(f"{self.endpoint.provider}: no connection to {self.host} in time")
        reason = cause.__cause__ if isinstance(cause, aiohttp.ClientConnectorError) else None
        message = f"{self.host}: {self.shorten(str(reason or cause) or type(cause).__name__)}"
        if not isinstance(cause, aiohttp.ClientConnectorError):
            return ModelBusy(f"{self.endpoint.provider}: no answer from {message}")
        advice = f"start the server, or correct {self.endpoint.url_name}"
        return ModelUnreachable(f"{self.endpoint.provider}: cannot connect to {message}; {advice}")

    def _map_server_error(self, error: ServerError, model: str) -> ModelError:
        status, message, key_name = error.status, self.shorten(error.message), self.endpoint.key_name
        advice = self.endpoint.model_advice.replace("{model}", model or "NAME") + (message and f": {message}")
        has_no_credit = status in (429, 500) and NO_CREDIT.search(error.text)
        refusal = f"refused the request ({status}): {message}"
        meanings: tuple[tuple[object, type[ModelError], str], ...] = (
            (status == 401, ModelRefused, f"refused the key in {key_name} (401): set a valid key"),
            (status == 404, ModelRefused, f"does not know the model or path (404): {advice}"),
            (error.is_too_long, PromptTooLong, refusal),
            (has_no_credit, ModelRefused, f"has no credit left for the key in {key_name}: {message}"),
            (error.is_of_answer, InvalidAnswer, f"could not read what the model wrote ({status}): {message}"),
            (status in REFUSAL_STATUSES, ModelRefused, refusal),
        )
        for is_meant, error_type, words in meanings:
            if is_meant:
                return error_type(f"{self.name} {words}")
        what = "broke its answer off" if error.is_partial else "cannot answer now"
        retry_after = parse_retry_after(error.headers, datetime.now(UTC), error.message)
        return ModelBusy(f"{self.name} {what} ({status}): {message}", retry_after=retry_after)

    def response_memory(self, model: str) -> ResponseMemory:
        """Return the memory of a new response of a model."""
        return ResponseMemory(self._memory, f"{self.endpoint.provider}: {model}")

    async def read_chunks(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the pieces of a body.

        Raises ModelBusy if the body breaks off or is larger than MAX_RESPONSE_BYTES.
        """
        length = 0
        try:
            async for chunk in body:
                length += len(chunk)
                if length > MAX_RESPONSE_BYTES:
                    raise ValueError(f"the response is larger than {MAX_RESPONSE_BYTES} bytes")
                yield chunk
        except Exception as error:  # the SDK passes on those of its HTTP library
            cause = self.shorten(str(error) or type(error).__name__)
            raise ModelBusy(f"{self.endpoint.provider}: an answer broke off: {cause}") from error

    @asynccontextmanager
    async def open(self, path: str, body: Mapping[str, Any] | None = None, **options: Any) -> AsyncIterator[Any]:
        """Send a request to a path, or a URL, by POST if it has a body; yield the pieces of the response as they come.

        `options` are those of the SDK, which raises its own errors; the pieces raise as `read_chunks` does.
        """
        sent = {"idempotency_key": "none", **options.get("options", {})}  # not sent, but a random one takes time
        options |= {"cast_to": object, "stream": True, "stream_cls": openai.AsyncStream[object], "options": sent}
        request = self.sdk.get(path, **options) if body is None else self.sdk.post(path, body=body, **options)
        async with await request as stream:
            yield self.read_chunks(stream.response.aiter_bytes())

    async def fetch(self, path: str, kind: str, body: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Return the JSON value that a request made as by `open` is answered with; `kind` names it in errors.

        Raises InvalidAnswer if there is none, and as `mapped_errors` does.
        """
        model = str(member(body, "model") or "")
        name = model or "the server"
        with self.mapped_errors(model):
            async with self.open(path, body, **options) as chunks:
                try:
                    values = [value async for value in read_values(chunks, self.response_memory(name))]
                except ValueError:
                    values = []
            if not values:
                raise self.invalid(name, kind)
            if is_error(values[0]):
                raise ServerError(values[0])
            return values[0]

    def invalid(self, name: str, kind: str) -> InvalidAnswer:
        """Return the error for a response that is not what its kind says; the name is that of a model."""
        return InvalidAnswer(
            f"{self.endpoint.provider}: {name} returned no valid {kind}; check {self.endpoint.url_name}"
        )


OLLAMA_OWNER = "library"
DEFAULT_OLLAMA_WINDOW = 4096  # `num_ctx` where neither the model nor the server sets it
NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)
CONTEXT_LENGTH = ".context_length"  # after the name of the architecture


async def find_window(connection: Connection, model: str, owner: str) -> tuple[int | None, bool]:
    """Return how many tokens a server gives to a prompt and its answer, and whether that is final.

    None if it does not say. Only the servers of these three are asked: `owner` is what the list of models says of who
    made this one. Ollama knows it only when the model is in memory.
    """
    root = str(connection.sdk.base_url).rstrip("/").removesuffix("/v1")

    async def fetch(path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            return await connection.fetch(f"{root}{path}", "description", body)
        except ModelError:  # an old version may not have this path
            return None

    if owner == "llamacpp":
        return _first_count([member(await fetch("/props"), "default_generation_settings", "n_ctx")]), True
    if owner == OLLAMA_OWNER:
        if loaded := _find_count(member(await fetch("/api/ps"), "models"), "name", model, "context_length"):
            return loaded, True
        return ollama_window(await fetch("/api/show", {"model": model})), False
    if owner.replace("-", "_") == "organization_owner":
        listed = member(await fetch("/api/v0/models"), "data")
        return _find_count(listed, "id", model, "loaded_context_length"), True
    return None, True


def ollama_window(shown: Any) -> int | None:
    """Return the context window that Ollama will give to a model, from its description; None without one."""
    info = member(shown, "model_info")
    pairs = info.items() if isinstance(info, dict) else ()
    trained = _first_count(value for key, value in pairs if str(key).endswith(CONTEXT_LENGTH))
    named = NUM_CTX.search(str(member(shown, "parameters") or ""))
    return None if trained is None else min(trained, int(named[1]) if named else DEFAULT_OLLAMA_WINDOW)


def _find_count(entries: object, key: str, model: str, name: str) -> int | None:
    """Return the count of this name in the entry whose key is the model."""
    named = [entry for entry in entries if member(entry, key) == model] if isinstance(entries, list) else []
    return _first_count(member(entry, name) for entry in named)


def _first_count(values: Iterable[object]) -> int | None:
    return next((value for value in values if type(value) is int and value > 0), None)


MAX_ANSWER_LENGTH = 1_000_000  # characters
REST_SECONDS = 2.0  # for what follows a finish reason or the end mark, such as the usage
FILTERED = re.compile(r"filter|safety|refusal|recitation|prohibited|blocklist|spii|sensitive|guardrail", re.IGNORECASE)
TRUNCATED = ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded")
FAILED = ("error", "network_error", "abort", "insufficient_system_resource")  # finish reasons
CONTENTS = ("content", "tool_calls", "function_call", "refusal", "parsed")  # members of a message
MAX_THOUGHTS = 65_536  # characters in which an answer is looked for
# Members with vectors: of OpenAI, Ollama, Gemini, Cohere, Cloudflare, DashScope and others.
VECTORS = ("data", "embeddings", "embedding", "vectors", "vector", "values", "float", "result", "output", "predictions")
CALL_PARTS = (None, "function", "tool_use", "tool_call", "function_call")
THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
ARGUMENTS = ("arguments", "parameters", "input")  # members of a call
MIN_REPEATED_LENGTH = 8  # characters; shorter pieces may begin like the whole text by chance

# What can be omitted if an error names it.
LENGTHS = ("max_tokens", "max_completion_tokens")  # where a server refuses the name of the limit, the other one is sent
OPTIONAL = (*LENGTHS, "response_format", "stream_options", "stop", "repeat_penalty", *SAMPLING)
ORDINARY_WORDS = ("seed", "stop")  # these count only behind a quote, another mark or such a word
BEFORE_WORDS = r"(?:['\"`:>,]|parameters?\b|argument\b) ?"
PARAMETER_ERROR_STATUSES = (400, 422, 500, 501)
NO_TOOLS = re.compile(
    r"support (?:this )?tool|not support(?:ed for)? (?:tool|function)|(?:tools?|functions?)\b.{0,30}\b(?:is|are) not "
    r"(?:supported|enabled|available)|--jinja|--enable-auto-tool-choice|(?:unknown|unrecogni[sz]ed|unexpected|unsupported"
    r"|extra|not support parameters)\b.{0,40}\btools\b(?!\[|\.)"
    r"|\btools\b(?:\W{0,6}msg)?.{0,5}(?:extra inputs|unknown|unexpected)",
    re.IGNORECASE,
)
NO_STREAM = re.compile(
    r"\bstream(?:ing)?\b(?!_).{0,60}(?:\bnot?\b|n't|unsupported|verified|disabled)|\bnot\b.{0,30}\bstream(?:ing)?\b(?!_)",
    re.IGNORECASE,
)
TOOLS = re.compile(r"\btools?\b|\bfunctions?\b|schema|grammar", re.IGNORECASE)
SCHEMA = re.compile(r"json.?schema|json_object|structured.outputs?|response.?format|grammar", re.IGNORECASE)
NO_SYSTEM_ROLE = re.compile(
    r"\b(?:system|developer)\b.{0,60}(?:\bnot?\b|n't|unsupported|invalid|disabled|unknown)"
    r"|(?:\bnot?\b|n't|unsupported|invalid|unknown|unexpected)\b.{0,60}\b(?:system|developer)\b"
    r"|\broles?\b.{0,40}\balternat|\bonly\b.{0,40}\broles?\b",
    re.IGNORECASE | re.DOTALL,
)
# Models on this machine often do not know the end of their template, and go on with invented turns.
END_TOKENS = ["<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|endoftext|>"]
DEFAULT_DESCRIPTION_PROMPT = "Describe this picture in a few sentences."
MAX_DESCRIPTION_TOKENS = 1024  # if no setting of the plugin says otherwise
LENGTH_ERROR = re.compile(r"max_(?:completion_|output_|new_)?tokens")
NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+\b|\d+")
MIN_LENGTH = 64  # tokens; a smaller number in an error is not the longest answer
BATCH_ERROR = re.compile(r"\bbatch\b|array too long|too many inputs|\(413\)", re.IGNORECASE)
SYSTEM = "system"  # among the refused parameters: the role of a message


class CompatibleClient(Service):
    """All connections of one plugin, opened and closed with the agent; subclassed by each plugin.

    `provider` is the plugin's name, with which the names of its settings begin, and `settings_type` their class.
    `capabilities` are what its servers do, the blank one is to write texts, and the user data that each is sent, as
    named in the texts for users; blank for none. `endpoints` are the servers by capability, those of `endpoint_for` if
    none are given; the blank one is also for capabilities without one. `wanted` are the models that settings name, by
    variable, those of the `listed` capabilities if none are given. With `lists_at_start`, the server for text is asked
    for its models at start, and those of the wanted ones that it does not have are logged.
    """

    provider: ClassVar[str]
    settings_type: ClassVar[type[SettingsModel]]
    capabilities: ClassVar = {"": "text", "EMBEDDING": "searchable", "IMAGE_DESCRIPTION": "pictures"}
    listed: ClassVar[Sequence[str]] = ()
    lists_at_start: ClassVar[bool] = False

    def __init__(
        self,
        agent: Agent,
        settings: Any = None,
        endpoints: Mapping[str, Endpoint] | None = None,
        wanted: Mapping[str, str | None] | None = None,
    ) -> None:
        super().__init__(agent)
        self.settings: Any = settings or agent.settings.load(self.settings_type)
        endpoints = endpoints or {name: self.endpoint_for(self.settings, name) for name in self.capabilities}
        names = {name: self.model_for(self.settings, name) for name in self.listed}
        wanted = wanted or {f"{self.provider}_{name}_MODEL".upper(): model for name, model in names.items()}
        secrets = frozenset(endpoint.key.get_secret_value() for endpoint in endpoints.values() if endpoint.key)
        opened = {endpoint: Connection(endpoint, secrets, agent.memory) for endpoint in set(endpoints.values())}
        self._connections = {capability: opened[endpoint] for capability, endpoint in endpoints.items()}
        text = self.connection()
        self.listing = ModelListing(
            self.fetch_models, provider=self.provider, host=text.host, advice=text.endpoint.model_advice, wanted=wanted
        )
        self.owners: dict[str, str] = {}  # of the models that the server lists
        self._text_models: dict[str, str] = {}  # as the settings name them
        self._windows: dict[str, int | None] = {}
        self._is_unlisted = False

    async def __aenter__(self) -> Self:
        if self.lists_at_start:
            await self.listing.log()
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections.values():
            await connection.sdk.close()

    @classmethod
    def model_for(cls, settings: Any, capability: str) -> str:
        """Return the model that the settings name for a capability; blank if they name none."""
        return getattr(settings, f"{cls.provider}_{capability.lower()}_model") or ""

    @classmethod
    def endpoint_for(cls, settings: Any, capability: str = "") -> Endpoint:
        """Return the server that the settings name for a capability; blank for text."""
        raise NotImplementedError

    @classmethod
    def serves(cls, capability: str = "") -> SettingsCondition:
        """Return the condition that the settings name a model for a capability; a server or a key for text."""

        def is_served(settings: Settings) -> bool:
            values = settings.load(cls.settings_type)
            return cls.model_for(values, capability) != "" if capability else cls.endpoint_for(values).is_configured

        return is_served

    @classmethod
    def privacy_statement(cls, settings: Settings, unused: Collection[str] = ()) -> str:
        """Return the statement to which servers user data is sent; none is sent for capabilities that are unused."""
        values, sent = settings.load(cls.settings_type), defaultdict[str, list[str]](list)
        for capability, data in cls.capabilities.items():
            if data and capability not in unused and cls.serves(capability)(settings):
                url = cls.endpoint_for(values, capability).url or f"https://{OPENAI_HOST}"
                sent[host_label(url)].append(user_text(f"privacy.data.{data}"))
        return " ".join(user_text("privacy.sent", host=host, data=", ".join(data)) for host, data in sent.items())

    def connection(self, capability: str = "") -> Connection:
        """Return the connection of a capability; blank for text."""
        return self._connections.get(capability) or self._connections[""]

    def known_model(self, size: str) -> str:
        """Return the model for texts of a size, e.g. "LARGE"; blank if it is not known yet."""
        if size not in self._text_models:
            self._text_models[size] = self.model_for(self.settings, size)
        return self._text_models[size]

    async def text_model(self, size: str) -> str:
        """Return the model for texts of a size. Raises ModelError if it cannot be found out."""
        return self.known_model(size)

    async def describe_model(self, size: str) -> ModelInfo:
        """Return what is known of the model for texts of a size. Raises ModelError if it cannot be found out."""
        name, connection = await self.text_model(size), self.connection()
        if not connection.endpoint.is_local:
            return self.listing.info(name)
        listed: tuple[ModelInfo, ...] = ()
        try:
            listed = () if self._is_unlisted else await self.listing.load()
        except ModelUnreachable:
            raise
        except ModelError:  # it does not list them, and is asked once
            self._is_unlisted = True
        info = next((info for info in listed if info.name == name), listed[0] if len(listed) == 1 else ModelInfo(name))
        owner, window = self.owners.get(info.name, ""), self._windows.get(name, info.context_length)
        if name not in self._windows and (window is None or owner == OLLAMA_OWNER):
            window, is_final = await find_window(connection, info.name, owner)
            if is_final:
                self._windows[name] = window
        return replace(info, name=name, context_length=window, is_local=True)

    async def describe_image(self, request: ImageDescriptionRequest) -> TextResult:
        """Return a description of a picture. Raises as `Connection.mapped_errors` does."""
        connection = self.connection("IMAGE_DESCRIPTION")
        url = f"data:{request.content_type};base64,{base64.b64encode(request.image).decode('ascii')}"
        content = [
            {"type": "text", "text": request.prompt or DEFAULT_DESCRIPTION_PROMPT},
            {"type": "image_url", "image_url": {"url": url}},
        ]
        field = f"{self.provider}_image_description_max_tokens"
        body = {
            "model": self.model_for(self.settings, "IMAGE_DESCRIPTION"),
            "messages": [{"role": "user", "content": content}],
            connection.endpoint.length_parameter: getattr(self.settings, field, MAX_DESCRIPTION_TOKENS),
        }
        return await send(connection, body)

    def accepts(self, parameter: str, model: str) -> bool:
        """Return whether the server for text accepts a parameter for a model, or for all if the name is blank.

        It does unless it lists other parameters for the model, or has refused or ignored this one.
        """
        refused = (names for name, names in self.connection().refused.items() if model in ("", name))
        has_no_tools = parameter == "tools" and self.listing.info(model).can_call_tools is False
        return not (has_no_tools or any(parameter in names for names in refused))

    async def fetch_models(self) -> list[ModelInfo]:
        """Ask the server for text for its models. Raises as `Connection.fetch` does."""
        connection = self.connection()
        body = await connection.fetch("/models", "list of models")
        if not isinstance(body, list) and not (isinstance(body, dict) and {"data", "models", "result"} & body.keys()):
            raise connection.invalid("the server", "list of models")
        entries = list_entries(body)
        self.owners = {entry["id"]: to_text(entry.get("owned_by")) for entry in entries}
        for entry in entries:
            parameters = entry.get("supported_parameters")
            if isinstance(parameters, list) and "response_format" not in parameters:
                connection.refused[entry["id"]].add("response_format")
        return [to_model_info(entry) for entry in entries]


async def complete(client: CompatibleClient, model: str, request: TextRequest) -> TextResult:
    """Return the text that a model writes. Raises as `send` does."""
    connection = client.connection()
    if not client.accepts("tools", model):
        request = replace(request, tools=())
    user = {"role": "user", "content": request.prompt}
    messages = [{"role": SYSTEM, "content": request.system}, user] if request.system else [user]
    body: dict[str, Any] = {"model": model, "messages": messages}
    body |= {name: getattr(request, name) for name in SAMPLING}
    body[connection.endpoint.length_parameter] = request.max_tokens
    is_local = connection.endpoint.is_local
    body["stop"] = list(request.stop) or (END_TOKENS if is_local else None)
    body["repeat_penalty"] = request.repetition_penalty if is_local else None  # its name in llama.cpp and LM Studio
    if request.schema is not None:
        schema = {"name": "answer", "schema": dict(request.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        for tool in request.tools
    ]
    body["tools"] = [{"type": "function", "function": function} for function in functions] or None
    if request.sink is not None:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    body = {name: value for name, value in body.items() if value is not None}
    return await send(connection, body, request.sink)


async def send(connection: Connection, body: Mapping[str, Any], sink: TextSink | None = None) -> TextResult:
    """Return a chat completion, requested without what the server has refused for this model.

    Raises ToolsRefused if it refuses the tools of the request, and as `Connection.mapped_errors` does.
    """
    model = str(body["model"])
    note_call(model)
    while True:
        sent = _allowed(connection, body)
        with connection.mapped_errors(model):
            try:
                async with connection.open("/chat/completions", sent) as chunks:
                    result = await AnswerReader(model, connection, sink).read(chunks)
            except ServerError as error:
                if error.is_declined:
                    return TextResult(user_text("notices.no_answer"), model)
                if not _learn(connection, sent, error):
                    raise
                continue
        if "response_format" in sent and _lacks_object(result):
            _omit(connection, model, ["response_format"], "ignores")
        return result


def _allowed(connection: Connection, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request without what the server has refused for its model."""
    model = str(body["model"])
    refused = connection.refused[model]
    sent = {name: value for name, value in body.items() if name not in refused}
    limits, names = [body[name] for name in LENGTHS if name in body], [name for name in LENGTHS if name not in refused]
    if limits and names:
        name = next((name for name in names if name in body), names[0])
        sent[name] = min(limits[0], connection.max_tokens.get(model, limits[0]))
    if SYSTEM in refused and len(sent["messages"]) > 1:
        system, user = sent["messages"]
        sent["messages"] = [{**user, "content": f"{system['content']}\n\n{user['content']}"}]
    return sent


def _learn(connection: Connection, sent: Mapping[str, Any], error: ServerError) -> bool:
    """Remember what an error refuses of a request, and return whether it may be accepted without that.

    Raises ToolsRefused if it refuses the tools of the request.
    """
    model = str(sent["model"])
    if "tools" in sent and NO_TOOLS.search(error.message):
        _omit(connection, model, ["tools"], "refuses")
    elif error.status not in PARAMETER_ERROR_STATUSES or error.is_too_long or error.is_of_answer:
        return False
    elif longest := _find_longest(error, sent):
        connection.max_tokens[model] = longest
    elif found := _find_refused(error, sent):
        _omit(connection, model, found, "refuses")
    elif "tools" in sent and TOOLS.search(f"{error.param} {error.message}"):
        cause = f"({error.status}): {connection.shorten(error.message)}"
        raise ToolsRefused(f"{connection.name} refused the tools of the request {cause}") from error
    else:
        return False
    return True


def _omit(connection: Connection, model: str, names: list[str], verb: str) -> None:
    known = connection.refused[model]
    if new := ", ".join(name for name in names if name not in known):  # calls at the same time learn the same
        known.update(names)
        logger.warning(
            "%s at %s %s %s; it is not sent from now on", model, connection.host, verb, new, extra={"once": True}
        )


def _lacks_object(result: TextResult) -> bool:
    """Return whether an answer that ended by itself contains no JSON object."""
    is_other = not result.text.strip() or result.is_truncated or result.tool_calls
    answer = result.text.rpartition("</think>")[2]
    return not is_other and answer != user_text("notices.no_answer") and not decode_value(answer, answer.find("{"))


def _find_longest(error: ServerError, body: Mapping[str, Any]) -> int | None:
    """Return the longest answer, in tokens, that an error about a longer one allows; None for any other error."""
    limit = next((body[name] for name in LENGTHS if name in body), 0)
    if not LENGTH_ERROR.search(f"{error.param} {error.message}"):
        return None
    numbers = [int(number.replace(",", "")) for number in NUMBER.findall(error.message)]
    return max((number for number in numbers if MIN_LENGTH <= number < limit), default=None)


def _find_refused(error: ServerError, body: Mapping[str, Any]) -> list[str]:
    """Return what the error refuses of a request: parameters, or the role "system"; empty for any other error."""
    text, parameter = error.message, error.param.partition(".")[0]
    optional = [name for name in OPTIONAL if name in body]
    starts = {name: BEFORE_WORDS if name in ORDINARY_WORDS else r"\b" for name in optional}
    patterns = {name: rf"{start}{name.replace('_', '[_ ]?')}\b" for name, start in starts.items()}  # or topP, "top P"
    named = [name for name, pattern in patterns.items() if re.search(pattern, text, re.IGNORECASE)]
    penalties = [name for name in optional if name.endswith("penalty") and "penalty" in text.lower()]
    rules: tuple[tuple[list[str], object], ...] = (
        (["stream", "stream_options"], "stream" in body and (error.param == "stream" or NO_STREAM.search(text))),
        ([parameter], parameter in optional),
        (named, named),
        (penalties, penalties),
        (["response_format"], "response_format" in body and SCHEMA.search(text) and "function" not in text),
        ([SYSTEM], body["messages"][0]["role"] == SYSTEM and NO_SYSTEM_ROLE.search(text)),
    )
    return next((names for names, is_refused in rules if is_refused), [])


async def embed(client: CompatibleClient, request: EmbeddingRequest) -> EmbeddingResult:
    """Return the embeddings of texts, with as many dimensions as a setting of the plugin says.

    Raises ModelError if one is missing or has a wrong dimension, and as `Connection.fetch` does.
    """
    connection, name = client.connection("EMBEDDING"), client.model_for(client.settings, "EMBEDDING")
    field = f"{client.provider}_embedding_dimensions"
    dimensions: int | None = getattr(client.settings, field, None)
    sent: dict[str, Any] = {"model": name, "input": list(request.texts), "encoding_format": "float"}
    sent |= {} if dimensions is None else {"dimensions": dimensions}
    try:
        body = await connection.fetch("/embeddings", "list of vectors", sent)
    except ModelRefused as error:
        half = len(request.texts) // 2
        if not half or not BATCH_ERROR.search(str(error)):
            raise
        parts = (request.texts[:half], request.texts[half:])
        first, second = [await embed(client, replace(request, texts=texts)) for texts in parts]
        usages = (first.usage, second.usage)
        tokens_in = sum(usage.tokens_in for usage in usages if usage is not None)
        return EmbeddingResult(first.vectors + second.vectors, first.model, Usage(tokens_in) if all(usages) else None)
    try:
        vectors = read_vectors(body, len(request.texts))
    except ValueError as error:
        raise ModelError(
            f"{client.provider}: {name} did not return one vector for each of {len(request.texts)} texts: {error}"
        ) from None
    lengths = {len(vector) for vector in vectors}
    if dimensions is not None and lengths - {dimensions}:
        raise ModelError(
            f"{client.provider}: {name} returned vectors of {max(lengths)} numbers, but {field.upper()} is "
            f"{dimensions}: remove that setting, or choose a model that supports it"
        )
    # Another server than OpenAI's may change the model behind a name: vectors are comparable if the length is the same.
    is_plain = dimensions is None and connection.endpoint.is_openai
    usage = body.get("usage") if isinstance(body, dict) else None
    return EmbeddingResult(
        vectors=tuple(map(tuple, vectors)),
        model=name if is_plain else f"{name}-{max(lengths, default=0)}",
        usage=read_usage({**usage, "completion_tokens": 0}) if isinstance(usage, dict) else None,
    )


def make_handlers(
    client_type: type[CompatibleClient],
    *,
    can_call_tools: SettingsCondition,
    writes_text: SettingsCondition = lambda settings: True,
) -> tuple[Model, Model, Model, Model, Model]:
    """Return the handlers for small, medium and large texts, embeddings and descriptions of pictures.

    Embeddings, descriptions and the medium texts need a model in the settings, the other texts what `writes_text` says.
    """

    def write_with(size: str, when: SettingsCondition) -> Model:
        def is_accepted(parameter: str, agent: Agent) -> bool:
            if client_type not in agent.services:
                return True
            client = agent.services[client_type]
            return client.accepts(parameter, client.known_model(size))

        async def write(agent: Agent, request: TextRequest) -> TextResult:
            client = agent.services[client_type]
            return await complete(client, request.model or await client.text_model(size), request)

        return model(
            ModelType(f"TEXT_{size}"),
            can_call_tools=can_call_tools,
            when=when,
            has_tools_now=partial(is_accepted, "tools"),
            can_write_json=partial(is_accepted, "response_format"),
            describe_model=lambda agent: agent.services[client_type].describe_model(size),
        )(write)

    @model(ModelType.TEXT_EMBEDDING, when=client_type.serves("EMBEDDING"))
    async def embed_texts(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
        return await embed(agent.services[client_type], request)

    @model(ModelType.IMAGE_DESCRIPTION, when=client_type.serves("IMAGE_DESCRIPTION"))
    async def describe(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
        result: TextResult = await agent.services[client_type].describe_image(request)
        return result

    medium = write_with("MEDIUM", client_type.serves("MEDIUM"))
    return write_with("SMALL", writes_text), medium, write_with("LARGE", writes_text), embed_texts, describe


def to_count(value: object) -> int | None:
    """Return a number of tokens, sent as a number or as text; None if it is not a plausible one."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except (ValueError, OverflowError):
        return None
    return int(number) if 0 <= number < MAX_PLAUSIBLE_TOKENS and number.is_integer() else None


def read_usage(usage: object) -> Usage | None:
    """Return the tokens of a response; None if they are missing or invalid, or the server reports zero."""
    names = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
    tokens_in, tokens_out = (to_count(member(usage, new if member(usage, old) is None else old)) for old, new in names)
    if not tokens_in or tokens_out is None:
        return None
    cached = to_count(member(usage, "prompt_tokens_details", "cached_tokens")) or 0
    return Usage(tokens_in, tokens_out, min(cached, tokens_in))


def list_entries(value: object) -> list[dict[str, Any]]:
    """Return the entries of a list of models in any of its forms, each with its name as `id`; others are left out."""
    inner = member(value, "data")
    lists = (value, inner, *(member(at, name) for at in (value, inner) for name in ("models", "data", "result")))
    entries = next((entries for entries in lists if isinstance(entries, list)), [])
    named = [entry if isinstance(entry, dict) else {"id": entry} for entry in entries]
    names = [
        next(filter(None, (to_text(entry.get(key)) for key in ("id", "name", "model", "model_id", "key"))), "")
        for entry in named
    ]
    return [{**entry, "id": name} for entry, name in zip(named, names, strict=True) if name]


def to_model_info(entry: Mapping[str, Any]) -> ModelInfo:
    """Return what a server reports of a model: OpenRouter, vLLM or llama.cpp."""
    parameters, modalities = entry.get("supported_parameters"), member(entry, "architecture", "input_modalities")
    parameter_count = member(entry, "meta", "n_params")
    lengths = (entry.get("context_length"), entry.get("max_model_len"), member(entry, "meta", "n_ctx"))
    return ModelInfo(
        entry["id"],
        can_call_tools="tools" in parameters if isinstance(parameters, list) else None,
        can_see="image" in modalities if isinstance(modalities, list) else None,
        is_embedding="embed" in entry["id"].lower(),
        context_length=next(filter(None, map(to_count, lengths)), None),
        parameter_count=parameter_count if type(parameter_count) is int else None,
    )


def _content_text(content: object) -> str:
    """Return the text of a content: a text, a piece, or a list of them; thoughts are left out."""
    if isinstance(content, list):
        return "".join(map(_content_text, content))
    if isinstance(content, dict) and content.keys() & {"actions", "thought"}:  # an answer by schema
        return json.dumps(content, ensure_ascii=False)
    if isinstance(content, dict):
        is_text = content.get("type", "text") in ("text", "output_text") and not content.get("thought")
        return _content_text(content.get("text")) if is_text else ""
    return to_text(content).replace("\0", "")


def _list_choices(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of the first choice; an answer of Ollama's own API, or a mere text, is read as one."""
    if "choices" in value:
        choices = value["choices"] if isinstance(value["choices"], list) else [value["choices"]]
        return [choice for choice in choices if isinstance(choice, dict) and choice.get("index") in (None, 0, "0")]
    content = value.get("message") or {"content": to_text(value.get("response"))}
    if "done" not in value or not isinstance(content, dict):
        inner = next((value[key] for key in ("data", "result", "response") if isinstance(value.get(key), dict)), value)
        if inner is not value:  # which gateways put around a response
            return _list_choices({"done": True, **inner} if isinstance(inner.get("response"), str) else inner)
        other = message_of(value)
        calls = [{"function": call._asdict()} for call in other.calls] if other else []
        return [{"message": {"content": other.text, "tool_calls": calls}, "finish_reason": "stop"}] if other else []
    return [{"delta": content, "finish_reason": value.get("done_reason") or ("stop" if value["done"] else None)}]


@dataclass(slots=True)
class _Call:
    """A tool call, as far as it is known."""

    index: object
    id: str
    name: str
    arguments: str


class AnswerReader:
    """Reads one answer from chunks or a whole response, and passes its text to a sink, if there is one."""

    def __init__(self, model: str, connection: Connection, sink: TextSink | None) -> None:
        self._model, self._connection, self._sink = model, connection, sink
        self._provider = connection.endpoint.provider
        self._text, self._finish_reason, self._thoughts = "", "", ""
        self._calls: list[_Call] = []
        self._memory = connection.response_memory(model)
        self._usage: Usage | None = None
        self._is_api = self._has_choice = self._is_finished = self._has_thoughts = False

    async def read(self, chunks: AsyncIterator[bytes]) -> TextResult:
        """Return the answer in the pieces of a response.

        Raises ServerError for an error in it, ModelBusy if it breaks off, InvalidAnswer if it is not one.
        """
        unreadable = ""
        try:
            async with asyncio.timeout(None) as rest:
                async for value in read_values(chunks, self._memory):
                    if self._sink is not None:
                        await self._sink.write("")  # the model is at work, also while it thinks or writes a call
                    await self._add(value)
                    if self._is_finished:
                        rest.reschedule(asyncio.get_running_loop().time() + REST_SECONDS)
        except (TimeoutError, ModelBusy):
            if not self._is_finished:
                raise
        except ValueError as error:
            unreadable = " ".join(str(error)[:80].split())
        return await self._finish(unreadable)

    async def _add(self, value: object) -> None:
        for item in value if isinstance(value, list) else ():
            await self._add(item)
        if isinstance(value, str):
            value = {"response": value, "done": True}
        if is_error(value):
            raise ServerError(value, is_partial=bool(self._text or self._calls))
        self._is_finished = self._is_finished or value is END
        if not isinstance(value, dict):
            return
        self._is_api = self._is_api or "choices" in value
        self._model = to_text(value.get("model")) or self._model
        choices = _list_choices(value)
        for choice in choices:
            await self._add_choice(choice)
        lengths = (len(self._text), *(len(call.arguments) for call in self._calls))
        self._memory.extend(sum(lengths))
        if max(lengths) > MAX_ANSWER_LENGTH:
            raise ModelError(f"{self._provider}: {self._model} wrote without an end")
        usages = (value.get("usage") or member(value, "x_groq", "usage"), *(choice.get("usage") for choice in choices))
        self._usage = next(filter(None, map(read_usage, filter(None, usages))), self._usage)
        reasoning = to_count(member(value, "usage", "completion_tokens_details", "reasoning_tokens"))
        self._has_thoughts = self._has_thoughts or bool(reasoning)
        note_call(self._model, self._usage)

    async def _add_choice(self, choice: dict[str, Any]) -> None:
        self._finish_reason = to_text(choice.get("finish_reason")) or self._finish_reason
        if self._finish_reason.casefold() in FAILED:
            error, cause = choice.get("error"), f"the provider reported the finish reason {self._finish_reason!r}"
            is_partial = bool(self._text or self._calls)
            raise ServerError(error or cause, 0 if error else BUSY_STATUS, is_partial=is_partial)
        delta, message = choice.get("delta"), choice.get("message")
        is_whole = isinstance(message, dict)
        self._is_finished = self._is_finished or bool(self._finish_reason or (is_whole and not delta))
        # After its pieces, a whole answer brings nothing new.
        parts: list[Any] = [delta, {"content": choice.get("text")}, None if self._text or self._calls else message]
        part: dict[str, Any] = next((part for part in parts if any(member(part, name) for name in CONTENTS)), {})
        self._has_choice = self._has_choice or bool(part or self._finish_reason or is_whole)
        self._has_thoughts = self._has_thoughts or any(member(delta or message, name) for name in THOUGHTS)
        content = part.get("content")
        calls = part.get("tool_calls") or part.get("function_call") or (content if isinstance(content, list) else [])
        calls = parse_values(calls)[0] if isinstance(calls, str) else calls
        for call in calls if isinstance(calls, list) else [calls]:
            self._add_call(call)
        thoughts = (to_text(member(delta or message, name)) for name in THOUGHTS)
        self._thoughts = (self._thoughts + next(filter(None, thoughts), ""))[-MAX_THOUGHTS:]
        await self._add_text(_content_text(content or member(part, "parsed")) or to_text(part.get("refusal")))

    async def _add_text(self, piece: str) -> None:
        """Add a piece of the text; one that repeats all that there is continues it."""
        if MIN_REPEATED_LENGTH <= len(self._text) < len(piece) and piece.startswith(self._text):
            piece = piece[len(self._text) :]
        self._text += piece
        if self._sink is not None and piece:
            await self._sink.write(piece)

    def _add_call(self, call: object) -> None:
        """Add a call or the next part of one; another id or name begins another, although it has the same index."""
        if not isinstance(call, dict) or call.get("type") not in CALL_PARTS:
            return
        function = call.get("function") or call
        name, call_id, index = to_text(member(function, "name")), to_text(call.get("id")), call.get("index")
        arguments = next(filter(None, (member(function, key) for key in ARGUMENTS)), "")
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
        last = self._calls[-1] if self._calls and not (name or call_id) else None
        known = next((known for known in reversed(self._calls) if index in (None, known.index)), last)
        is_same = known is not None and index is not None and call_id in ("", known.id)
        is_named = known is not None and known.name not in ("", name) and (not known.id or known.arguments)
        if known is None or (name and (is_named or not is_same)):
            self._calls.append(_Call(index, call_id, name, arguments))
            return
        known.name += "" if known.name == name else name
        is_repeated = len(known.arguments) >= MIN_REPEATED_LENGTH and arguments.startswith(known.arguments)
        known.arguments = arguments if is_repeated else known.arguments + arguments

    async def _finish(self, unreadable: str) -> TextResult:
        start = f"{self._provider}: {self._model}"
        if not (self._has_choice or self._text):
            other = f" but {unreadable!r}" if unreadable else ""
            cause = f"no chat completion{other}; check {self._connection.endpoint.url_name}"
            raise InvalidAnswer(f"{start} returned {'no choice' if self._is_api else cause}")
        # Some servers send no mark of the end.
        if not self._is_finished and (unreadable or not self._text.rstrip().endswith("</response>")):
            raise ModelBusy(f"{start} broke its answer off" + (f" with {unreadable!r}" if unreadable else ""))
        if FILTERED.search(self._finish_reason):
            self._text, self._calls = "", []
            if self._sink is not None:
                await self._sink.restart()
            await self._add_text(user_text("notices.no_answer"))
        is_truncated = self._finish_reason.casefold() in TRUNCATED
        if self._thoughts and not (self._text.strip() or self._calls or is_truncated):
            await self._read_thoughts()
        calls = tuple(self._list_calls(is_truncated=is_truncated))
        return TextResult(
            text=self._text,
            model=self._model,
            usage=self._usage,
            is_truncated=is_truncated,
            tool_calls=calls,
            has_cut_call=is_truncated and len(calls) < len(self._calls),
            has_thoughts=self._has_thoughts,
        )

    async def _read_thoughts(self) -> None:
        """Take the answer that a server took for reasoning: what is behind the mark of its end, or a last call."""
        rest = clean(f"<think>{self._thoughts}")
        self._calls += [
            _Call(None, "", call.name, json.dumps(dict(call.arguments))) for call in rest.calls if call.name
        ]
        await self._add_text(rest.text)

    def _list_calls(self, *, is_truncated: bool) -> Iterator[ToolCall]:
        """Yield the calls; of a truncated answer without those that cannot be read."""
        for call in self._calls:
            name = clean_name(call.name)
            if not name and self._text.strip():
                continue
            try:
                every = read_arguments(call.arguments) if name else []
            except ValueError:
                every = []
            if not every and not is_truncated:
                raise InvalidAnswer(f"{self._provider}: {self._model} returned a tool call that cannot be read")
            yield from (ToolCall(name, arguments) for arguments in every)


def read_vectors(body: object, count: int) -> list[list[float]]:
    """Return the vectors of a response in any of its forms, in the order of the texts. Raises ValueError."""
    items = _unwrap_vectors(body)
    if isinstance(items, list) and items and isinstance(items[0], int | float):
        items = [items]  # one vector
    if not isinstance(items, list) or len(items) != count:
        raise ValueError(f"{len(items) if isinstance(items, list) else 'no'} vectors")
    indexes = [str(at if (index := member(item, "index")) is None else index) for at, item in enumerate(items)]
    if set(indexes) != {"0"}:  # which LiteLLM gives to each of them
        expected = [str(number + ("0" not in indexes)) for number in range(count)]
        if set(indexes) != set(expected):
            raise ValueError("their indexes are wrong")
        items = [items[indexes.index(index)] for index in expected]
    return [_read_vector(_unwrap_vectors(item)) for item in items]


def _unwrap_vectors(value: object) -> object:
    """Return what is in the members in which servers put vectors or their numbers."""
    while isinstance(value, dict):
        value = next(filter(None, (value.get(name) for name in VECTORS)), None)
    return value


def _read_vector(value: object) -> list[float]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    if isinstance(value, str) and value.startswith("["):
        value = json.loads(value)
    if isinstance(value, str):
        try:
            value = [number for (number,) in struct.iter_unpack("<f", base64.b64decode(value, validate=True))]
        except struct.error:
            raise ValueError("one is not a list of numbers") from None
    if not isinstance(value, list) or not all(type(number) in (int, float) for number in value):
        raise ValueError("one is not a list of numbers")
    vector = [float(number) for number in value]
    if not any(vector) or not all(map(isfinite, vector)):
        raise ValueError("one is empty, zero or not finite")
    return vector
