"""Connections per endpoint, error mapping."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import openai

from bot import Agent, Service
from bot.models import ModelBusy, ModelError, ModelRefused, PromptTooLong, parse_retry_after
from plugins.openai.settings import APART, OpenAISettings, Place, place_of

NO_KEY = "none"  # the SDK insists on a key where local servers want none
CONNECTING = 10.0  # seconds; for the rest the router has deadlines


@dataclass(frozen=True, slots=True)
class Line:
    """A connection to one server: errors that come over it are put into our words."""

    sdk: openai.AsyncOpenAI
    place: Place
    secrets: frozenset[str]

    @property
    def host(self) -> str:
        """The server's name."""
        return self.sdk.base_url.host

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Ask the server within this.

        Raises ModelRefused for what no repetition mends, ModelBusy where the server is not there or
        busy, ModelError for anything else.
        """
        try:
            yield
        except openai.OpenAIError as error:
            raise explained(error, self.place, self.host, self.secrets) from error


class Client(Service):
    """All connections to the API, opened and closed with the agent."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.settings = agent.settings.load(OpenAISettings)
        places = {part: place_of(self.settings, part) for part in ("", *APART)}
        secrets = frozenset(one.key.get_secret_value() for one in places.values() if one.key)
        self._lines: dict[str, Line] = {}
        for part, place in places.items():
            known = (one for one in self._lines.values() if _same(one.place, place))
            sdk = next((one.sdk for one in known), None) or _opened(place)
            self._lines[part] = Line(sdk, place, secrets)
        # What a model, by host and name, has refused to be asked with: it is not asked with that again.
        self.refused: dict[tuple[str, str], set[str]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self._lines.values():
            await line.sdk.close()

    def line(self, part: str = "") -> Line:
        """Give the connection for a part of `APART`; the one for texts where none is named."""
        return self._lines[part]


def _same(one: Place, other: Place) -> bool:
    return (one.url, one.key) == (other.url, other.key)


def _opened(place: Place) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        api_key=place.key.get_secret_value() if place.key else NO_KEY,
        base_url=place.url,
        max_retries=0,  # the router asks again, and books every try
        timeout=openai.Timeout(None, connect=CONNECTING),
    )


REFUSALS = (400, 401, 402, 403, 404, 405, 413, 415, 422)
NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
CONTENT = frozenset({"content_filter", "content_policy_violation", "moderation_blocked"})
TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context|context (?:length|size|window)"
    r"|prompt is too long",
    re.IGNORECASE,
)


def is_of_content(error: Exception) -> bool:
    """Tell whether a request was refused for what is said in it."""
    return isinstance(error, openai.APIStatusError) and error.code in CONTENT


def words_of(error: openai.APIStatusError) -> str:
    """Give what a server says of its error: in the API's form, in another, or in none."""
    body = error.body
    if isinstance(body, dict):
        body = next((body[name] for name in ("message", "error", "detail") if body.get(name)), body)
    if not body:
        body = error.response.text
    return body if isinstance(body, str) else json.dumps(body, default=str)


def explained(error: openai.OpenAIError, place: Place, host: str, secrets: Iterable[str]) -> ModelError:
    """Make an error of ours that says what to do, and no secret."""
    if isinstance(error, openai.APITimeoutError):
        return ModelBusy(f"openai: no connection to {host} in time")
    if isinstance(error, openai.APIConnectionError):
        return ModelBusy(f"openai: no answer from {host}: {_brief(error.message, secrets)}")
    if not isinstance(error, openai.APIStatusError):
        return ModelError(f"openai: {_brief(str(error), secrets)}")
    status, said = error.status_code, _brief(words_of(error), secrets)
    if status == 401:
        return ModelRefused(f"openai: {host} refused the key in {place.key_name} (401): put in a valid one")
    if status == 404:
        return ModelRefused(
            f"openai: {host} does not know the model or path (404): check the model's name in "
            f"OPENAI_…_MODEL and that {place.url_name} ends in /v1"
        )
    if status == 429 and (error.code in NO_CREDIT or error.type in NO_CREDIT):
        return ModelRefused(f"openai: {host} has no credit left for the key in {place.key_name}: {said}")
    if status in REFUSALS:
        is_long = status in (400, 413) and TOO_LONG.search(f"{error.code} {error.type} {said}")
        kind = PromptTooLong if is_long else ModelRefused
        return kind(f"openai: {host} refused the request ({status}): {said}")
    told = parse_retry_after(error.response.headers, datetime.now(UTC))
    return ModelBusy(f"openai: {host} is not able to answer now ({status}): {said}", retry_after=told)


def _brief(said: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        said = said.replace(secret, "[the key]")
    return " ".join(said.split())[:200]
