"""The handlers of the models, and the connection that they use."""

from bot import Agent, Settings, model
from bot.models import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ModelRefused,
    ModelType,
    TextRequest,
    TextResult,
)
from bot.models import openai_compatible as api
from plugins.openrouter.settings import OpenRouterSettings, endpoint_for

MAX_DESCRIPTION_TOKENS = 1024


class OpenRouterClient(api.CompatibleClient):
    """The connection to the server, opened and closed with the agent."""

    lists_at_start = True

    def __init__(self, agent: Agent) -> None:
        self.settings = agent.settings.load(OpenRouterSettings)
        wanted = {
            "OPENROUTER_LARGE_MODEL": self.settings.openrouter_large_model,
            "OPENROUTER_MEDIUM_MODEL": self.settings.openrouter_medium_model,
            "OPENROUTER_SMALL_MODEL": self.settings.openrouter_small_model,
            "OPENROUTER_IMAGE_MODEL": self.settings.openrouter_image_model,
        }  # the list has no embedding models
        super().__init__(agent, {"": endpoint_for(self.settings)}, wanted)


def _offers_tools(settings: Settings) -> bool:
    return settings.load(OpenRouterSettings).openrouter_tools is not False


def _has_medium_model(settings: Settings) -> bool:
    return settings.load(OpenRouterSettings).openrouter_medium_model is not None


def _has_embedding_model(settings: Settings) -> bool:
    return settings.load(OpenRouterSettings).openrouter_embedding_model is not None


@model(
    ModelType.TEXT_SMALL,
    can_call_tools=_offers_tools,
    has_tools_now=OpenRouterClient.accepting("tools", "openrouter_small_model"),
    can_write_json=OpenRouterClient.accepting("response_format", "openrouter_small_model"),
)
async def small(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the small model."""
    client = agent.services[OpenRouterClient]
    return await api.complete(client, client.settings.openrouter_small_model, request)


@model(
    ModelType.TEXT_MEDIUM,
    can_call_tools=_offers_tools,
    has_tools_now=OpenRouterClient.accepting("tools", "openrouter_medium_model"),
    can_write_json=OpenRouterClient.accepting("response_format", "openrouter_medium_model"),
    when=_has_medium_model,
)
async def medium(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the medium model."""
    client = agent.services[OpenRouterClient]
    return await api.complete(client, client.settings.openrouter_medium_model or "", request)


@model(
    ModelType.TEXT_LARGE,
    can_call_tools=_offers_tools,
    has_tools_now=OpenRouterClient.accepting("tools", "openrouter_large_model"),
    can_write_json=OpenRouterClient.accepting("response_format", "openrouter_large_model"),
)
async def large(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the large model."""
    client = agent.services[OpenRouterClient]
    return await api.complete(client, client.settings.openrouter_large_model, request)


@model(ModelType.TEXT_EMBEDDING, when=_has_embedding_model)
async def embed(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Return the embeddings of texts."""
    client = agent.services[OpenRouterClient]
    return await api.embed(
        client.connection(),
        client.settings.openrouter_embedding_model or "",
        request,
        dimensions=client.settings.openrouter_embedding_dimensions,
        dimensions_name="OPENROUTER_EMBEDDING_DIMENSIONS",
    )


@model(ModelType.IMAGE_DESCRIPTION)
async def describe_image(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
    """Return a description of a picture. Raises ModelRefused if the model sees no pictures."""
    client = agent.services[OpenRouterClient]
    name = client.settings.openrouter_image_model or client.settings.openrouter_large_model
    if client.listing.info(name).can_see is False:
        raise ModelRefused(f"openrouter: {name} sees no pictures: set OPENROUTER_IMAGE_MODEL to a model that does")
    return await api.describe_image(client, client.connection(), name, request, max_tokens=MAX_DESCRIPTION_TOKENS)
