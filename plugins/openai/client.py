"""Connections to the API, one for each server, and the mapping of its errors."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import openai

from bot import Agent, Secret, Service
from bot.models import ModelBusy, ModelError, ModelRefused, ModelUnreachable, PromptTooLong, parse_retry_after
from plugins.openai.settings import CAPABILITIES, Endpoint, OpenAISettings, endpoint_for

DUMMY_KEY = "none"  # the SDK insists on a key where local servers want none
CONNECT_TIMEOUT = 10.0  # seconds; for the rest the router has deadlines
ORIGIN = ("scheme", "host", "port")
CONNECT_ERROR = "ConnectError"  # in each of the HTTP libraries that the versions of the SDK use


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection to one server. `Client` opens and closes it."""

    sdk: openai.AsyncOpenAI
    endpoint: Endpoint
    secrets: frozenset[str]

    @property
    def host(self) -> str:
        """The host name of the server, with its port where the URL names one."""
        return self.sdk.base_url.netloc.decode("ascii")

    @contextmanager
    def mapped_errors(self) -> Iterator[None]:
        """Map errors of the SDK inside the block.

        Raises ModelRefused if a retry cannot help, ModelUnreachable if there is no connection, ModelBusy if
        the server is busy or too slow, ModelError otherwise.
        """
        try:
            yield
        except openai.OpenAIError as error:
            raise to_model_error(error, self.endpoint, self.host, self.secrets) from error


class Client(Service):
    """All connections to the API, opened and closed with the agent."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.settings = agent.settings.load(OpenAISettings)
        endpoints = {capability: endpoint_for(self.settings, capability) for capability in ("", *CAPABILITIES)}
        secrets = frozenset(endpoint.key.get_secret_value() for endpoint in endpoints.values() if endpoint.key)
        self._connections: dict[str, Connection] = {}
        sdks: dict[tuple[str | None, Secret | None], openai.AsyncOpenAI] = {}
        for capability, endpoint in endpoints.items():
            server = (endpoint.url, endpoint.key)
            if server not in sdks:
                sdks[server] = _open_sdk(endpoint)
            self._connections[capability] = Connection(sdks[server], endpoint, secrets)
        self.served_models: tuple[str, ...] | None = None  # of the server for text, once it was asked
        # Parameters that a model, by host and name, has refused.
        self.refused_parameters: dict[tuple[str, str], set[str]] = {}

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections.values():
            await connection.sdk.close()

    def connection(self, capability: str = "") -> Connection:
        """Return the connection of a capability; blank for text."""
        return self._connections[capability]


def _open_sdk(endpoint: Endpoint) -> openai.AsyncOpenAI:
    async def check_origin(request: Any) -> None:
        """Refuse every request to another server: a redirect would hand it the conversation."""
        if any(getattr(request.url, part) != getattr(sdk.base_url, part) for part in ORIGIN):
            server, target = sdk.base_url.netloc.decode("ascii"), request.url.netloc.decode("ascii")
            raise ModelRefused(
                f"openai: {server} redirects to {request.url.scheme}://{target}, another server, to which nothing is "
                f"sent: if it is the right one, set {endpoint.url_name} to its address"
            )

    sdk = openai.AsyncOpenAI(
        api_key=endpoint.key.get_secret_value() if endpoint.key else DUMMY_KEY,
        base_url=endpoint.url,
        max_retries=0,  # the router retries, and records each try
        timeout=openai.Timeout(None, connect=CONNECT_TIMEOUT),
        http_client=openai.DefaultAsyncHttpxClient(event_hooks={"request": [check_origin]}),
    )
    return sdk


REFUSAL_STATUSES = (400, 401, 402, 403, 404, 405, 413, 415, 422)
NO_CREDIT_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
CONTENT_REFUSAL_CODES = frozenset({"content_filter", "content_policy_violation", "moderation_blocked"})
PROMPT_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context|context (?:length|size|window)"
    r"|prompt is too long",
    re.IGNORECASE,
)


def is_content_refusal(error: Exception) -> bool:
    """Return whether a request was refused because of its content."""
    return isinstance(error, openai.APIStatusError) and error.code in CONTENT_REFUSAL_CODES


def error_message(error: openai.APIStatusError) -> str:
    """Return the message of an error response, whether or not its body has the API's form."""
    body = error.body
    if isinstance(body, dict):
        body = next((body[name] for name in ("message", "error", "detail") if body.get(name)), body)
    if not body:
        body = error.response.text
    return body if isinstance(body, str) else json.dumps(body, default=str)


def to_model_error(error: openai.OpenAIError, endpoint: Endpoint, host: str, secrets: Iterable[str]) -> ModelError:
    """Return the ModelError for an error of the SDK; its message contains no secret."""
    if isinstance(error.__cause__, ModelRefused):
        return error.__cause__
    if isinstance(error, openai.APITimeoutError):
        return ModelBusy(f"openai: no connection to {host} in time")
    if type(error.__cause__).__name__ == CONNECT_ERROR:
        message = f"openai: cannot connect to {host}: {_shorten_message(str(error.__cause__), secrets)}"
        return ModelUnreachable(f"{message}; start the server, or correct {endpoint.url_name}")
    if isinstance(error, openai.APIConnectionError):
        return ModelBusy(f"openai: no answer from {host}: {_shorten_message(error.message, secrets)}")
    if not isinstance(error, openai.APIStatusError):
        return ModelError(f"openai: {_shorten_message(str(error), secrets)}")
    status, message = error.status_code, _shorten_message(error_message(error), secrets)
    if status == 401:
        return ModelRefused(f"openai: {host} refused the key in {endpoint.key_name} (401): set a valid key")
    if status == 404:
        return ModelRefused(
            f"openai: {host} does not know the model or path (404): check the model's name in "
            f"OPENAI_…_MODEL and that {endpoint.url_name} ends in /v1"
        )
    if status == 429 and (error.code in NO_CREDIT_CODES or error.type in NO_CREDIT_CODES):
        return ModelRefused(f"openai: {host} has no credit left for the key in {endpoint.key_name}: {message}")
    if status in REFUSAL_STATUSES:
        is_too_long = status in (400, 413) and PROMPT_TOO_LONG.search(f"{error.code} {error.type} {message}")
        error_type = PromptTooLong if is_too_long else ModelRefused
        return error_type(f"openai: {host} refused the request ({status}): {message}")
    retry_after = parse_retry_after(error.response.headers, datetime.now(UTC))
    return ModelBusy(f"openai: {host} cannot answer now ({status}): {message}", retry_after=retry_after)


def _shorten_message(message: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        message = message.replace(secret, "[the key]")
    return " ".join(message.split())[:200]
