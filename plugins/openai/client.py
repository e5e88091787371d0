"""The connection to the API, and what its errors mean here."""

from types import TracebackType
from typing import Self, TypeVar

import openai
from openai.types.chat import ChatCompletionMessageParam

from bot import Agent, ModelError, ModelRefused, ModelUnavailable, Service, TextRequest, TextResult
from plugins.openai.answers import read_completion
from plugins.openai.settings import OpenAISettings

T = TypeVar("T")
NO_KEY = "none"  # the SDK insists on a key where local servers want none
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
            answer = await self._sdk.chat.completions.with_raw_response.create(
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
        except openai.OpenAIError as error:
            raise ModelError(f"openai: {error}") from error
        return read_completion(answer.content, model)

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
            return ModelRefused(f"openai: {host} refused the request ({status}): {self._brief(error)}")
        return ModelUnavailable(f"openai: {host} is not able to answer now ({status}): {self._brief(error)}")

    def _brief(self, error: openai.APIStatusError) -> str:
        key = self.settings.openai_api_key
        said = error.message.replace(key.get_secret_value(), "[the key]") if key else error.message
        return " ".join(said.split())[:200]


def _given(value: T | None) -> T | openai.Omit:
    return openai.omit if value is None else value


def _messages(request: TextRequest) -> list[ChatCompletionMessageParam]:
    prompt: ChatCompletionMessageParam = {"role": "user", "content": request.prompt}
    return [{"role": "system", "content": request.system}, prompt] if request.system else [prompt]
