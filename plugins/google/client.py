"""The connection to Google's API, requests that omit refused parameters, and the mapping of errors.

Reads answers of the API, whole or in pieces, into results.

The settings of the google plugin.
"""

import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from pydantic import Field

from bot import Agent, Secret, Service, Settings, SettingsModel
from bot.models import (
    InvalidAnswer,
    ModelBusy,
    ModelError,
    ModelInfo,
    ModelListing,
    ModelRefused,
    ModelUnreachable,
    PromptTooLong,
    TextResult,
    TextSink,
    ToolCall,
    ToolsRefused,
    Usage,
    host_label,
    note_call,
    parse_retry_after,
)
from bot.platform import BaseUrl, LazyImport, LazyModule
from bot.text import user_text

if TYPE_CHECKING:
    from google.genai import types


MAX_ANSWER_LENGTH = 1_000_000  # characters
REFUSAL_REASONS = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"}
)
COMPLETE_REASONS = frozenset({"STOP", "MAX_TOKENS"})


class AnswerReader:
    """Collects the pieces of one answer, passes its text to a sink, and returns the result at the end."""

    def __init__(self, model: str, sink: TextSink | None) -> None:
        self._model = model
        self._sink = sink
        self._text = ""
        self._calls: list[ToolCall] = []
        self._finish_reason = ""
        self._is_refused = False
        self._usage: types.GenerateContentResponseUsageMetadata | None = None

    async def add(self, piece: "types.GenerateContentResponse") -> None:
        """Add the next piece. Raises ModelError for an answer without an end."""
        if self._sink is not None:
            await self._sink.write("")  # reports progress, also while the model thinks
        self._model = piece.model_version or self._model
        self._usage = piece.usage_metadata or self._usage
        note_call(self._model, self._to_usage())
        self._is_refused |= piece.prompt_feedback is not None and piece.prompt_feedback.block_reason is not None
        for candidate in (piece.candidates or ())[:1]:
            if candidate.finish_reason is not None:
                self._finish_reason = candidate.finish_reason.value
                self._is_refused |= self._finish_reason in REFUSAL_REASONS
            for part in (candidate.content.parts if candidate.content else None) or ():
                await self._add_part(part)

    async def _add_part(self, part: "types.Part") -> None:
        if part.thought:
            return
        if part.function_call is not None and part.function_call.name:
            self._calls.append(ToolCall(part.function_call.name, part.function_call.args or {}))
        if part.text:
            self._text += part.text
            if len(self._text) > MAX_ANSWER_LENGTH:
                raise ModelError(f"google: {self._model} wrote without an end")
            if self._sink is not None:
                await self._sink.write(part.text)

    def finish(self) -> TextResult:
        """Return the result; a notice instead of the text that a refusal has cut off.

        Raises InvalidAnswer if the answer broke off without any text, or ended without one for an unexpected reason.
        """
        if self._is_refused:
            self._text, self._calls = user_text("notices.no_answer"), []
        elif not self._text and not self._calls and self._finish_reason not in COMPLETE_REASONS:
            cause = self._finish_reason or "the answer broke off"
            raise InvalidAnswer(f"google: {self._model} wrote nothing ({cause})")
        return TextResult(
            text=self._text,
            model=self._model,
            usage=self._to_usage(),
            is_truncated=self._finish_reason == "MAX_TOKENS",
            tool_calls=tuple(self._calls),
        )

    def _to_usage(self) -> Usage | None:
        usage = self._usage
        if usage is None or not usage.prompt_token_count:
            return None
        written = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        cached = min(usage.cached_content_token_count or 0, usage.prompt_token_count)
        return Usage(usage.prompt_token_count, written, cached)


KEY, SERVER = "GOOGLE_GENERATIVE_AI_API_KEY", "GOOGLE_GENERATIVE_AI_BASE_URL"


class GoogleSettings(SettingsModel):
    """Key and models of Google's Gemini API."""

    CHARACTER_SETTINGS = frozenset(
        [
            "GOOGLE_GENERATIVE_AI_API_KEY",
            "GOOGLE_SMALL_MODEL",
            "GOOGLE_MEDIUM_MODEL",
            "GOOGLE_LARGE_MODEL",
            "GOOGLE_EMBEDDING_MODEL",
            "GOOGLE_EMBEDDING_DIMENSIONS",
            "GOOGLE_IMAGE_MODEL",
        ]
    )

    google_generative_ai_api_key: Secret | None = Field(None, description="The key.")
    google_generative_ai_base_url: BaseUrl = Field(
        "https://generativelanguage.googleapis.com",
        description="The server, without a version; another one with the same API, such as a proxy.",
    )
    google_small_model: str = Field("gemini-2.5-flash-lite", description="Decides whether to answer; cheap and quick.")
    google_medium_model: str | None = Field(
        None, description="Between the two; one of them stands in where it is not set."
    )
    google_large_model: str = Field("gemini-2.5-flash", description="Writes the answers.")
    google_thinking_budget: int | None = Field(
        None,
        ge=0,
        description="How many tokens a model may think before it answers; 0 for none, where a model can do "
        "without. Unset, the model decides.",
    )
    google_embedding_model: str = Field(
        "gemini-embedding-001", description="Makes the vectors by which things are found."
    )
    google_embedding_dimensions: int | None = Field(
        None, ge=1, le=65_536, description="How many numbers a vector has; the model's own where unset."
    )
    google_image_model: str | None = Field(
        None, description="Says what a picture shows; the large model where it is not set."
    )


def missing_settings(settings: Settings) -> str:
    """Return what is missing; empty if the key is set."""
    return "" if KEY in settings else f"set {KEY} in .env"


def privacy_statement(settings: Settings) -> str:
    """Return the statement to which server user data is sent."""
    host = host_label(settings.load(GoogleSettings).google_generative_ai_base_url)
    data = ", ".join(user_text(f"privacy.data.{name}") for name in ("text", "searchable", "pictures"))
    return user_text("privacy.sent", host=host, data=data)


if TYPE_CHECKING:
    import httpx
    from google import genai
    from google.genai import errors, types

    from plugins.google.http import AnswerClient
else:
    httpx = LazyModule("httpx")
    genai = LazyModule("google.genai")
    errors, types = (LazyModule(f"google.genai.{name}", "google.genai") for name in ("errors", "types"))
    AnswerClient = LazyImport("plugins.google.http:AnswerClient")  # it imports the SDK

logger = logging.getLogger(__name__)

DUMMY_KEY = "none"  # without one, the SDK would look for another key in the environment
# Parameters that can be omitted, and how an error names them.
OPTIONAL = {
    "temperature": r"\btemperature\b",
    "top_p": r"\btop[_ -]?p\b",
    "top_k": r"\btop[_ -]?k\b",
    "frequency_penalty": "penalty",
    "presence_penalty": "penalty",
    "response_json_schema": "schema|json mode",
    "response_mime_type": "mime[_ ]?type|json mode",
    "seed": r"\bseed\b",
    "stop_sequences": r"stop[_ ]?sequence",
    "system_instruction": "(?:system|developer)[_ ]?instruction",
    "thinking_config": "thinking",
    "tools": "function calling|tool use",
}
EXCLUSIVE = re.compile(r"\b(?:both|either|together|only one|one of|mutually exclusive|combined?)\b", re.IGNORECASE)
TOOLS = re.compile(r"\btools?\b|\bfunctions?\b|function_?declarations?", re.IGNORECASE)
PROMPT_TOO_LONG = re.compile(r"token count.*exceeds the maximum|maximum number of tokens", re.IGNORECASE)
INVALID_KEY = re.compile(r"API.key (?:not valid|expired|not found)", re.IGNORECASE)
RETRY_HINT = re.compile(r"retry (?:in|after) ([\d.]+ ?(?:ms|[hms])[\d.hms]*)", re.IGNORECASE)
DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ms|[hms])")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}  # in seconds
MAX_RETRY_DELAY = 3600.0
MODEL_ADVICE = "correct {model} in GOOGLE_…_MODEL: ai.google.dev/gemini-api/docs/models lists the names"


class GoogleClient(Service):
    """One connection pool to the API, opened and closed with the agent."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.settings = agent.settings.load(GoogleSettings)
        key, url = self.settings.google_generative_ai_api_key, self.settings.google_generative_ai_base_url
        self._key = key.get_secret_value() if key else DUMMY_KEY
        self._host = urlsplit(url).netloc
        self._refused: dict[str, set[str]] = {}
        # It follows no redirect, which would hand the conversation to another server. The router has deadlines.
        self._http = AnswerClient(agent.memory, timeout=None, follow_redirects=False)
        options = types.HttpOptions(base_url=url, httpx_async_client=self._http)
        self._sdk = genai.Client(vertexai=False, api_key=self._key, http_options=options)
        self.models = self._sdk.aio.models
        wanted = {
            "GOOGLE_LARGE_MODEL": self.settings.google_large_model,
            "GOOGLE_MEDIUM_MODEL": self.settings.google_medium_model,
            "GOOGLE_SMALL_MODEL": self.settings.google_small_model,
            "GOOGLE_IMAGE_MODEL": self.settings.google_image_model,
            "GOOGLE_EMBEDDING_MODEL": self.settings.google_embedding_model,
        }
        self.listing = ModelListing(
            self._fetch_models, provider="google", host=self._host, advice=MODEL_ADVICE, wanted=wanted
        )

    async def __aenter__(self) -> Self:
        await self.listing.log()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()
        self._sdk.close()

    async def write(
        self, model: str, contents: "types.ContentListUnion", parameters: dict[str, Any], sink: TextSink | None = None
    ) -> TextResult:
        """Return the text that a model writes; parameters that it refuses are omitted from then on.

        Raises ModelRefused if a retry cannot help, ToolsRefused if the server refuses the tools, ModelUnreachable if
        there is no connection, ModelBusy if the server is busy or too slow, ModelError otherwise.
        """
        note_call(model)
        is_repeated = False
        while True:
            omitted = self._refused.get(model, set())
            allowed = {name: value for name, value in parameters.items() if name not in omitted}
            sent = contents
            if "system_instruction" in parameters.keys() & omitted and isinstance(contents, str):
                sent = f"{parameters['system_instruction']}\n\n{contents}"
            with self.mapped_errors(model):
                try:
                    return await self._fetch(model, sent, allowed, sink)
                except errors.APIError as error:
                    named = _find_named(error, allowed)
                    refused = [name for name in named if name in allowed]
                    if len(named) > 1 and EXCLUSIVE.search(str(error.message)) and not is_repeated:
                        refused = refused[1:]
                    if not refused and (is_repeated or not named):
                        raise
            is_repeated = True
            if refused:
                self._refused.setdefault(model, set()).update(refused)
                names = ", ".join(refused)
                logger.warning(
                    "%s refuses the parameters %s; they are omitted from now on", model, names, extra={"once": True}
                )

    async def _fetch(
        self, model: str, contents: "types.ContentListUnion", parameters: dict[str, Any], sink: TextSink | None
    ) -> TextResult:
        config = types.GenerateContentConfig(**parameters)
        reader = AnswerReader(model, sink)
        if sink is None:
            await reader.add(await self.models.generate_content(model=model, contents=contents, config=config))
        else:
            stream: AsyncIterator[types.GenerateContentResponse] = await self.models.generate_content_stream(
                model=model, contents=contents, config=config
            )
            async for piece in stream:
                await reader.add(piece)
        return reader.finish()

    async def _fetch_models(self) -> list[ModelInfo]:
        with self.mapped_errors():
            pager = await self.models.list(config=types.ListModelsConfig(page_size=1000))
            return [_to_model_info(model) for model in pager.page if model.name]

    @contextmanager
    def mapped_errors(self, model: str = "") -> Iterator[None]:
        """Map errors of the SDK inside the block, as `write` says."""
        try:
            yield
        except errors.APIError as error:
            raise self._to_model_error(error, model) from error
        except httpx.ConnectError as error:
            message = f"google: cannot connect to {self._host}: {self._shorten(str(error))}"
            raise ModelUnreachable(f"{message}; check the network and {SERVER}") from error
        except httpx.HTTPError as error:
            raise ModelBusy(f"google: no answer from {self._host}: {type(error).__name__}") from error
        except ValueError as error:  # what the server sent is not what its API promises
            raise InvalidAnswer(f"google: {self._host} gave no valid answer; check {SERVER}") from error

    def _to_model_error(self, error: "errors.APIError", model: str) -> ModelError:
        status, message = error.code, self._shorten(str(error.message or error.details or ""))
        if status in range(300, 400):
            return ModelRefused(f"google: {self._host} redirects, and nothing is sent elsewhere: correct {SERVER}")
        if status == 401 or (status in (400, 403) and INVALID_KEY.search(message)):
            return ModelRefused(f"google: {self._host} refused the key in {KEY} ({status}): set a valid key")
        if status == 404:
            advice = MODEL_ADVICE.replace("{model}", model or "NAME")
            return ModelRefused(f"google: {self._host} does not know the model or path (404): {advice}")
        if status == 429 or status >= 500:
            return ModelBusy(f"google: {self._host} cannot answer now ({status}): {message}", retry_after=_delay(error))
        error_type: type[ModelRefused] = ModelRefused
        if PROMPT_TOO_LONG.search(message):
            error_type = PromptTooLong
        elif status == 400 and TOOLS.search(message):
            error_type = ToolsRefused
        return error_type(f"google: {self._host} refused the request ({status}): {message}")

    def _shorten(self, message: str) -> str:
        return " ".join(message.replace(self._key, "[the key]").split())[:200]


def _find_named(error: "errors.APIError", parameters: dict[str, Any]) -> list[str]:
    """Return the parameters that the error refuses; empty for any other error."""
    message = str(error.message or "")
    if error.code != 400 or PROMPT_TOO_LONG.search(message):
        return []
    named = [name for name, words in OPTIONAL.items() if re.search(words, message, re.IGNORECASE)]
    if TOOLS.search(message) and "tools" in parameters and "tools" not in named:
        return []  # the schema of a tool
    return [] if set(named) <= {"tools", "response_json_schema"} and not set(named) & set(parameters) else named


def _delay(error: "errors.APIError") -> float | None:
    """Return after how many seconds the server wants to be asked again; None if it does not say."""
    body = error.details
    details = body.get("error", body) if isinstance(body, dict) else None
    details = details.get("details") if isinstance(details, dict) else None
    texts = [str(detail.get("retryDelay", "")) for detail in _list(details)]
    if hint := RETRY_HINT.search(str(error.message or "")):
        texts.append(hint[1])
    delays = [
        sum(float(number) * UNITS[unit] for number, unit in DURATION.findall(text))
        for text in texts
        if DURATION.search(text)
    ]
    if (headers := getattr(error.response, "headers", None)) is not None:
        delays += [delay] if (delay := parse_retry_after(headers, datetime.now(UTC))) is not None else []
    return min(max(delays), MAX_RETRY_DELAY) if delays else None


def _list(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _to_model_info(model: "types.Model") -> ModelInfo:
    actions = model.supported_actions
    name = str(model.name).removeprefix("models/")
    is_embedding = "embed" in name if actions is None else "generateContent" not in actions
    return ModelInfo(name, is_embedding=is_embedding, context_length=model.input_token_limit)
