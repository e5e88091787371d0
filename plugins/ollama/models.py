"""The handlers of the models, and the connection that they use."""

import asyncio
from collections.abc import Callable
from typing import Any

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


def to_model_info(name: str, details: Any) -> ModelInfo:
    """Return what the server reports of a model; old versions report no capabilities."""
    details = details if isinstance(details, dict) else {}
    abilities, info = details.get("capabilities"), details.get("model_info")
    lengths = [value for key, value in info.items() if key.endswith(CONTEXT_LENGTH)] if isinstance(info, dict) else []
    has_abilities = isinstance(abilities, list)
    return ModelInfo(
        without_default_tag(name),
        can_call_tools="tools" in abilities if has_abilities else None,
        can_see="vision" in abilities if has_abilities else None,
        is_embedding="completion" not in abilities if has_abilities else "embed" in name.lower(),
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
        """Ask the server for its models, and what each of them can do. Raises as `Connection.fetch` does."""
        tags = await connection.fetch_url(f"{self.settings.ollama_api_endpoint}/api/tags", "list of models")
        if not isinstance(tags, dict) or "models" not in tags:
            raise ModelError(f"ollama: {connection.host} is not Ollama: check OLLAMA_API_ENDPOINT")
        names = [entry["id"] for entry in api.list_entries(tags)]
        described = await asyncio.gather(*(self._describe(connection, name) for name in names[:MAX_DESCRIBED]))
        return [*described, *(to_model_info(name, {}) for name in names[MAX_DESCRIBED:])]

    async def _describe(self, connection: api.Connection, name: str) -> ModelInfo:
        url = f"{self.settings.ollama_api_endpoint}/api/show"
        return to_model_info(name, await connection.fetch_url(url, "description", {"model": name}))

    def known_model(self, field: str) -> str:
        """Return the model of a setting, else the large one, else the first that the server has listed."""
        named = super().known_model(field) or self.settings.ollama_large_model
        return named or next(iter(self.listing.models or {}), "")

    async def text_model(self, name: str | None) -> str:
        """Return the model of this name, else the large one. Raises ModelRefused if the server has several."""
        return name or self.settings.ollama_large_model or await self.listing.find_text_model("", LARGE)


def _offers_tools(settings: Settings) -> bool:
    return settings.load(OllamaSettings).ollama_tools


def _is_set(field: str) -> Callable[[Settings], bool]:
    return lambda settings: getattr(settings.load(OllamaSettings), field) is not None


@model(
    ModelType.TEXT_SMALL,
    can_call_tools=_offers_tools,
    has_tools_now=OllamaClient.accepting("tools", "ollama_small_model"),
    can_write_json=OllamaClient.accepting("response_format", "ollama_small_model"),
)
async def small(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the small model."""
    client = agent.services[OllamaClient]
    return await api.complete(client, await client.text_model(client.settings.ollama_small_model), request)


@model(
    ModelType.TEXT_MEDIUM,
    can_call_tools=_offers_tools,
    has_tools_now=OllamaClient.accepting("tools", "ollama_medium_model"),
    can_write_json=OllamaClient.accepting("response_format", "ollama_medium_model"),
    when=_is_set("ollama_medium_model"),
)
async def medium(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the medium model."""
    client = agent.services[OllamaClient]
    return await api.complete(client, await client.text_model(client.settings.ollama_medium_model), request)


@model(
    ModelType.TEXT_LARGE,
    can_call_tools=_offers_tools,
    has_tools_now=OllamaClient.accepting("tools", "ollama_large_model"),
    can_write_json=OllamaClient.accepting("response_format", "ollama_large_model"),
)
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
