"""Connections to servers that speak OpenAI's API, and the errors of models that failed requests mean."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

import aiohttp

from bot.errors import ModelBusy, ModelError, ModelRefused, ModelUnreachable, PromptTooLong
from bot.models.openai_compatible.requests import RedirectError, Requests, StatusError
from bot.models.retry import parse_retry_after
from bot.settings import Secret

OPENAI_HOST = "api.openai.com"
OPENAI_URL = f"https://{OPENAI_HOST}/v1"
ACCOUNT_HEADERS = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}


@dataclass(frozen=True, slots=True)
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

    @property
    def is_openai(self) -> bool:
        """Whether the server is OpenAI itself."""
        return self.url is None or urlsplit(self.url).hostname == OPENAI_HOST


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection to one server. `CompatibleClient` opens and closes it."""

    requests: Requests
    endpoint: Endpoint
    secrets: frozenset[str]

    @property
    def host(self) -> str:
        """The host name of the server, with its port where the URL names one."""
        return self.requests.host

    @contextmanager
    def mapped_errors(self, model: str = "") -> Iterator[None]:
        """Map errors of requests inside the block, which asks for this model.

        Raises ModelRefused if a retry cannot help, ModelUnreachable if there is no connection, ModelBusy if
        the server is busy or too slow, ModelError otherwise.
        """
        try:
            yield
        except (StatusError, RedirectError, TimeoutError, aiohttp.ClientError) as error:
            raise to_model_error(error, self, model) from error


def open_connection(endpoint: Endpoint, secrets: frozenset[str]) -> Connection:
    """Return a connection to a server; its messages contain none of the secrets."""
    headers = {"Accept": "application/json", "User-Agent": "greenroom"}
    headers |= {header: os.environ[name] for name, header in ACCOUNT_HEADERS.items() if os.environ.get(name)}
    if endpoint.key is not None:
        headers["Authorization"] = f"Bearer {endpoint.key.get_secret_value()}"
    return Connection(Requests(endpoint.url or OPENAI_URL, headers), endpoint, secrets)


REFUSAL_STATUSES = (400, 401, 402, 403, 404, 405, 413, 415, 422)
NO_CREDIT_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
CONTENT_REFUSAL_CODES = frozenset({"content_filter", "content_policy_violation", "moderation_blocked"})
PROMPT_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context|context (?:length|size|window)"
    r"|prompt is too long",
    re.IGNORECASE,
)


def is_content_refusal(error: StatusError) -> bool:
    """Return whether a request was refused because of its content."""
    return error.code in CONTENT_REFUSAL_CODES


def to_model_error(error: Exception, connection: Connection, model: str) -> ModelError:
    """Return the ModelError for a failed request; its message contains no secret."""
    endpoint, host, secrets = connection.endpoint, connection.host, connection.secrets
    provider = endpoint.provider
    if isinstance(error, RedirectError):
        return ModelRefused(
            f"{provider}: {host} redirects to {error.target}, another server, to which nothing is sent: if it is the "
            f"right one, set {endpoint.url_name} to its address"
        )
    if isinstance(error, TimeoutError):
        return ModelBusy(f"{provider}: no connection to {host} in time")
    if isinstance(error, aiohttp.ClientConnectorError):
        message = f"{provider}: cannot connect to {host}: {_shorten_message(str(error), secrets)}"
        return ModelUnreachable(f"{message}; start the server, or correct {endpoint.url_name}")
    if isinstance(error, aiohttp.ClientError):
        message = _shorten_message(str(error) or type(error).__name__, secrets)
        return ModelBusy(f"{provider}: no answer from {host}: {message}")
    if not isinstance(error, StatusError):
        return ModelError(f"{provider}: {_shorten_message(str(error), secrets)}")
    return _status_to_model_error(error, connection, model)


def _status_to_model_error(error: StatusError, connection: Connection, model: str) -> ModelError:
    endpoint, host, secrets = connection.endpoint, connection.host, connection.secrets
    provider = endpoint.provider
    status, message = error.status_code, _shorten_message(error.message, secrets)
    if status == 401:
        return ModelRefused(f"{provider}: {host} refused the key in {endpoint.key_name} (401): set a valid key")
    if status == 404:
        advice = endpoint.model_advice.replace("{model}", model or "NAME")
        return ModelRefused(f"{provider}: {host} does not know the model or path (404): {advice}")
    if status == 429 and (error.code in NO_CREDIT_CODES or error.type in NO_CREDIT_CODES):
        return ModelRefused(f"{provider}: {host} has no credit left for the key in {endpoint.key_name}: {message}")
    if status in REFUSAL_STATUSES:
        is_too_long = status in (400, 413) and PROMPT_TOO_LONG.search(f"{error.code} {error.type} {message}")
        error_type = PromptTooLong if is_too_long else ModelRefused
        return error_type(f"{provider}: {host} refused the request ({status}): {message}")
    retry_after = parse_retry_after(error.headers, datetime.now(UTC))
    return ModelBusy(f"{provider}: {host} cannot answer now ({status}): {message}", retry_after=retry_after)


def _shorten_message(message: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        message = message.replace(secret, "[the key]")
    return " ".join(message.split())[:200]
