"""Requests, parameter fallbacks, error mapping."""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import anthropic

from bot import Agent, Service
from bot.models import (
    ModelBusy,
    ModelError,
    ModelRefused,
    PromptTooLong,
    TextRequest,
    TextResult,
    TextSink,
    parse_retry_after,
)
from plugins.anthropic.responses import read_answer
from plugins.anthropic.settings import AnthropicSettings
from plugins.anthropic.streaming import Stream

logger = logging.getLogger(__name__)

CONNECTING = 10.0  # seconds; for the rest the router has deadlines
MOST_HEAT = 1.0
# What the API takes and the SDK does not name any more, because newer models refuse it.
SAMPLING = ("temperature", "top_p", "top_k")
OPTIONAL = (*SAMPLING, "stop_sequences", "output_config")


class Client(Service):
    """One connection pool to the API, opened and closed with the agent."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.settings = agent.settings.load(AnthropicSettings)
        key = self.settings.anthropic_api_key
        self._key = key.get_secret_value() if key else ""
        self._refused: dict[str, set[str]] = {}
        self._sdk = anthropic.AsyncAnthropic(
            api_key=self._key,
            base_url=self.settings.anthropic_base_url,
            max_retries=0,  # the router asks again, and books every try
            timeout=anthropic.Timeout(None, connect=CONNECTING),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._sdk.close()

    async def write(self, model: str, request: TextRequest) -> TextResult:
        """Have a text written.

        Raises ModelRefused for what no repetition mends, ModelBusy where the server is not there or
        busy, ModelError for anything else.
        """
        sent = _asked(request, model, self.settings.anthropic_max_tokens)
        return await self.ask(sent, request.sink)

    async def ask(self, sent: dict[str, Any], sink: TextSink | None = None) -> TextResult:
        """Send a request, without what its model has refused before; raises as `write` does."""
        model = str(sent["model"])
        for name in self._refused.get(model, ()):
            sent.pop(name, None)
        while True:
            with self._explaining():
                try:
                    return await self._fetch(sent, sink)
                except anthropic.APIStatusError as error:
                    refused = _objected(error, sent)
                    if not refused:
                        raise
            logger.warning("%s refuses %s: it is asked without", model, refused)
            del sent[refused]
            if refused in SAMPLING:  # of a schema, it is this one
                self._refused.setdefault(model, set()).add(refused)

    async def _fetch(self, sent: Mapping[str, Any], sink: TextSink | None) -> TextResult:
        model = str(sent["model"])
        given = {name: value for name, value in sent.items() if name not in SAMPLING}
        extra = {name: sent[name] for name in SAMPLING if name in sent} or None
        messages = self._sdk.messages
        if sink is None:
            answer = await messages.with_raw_response.create(**given, extra_body=extra)
            return read_answer(await answer.read(), model)
        streaming = messages.with_streaming_response.create(**given, stream=True, extra_body=extra)
        async with streaming as response:
            return await Stream(model, sink).read(response.http_response)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except anthropic.AnthropicError as error:
            raise explained(error, self._sdk.base_url.host, self._key) from error


def _asked(request: TextRequest, model: str, longest: int) -> dict[str, Any]:
    """Write down what is sent; what is not set is not sent.

    What comes before the conversation is the same in every request: the tools, then the system prompt. It
    is marked as such, and costs a tenth the next time.
    """
    sent: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": request.prompt}],
        "max_tokens": request.max_tokens or longest,
    }
    if request.system:
        mark = {"type": "ephemeral"}
        sent["system"] = [{"type": "text", "text": request.system, "cache_control": mark}]
    if request.tools:
        sent["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
            for tool in request.tools
        ]
    if request.schema is not None:
        shape = {"type": "json_schema", "schema": anthropic.transform_schema(dict(request.schema))}
        sent["output_config"] = {"format": shape}
    if request.stop:
        sent["stop_sequences"] = list(request.stop)
    sent |= {name: value for name in SAMPLING if (value := getattr(request, name)) is not None}
    if "temperature" in sent:
        sent["temperature"] = min(sent["temperature"], MOST_HEAT)
    return sent


def _objected(error: anthropic.APIStatusError, sent: Mapping[str, Any]) -> str:
    """Name what was sent and is refused; blank where the error is about anything else."""
    if error.status_code != 400 or TOO_LONG.search(error.message):
        return ""
    words = set(re.findall(r"\w+", error.api_message or error.message))
    return next((name for name in reversed(OPTIONAL) if name in sent and name in words), "")


REFUSALS = (400, 401, 402, 403, 404, 405, 413, 422)
NO_CREDIT = frozenset({"contract_spend_limit_reached", "enforced_spend_limit_reached"})
TOO_LONG = re.compile(
    r"prompt is too long|exceed\w* (?:the )?context|context (?:limit|window)", re.IGNORECASE
)


def explained(error: anthropic.AnthropicError, host: str, key: str) -> ModelError:
    """Make an error of ours that says what to do, and no secret."""
    if isinstance(error, anthropic.APITimeoutError):
        return ModelBusy(f"anthropic: no connection to {host} in time")
    if isinstance(error, anthropic.APIConnectionError):
        return ModelBusy(f"anthropic: no answer from {host}: {_brief(error.message, key)}")
    if not isinstance(error, anthropic.APIStatusError):
        return ModelError(f"anthropic: {_brief(str(error), key)}")
    status, said = error.status_code, _brief(error.api_message or error.message, key)
    if status == 401:
        return ModelRefused(
            f"anthropic: {host} refused the key in ANTHROPIC_API_KEY (401): put in a valid one"
        )
    if status == 404:
        return ModelRefused(
            f"anthropic: {host} does not know the model or path (404): check ANTHROPIC_LARGE_MODEL, "
            "ANTHROPIC_SMALL_MODEL and ANTHROPIC_BASE_URL"
        )
    if status == 402 or error.error_code in NO_CREDIT:
        return ModelRefused(f"anthropic: {host} has no credit left for the key: {said}")
    if status in REFUSALS:
        is_long = status in (400, 413) and TOO_LONG.search(said)
        kind = PromptTooLong if is_long else ModelRefused
        return kind(f"anthropic: {host} refused the request ({status}): {said}")
    told = parse_retry_after(error.response.headers, datetime.now(UTC))
    return ModelBusy(f"anthropic: {host} is not able to answer now ({status}): {said}", retry_after=told)


def _brief(said: str, key: str) -> str:
    return " ".join(said.replace(key, "[the key]").split())[:200]
