"""The connection to the API, and what its errors mean here."""

from types import TracebackType
from typing import Self, TypeVar

import openai
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionMessage, ChatCompletionMessageParam

from bot import Agent, ModelError, ModelRefused, ModelUnavailable, Service, TextRequest, TextResult, Usage
from plugins.openai.settings import OpenAISettings

T = TypeVar("T")
NO_KEY = "none"  # the SDK insists on a key where local servers want none
HUGE = 100_000_000  # more tokens than this in one call are a mistake
REFUSALS = (400, 401, 402, 403, 404, 422)


class Client(Service):
    """One connection pool to the API, opened and closed with the agent."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.settings = agent.settings.load(OpenAISettings)
        key = self.settings.openai_api_key
        self._sdk = openai.AsyncOpenAI(
            api_key=key.get_secret_value() if key else NO_KEY, base_url=self.settings.openai_base_url
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._sdk.close()

    async def complete(self, model: str, request: TextRequest) -> TextResult:
        """Have a chat completion written.

        Raises ModelRefused for what no repetition mends, ModelUnavailable where the server is not
        there or busy, ModelError for anything else.
        """
        try:
            completion = await self._sdk.chat.completions.create(
                model=model,
                messages=_messages(request),
                max_tokens=_given(request.max_tokens),
                temperature=_given(request.temperature),
                top_p=_given(request.top_p),
                frequency_penalty=_given(request.frequency_penalty),
                presence_penalty=_given(request.presence_penalty),
                seed=_given(request.seed),
                stop=list(request.stop) or openai.omit,
            )
        except openai.APIStatusError as error:
            raise self._explained(error) from error
        except openai.APIConnectionError as error:
            raise ModelUnavailable(f"openai: no answer from {self._sdk.base_url.host}: {error}") from error
        except (openai.OpenAIError, ValueError) as error:  # ValueError: its JSON is none
            raise ModelError(f"openai: {self._sdk.base_url.host} gave no answer: {error}") from error
        return _result(completion, model)

    def _explained(self, error: openai.APIStatusError) -> ModelError:
        host, status = self._sdk.base_url.host, error.status_code
        if status == 401:
            return ModelRefused(f"openai: {host} refused the key in OPENAI_API_KEY (401): put in a valid one")
        if status == 404:
            return ModelRefused(
                f"openai: {host} does not know the model or path (404): check OPENAI_LARGE_MODEL, "
                "OPENAI_SMALL_MODEL and that OPENAI_BASE_URL ends in /v1"
            )
        if status in REFUSALS:
            return ModelRefused(f"openai: {host} refused the request ({status}): {_brief(error)}")
        return ModelUnavailable(f"openai: {host} is not able to answer now ({status}): {_brief(error)}")


def _given(value: T | None) -> T | openai.Omit:
    return openai.omit if value is None else value


def _brief(error: openai.APIStatusError) -> str:
    return " ".join(error.message.split())[:200]


def _messages(request: TextRequest) -> list[ChatCompletionMessageParam]:
    prompt: ChatCompletionMessageParam = {"role": "user", "content": request.prompt}
    return [{"role": "system", "content": request.system}, prompt] if request.system else [prompt]


def _result(completion: object, model: str) -> TextResult:
    """Read an answer; the SDK checks none, so it may be of any shape. Raises ModelError."""
    if not (isinstance(completion, ChatCompletion) and completion.choices):
        raise ModelError(f"openai: {model} gave no choice in its answer: is OPENAI_BASE_URL right?")
    choice = completion.choices[0]
    message: ChatCompletionMessage | None = choice.message
    if message is None:
        raise ModelError(f"openai: {model} gave a choice without a message")
    text = message.content or message.refusal or ""
    is_cut = choice.finish_reason == "length"
    return TextResult(text, completion.model or model, _usage(completion.usage), is_cut=is_cut)


def _usage(counted: CompletionUsage | None) -> Usage | None:
    """Read the token counts; None, so that they are estimated, where there are none that make sense."""
    if counted is None or not (_is_count(counted.prompt_tokens) and _is_count(counted.completion_tokens)):
        return None
    details = counted.prompt_tokens_details
    cached = details.cached_tokens if details is not None else 0
    return Usage(
        tokens_in=counted.prompt_tokens,
        tokens_out=counted.completion_tokens,
        tokens_cached=min(cached, counted.prompt_tokens) if cached and _is_count(cached) else 0,
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < HUGE
