"""A server that speaks OpenAI's API: the connection to it, its errors, and the JSON that it sends in any form.

Sources of context windows: llama.cpp's tools/server/README.md (`/props`), Ollama's docs/api.md (`/api/show`,
`/api/ps`), LM Studio's "REST API v0" (`/api/v0/models`).
"""

import codecs
import io
import json
import os
import re
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from bot.concurrency.tasks import MemorySemaphore
from bot.errors import InvalidAnswer, ModelBusy, ModelError, ModelRefused, ModelUnreachable, PromptTooLong
from bot.fetch.client import Proxies, find_cause
from bot.models.handler import ResponseMemory
from bot.models.router import parse_retry_after, parse_values
from bot.plugin_system.loading import LazyModule
from bot.settings import Secret
from bot.text import redact, shorten

if TYPE_CHECKING:
    import openai
else:
    openai = LazyModule("openai")  # which a bot without a plugin for its API does not need

OPENAI_HOST = "api.openai.com"
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


def member(value: object, *names: str) -> Any:
    """Return the member of nested JSON objects that the names lead to; None if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def to_text(value: object) -> str:
    """Return a value that is a text; blank if it is not one."""
    return value if isinstance(value, str) else ""


def is_error(value: object) -> bool:
    """Return whether a JSON value reports an error instead of a result."""
    is_result = member(value, "choices") or member(value, "data")
    has_text = any(to_text(member(value, name)) for name in ERROR_TEXTS)
    has_status = member(value, "base_resp", "status_code") or (has_text and not is_result)
    return bool(has_status or any(member(value, *path) for path in ERRORS))


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
        body = body[0] if isinstance(body, list) and body else body
        every_field = (member(body, *path) for path in (*ERRORS, ("base_resp",)))
        fields = next((found for found in every_field if found and isinstance(found, str | dict | list)), body)
        fields = fields[0] if isinstance(fields, list) and fields else fields
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
            max_retries=0,  # the router retries, and records each try
            timeout=openai.Timeout(None, connect=CONNECT_TIMEOUT),
            http_client=openai.DefaultAioHttpClient(
                proxy=str(proxy) if proxy else None,
                trust_env=False,  # the proxy and the certificates are those of the bot's other connections
                verify=ssl.create_default_context(),
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
        if status == 401:
            return ModelRefused(f"{self.name} refused the key in {key_name} (401): set a valid key")
        if status == 404:
            advice = self.endpoint.model_advice.replace("{model}", model or "NAME")
            return ModelRefused(
                f"{self.name} does not know the model or path (404): {advice}{message and f': {message}'}"
            )
        if error.is_too_long:
            return PromptTooLong(f"{self.name} refused the request ({status}): {message}")
        if status in (429, 500) and NO_CREDIT.search(error.text):
            return ModelRefused(f"{self.name} has no credit left for the key in {key_name}: {message}")
        if error.is_of_answer:
            return InvalidAnswer(f"{self.name} could not read what the model wrote ({status}): {message}")
        if status in REFUSAL_STATUSES:
            return ModelRefused(f"{self.name} refused the request ({status}): {message}")
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
        options |= {"cast_to": object, "stream": True, "stream_cls": openai.AsyncStream[object]}
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
