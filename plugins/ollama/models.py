"""The handlers of the models, and the connection that they use."""

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ValidationError

from bot import Agent, Settings, model
from bot.models import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ModelError,
    ModelInfo,
    ModelType,
    TextRequest,
    TextResult,
)
from bot.models import openai_compatible as api
from plugins.ollama.settings import OllamaSettings, endpoint_for, without_default_tag

MAX_DESCRIBED = 64  # models about which the server is asked in detail
MAX_DESCRIPTION_TOKENS = 1024
CONTEXT_LENGTH = ".context_length"  # after the name of the architecture
LARGE = "OLLAMA_LARGE_MODEL"


class Tag(BaseModel):
    """A model in the list of the server."""

    name: str


class Tags(BaseModel):
    """The models that the server has."""

    models: list[Tag]


class Details(BaseModel):
    """What the server tells of a model; old versions tell no capabilities."""

    capabilities: list[str] | None = None
    model_info: dict[str, Any] | None = None

    def to_model_info(self, name: str) -> ModelInfo:
        """Return what matters of it."""
        lengths = [value for key, value in (self.model_info or {}).items() if key.endswith(CONTEXT_LENGTH)]
        abilities = self.capabilities
        return ModelInfo(
            name,
            can_call_tools=None if abilities is None else "tools" in abilities,
            can_see=None if abilities is None else "vision" in abilities,
            is_embedding="embed" in name.lower() if abilities is None else "completion" not in abilities,
            context_length=next((length for length in lengths if isinstance(length, int) and length > 0), None),
        )


class OllamaClient(api.CompatibleClient):
    """The connection to the server, opened and closed with the agent."""

    lists_at_start = True

    def __init__(self, agent: Agent) -> None:
        self.settings = agent.settings.load(OllamaSettings)
        variables = {name: field for name, field in self.settings if name.endswith("_model")}
        wanted = {name.upper(): value for name, value in variables.items()}
        super().__init__(agent, {"": endpoint_for(self.settings)}, wanted)

    async def fetch_models(self, connection: api.Connection) -> list[ModelInfo]:
        """Ask the server for its models, and what each of them can do."""
        try:
            url = f"{self.settings.ollama_api_endpoint}/api/tags"
            tags = Tags.model_validate_json(await connection.requests.fetch("GET", url))
            names = [tag.name for tag in tags.models]
            described = await asyncio.gather(*(self._describe(connection, name) for name in names[:MAX_DESCRIBED]))
        except ValidationError:
            raise ModelError(f"ollama: {connection.host} is not Ollama: check OLLAMA_API_ENDPOINT") from None
        return [*described, *(Details().to_model_info(without_default_tag(name)) for name in names[MAX_DESCRIBED:])]

    async def _describe(self, connection: api.Connection, name: str) -> ModelInfo:
        url = f"{self.settings.ollama_api_endpoint}/api/show"
        details = await connection.requests.fetch("POST", url, {"model": name})
        return Details.model_validate_json(details).to_model_info(without_default_tag(name))

    async def text_model(self, name: str | None) -> str:
        """Return the model of this name, else the large one. Raises ModelRefused if the server has several."""
        return name or self.settings.ollama_large_model or await self.listing.find_text_model("", LARGE)


def _offers_tools(settings: Settings) -> bool:
    return settings.load(OllamaSettings).ollama_tools


def _has_tools_now(agent: Agent) -> bool:
    """Return whether the large model can call tools, as far as the server has told."""
    if OllamaClient not in agent.services:
        return True
    client = agent.services[OllamaClient]
    name = client.settings.ollama_large_model or next(iter(client.listing.models or {}), "")
    return client.listing.info(name).can_call_tools is not False


def _is_set(field: str) -> Callable[[Settings], bool]:
    return lambda settings: getattr(settings.load(OllamaSettings), field) is not None


@model(ModelType.TEXT_SMALL, can_call_tools=_offers_tools, has_tools_now=_has_tools_now)
async def small(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the small model."""
    client = agent.services[OllamaClient]
    return await api.complete(client, await client.text_model(client.settings.ollama_small_model), request)


@model(
    ModelType.TEXT_MEDIUM,
    can_call_tools=_offers_tools,
    has_tools_now=_has_tools_now,
    when=_is_set("ollama_medium_model"),
)
async def medium(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the medium model."""
    client = agent.services[OllamaClient]
    return await api.complete(client, await client.text_model(client.settings.ollama_medium_model), request)


@model(ModelType.TEXT_LARGE, can_call_tools=_offers_tools, has_tools_now=_has_tools_now)
async def large(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the large model."""
    client = agent.services[OllamaClient]
    return await api.complete(client, await client.text_model(None), request)


@model(ModelType.TEXT_EMBEDDING, when=_is_set("ollama_embedding_model"))
async def embed(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Return the embeddings of texts."""
    client = agent.services[OllamaClient]
    name = client.settings.ollama_embedding_model or ""
    return await api.embed(client.connection(), name, request)


@model(ModelType.IMAGE_DESCRIPTION, when=_is_set("ollama_image_description_model"))
async def describe_image(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
    """Return a description of a picture."""
    client = agent.services[OllamaClient]
    name = client.settings.ollama_image_description_model or ""
    return await api.describe_image(client, client.connection(), name, request, max_tokens=MAX_DESCRIPTION_TOKENS)
