"""The connection to Google's API, requests that omit refused parameters, and the mapping of errors."""

import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from bot import Agent, Service
from bot.models import (
    ModelBusy,
    ModelError,
    ModelInfo,
    ModelListing,
    ModelRefused,
    ModelUnreachable,
    PromptTooLong,
    TextResult,
    TextSink,
    note_call,
)
from bot.platform import LazyModule
from plugins.google.responses import AnswerReader
from plugins.google.settings import KEY, SERVER, GoogleSettings

if TYPE_CHECKING:
    import httpx
    from google import genai
    from google.genai import errors, types
else:
    httpx = LazyModule("httpx")
    genai = LazyModule("google.genai")
    errors, types = (LazyModule(f"google.genai.{name}", "google.genai") for name in ("errors", "types"))

logger = logging.getLogger(__name__)

DUMMY_KEY = "none"  # without one, the SDK would look for another key in the environment
# Parameters that can be omitted, and the word by which an error's text refuses them.
OPTIONAL = {
    "frequency_penalty": "penalty",
    "presence_penalty": "penalty",
    "response_json_schema": "schema",
    "seed": "seed",
    "thinking_config": "thinking",
    "tools": "function calling",
    "top_k": "top_k",
}
PROMPT_TOO_LONG = re.compile(r"token count.*exceeds the maximum|maximum number of tokens", re.IGNORECASE)
INVALID_KEY = re.compile(r"API.key (?:not valid|expired|not found)", re.IGNORECASE)
RETRY_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")
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
        self._http = httpx.AsyncClient(timeout=None, follow_redirects=False)
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

        Raises ModelRefused if a retry cannot help, ModelUnreachable if there is no connection, ModelBusy if
        the server is busy or too slow, ModelError otherwise.
        """
        note_call(model)
        while True:
            allowed = {name: parameters[name] for name in parameters.keys() - self._refused.get(model, set())}
            with self.mapped_errors(model):
                try:
                    return await self._fetch(model, contents, allowed, sink)
                except errors.APIError as error:
                    refused = _find_refused(error, allowed)
                    if not refused:
                        raise
            self._refused.setdefault(model, set()).update(refused)
            logger.warning("%s refuses the parameters %s; they are omitted from now on", model, ", ".join(refused))

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
            raise ModelError(f"google: {self._host} gave no valid answer; check {SERVER}") from error

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
        error_type = PromptTooLong if PROMPT_TOO_LONG.search(message) else ModelRefused
        return error_type(f"google: {self._host} refused the request ({status}): {message}")

    def _shorten(self, message: str) -> str:
        return " ".join(message.replace(self._key, "[the key]").split())[:200]


def _find_refused(error: "errors.APIError", parameters: dict[str, Any]) -> list[str]:
    """Return the sent parameters that the error refuses; empty for any other error."""
    message = str(error.message or "").lower()
    if error.code != 400 or PROMPT_TOO_LONG.search(message):
        return []
    return [name for name, word in OPTIONAL.items() if name in parameters and word in message]


def _delay(error: "errors.APIError") -> float | None:
    """Return after how many seconds the server wants to be asked again; None if it does not say."""
    body = error.details
    details = body.get("error", body).get("details") if isinstance(body, dict) else None
    for detail in details if isinstance(details, list) else ():
        delay = RETRY_DELAY.fullmatch(str(detail.get("retryDelay", ""))) if isinstance(detail, dict) else None
        if delay:
            return min(float(delay[1]), MAX_RETRY_DELAY)
    return None


def _to_model_info(model: "types.Model") -> ModelInfo:
    actions = model.supported_actions
    name = str(model.name).removeprefix("models/")
    is_embedding = "embed" in name if actions is None else "generateContent" not in actions
    return ModelInfo(name, is_embedding=is_embedding, context_length=model.input_token_limit)
