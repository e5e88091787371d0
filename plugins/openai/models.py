"""The handlers of the models, and the connections that they use."""

from bot import Agent, model
from bot.models import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ImageRequest,
    ImageResult,
    ModelType,
    SpeechRequest,
    SpeechResult,
    TextRequest,
    TextResult,
    TranscriptionRequest,
)
from bot.models import openai_compatible as api
from plugins.openai.settings import (
    CAPABILITIES,
    OpenAISettings,
    can_call_tools,
    endpoint_for,
    has_medium_model,
    model_for,
    serves_capability,
    writes_text,
)

EMBEDDING, IMAGE, DESCRIPTION, TRANSCRIPTION, SPEECH = CAPABILITIES
LARGE, MEDIUM, SMALL = "openai_large_model", "openai_medium_model", "openai_small_model"


class Client(api.CompatibleClient):
    """All connections to the API, opened and closed with the agent."""

    def __init__(self, agent: Agent) -> None:
        self.settings = agent.settings.load(OpenAISettings)
        endpoints = {capability: endpoint_for(self.settings, capability) for capability in ("", *CAPABILITIES)}
        super().__init__(agent, endpoints)

    def known_model(self, field: str) -> str:
        """Return the model that a setting names; blank if it is not set for a server other than OpenAI's."""
        is_known = field in self.settings.model_fields_set or self.connection().endpoint.is_openai
        return super().known_model(field) if is_known else ""

    async def text_model(self, field: str) -> str:
        """Return the model that a setting names, or the only one of another server than OpenAI's if it is not set."""
        default: str = getattr(self.settings, field)
        variables = f"{LARGE.upper()} and {SMALL.upper()}"
        return self.known_model(field) or await self.listing.find_text_model(default, variables)


@model(
    ModelType.TEXT_SMALL,
    can_call_tools=can_call_tools,
    when=writes_text,
    has_tools_now=Client.accepting("tools", SMALL),
    can_write_json=Client.accepting("response_format", SMALL),
)
async def small(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the small model."""
    client = agent.services[Client]
    return await api.complete(client, await client.text_model(SMALL), request)


@model(
    ModelType.TEXT_MEDIUM,
    can_call_tools=can_call_tools,
    when=has_medium_model,
    has_tools_now=Client.accepting("tools", MEDIUM),
    can_write_json=Client.accepting("response_format", MEDIUM),
)
async def medium(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the medium model."""
    client = agent.services[Client]
    return await api.complete(client, client.settings.openai_medium_model or "", request)


@model(
    ModelType.TEXT_LARGE,
    can_call_tools=can_call_tools,
    when=writes_text,
    has_tools_now=Client.accepting("tools", LARGE),
    can_write_json=Client.accepting("response_format", LARGE),
)
async def large(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the large model."""
    client = agent.services[Client]
    return await api.complete(client, await client.text_model(LARGE), request)


@model(ModelType.TEXT_EMBEDDING, when=serves_capability(EMBEDDING))
async def embed(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Return the embeddings of texts."""
    client = agent.services[Client]
    return await api.embed(
        client.connection(EMBEDDING),
        model_for(client.settings, EMBEDDING),
        request,
        dimensions=client.settings.openai_embedding_dimensions,
        dimensions_name="OPENAI_EMBEDDING_DIMENSIONS",
    )


@model(ModelType.IMAGE, when=serves_capability(IMAGE))
async def generate_image(agent: Agent, request: ImageRequest) -> ImageResult:
    """Return a generated picture."""
    client = agent.services[Client]
    return await api.generate_image(client.connection(IMAGE), model_for(client.settings, IMAGE), request)


@model(ModelType.IMAGE_DESCRIPTION, when=serves_capability(DESCRIPTION))
async def describe_image(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
    """Return a description of a picture."""
    client = agent.services[Client]
    name, max_tokens = model_for(client.settings, DESCRIPTION), client.settings.openai_image_description_max_tokens
    return await api.describe_image(client, client.connection(DESCRIPTION), name, request, max_tokens=max_tokens)


@model(ModelType.TRANSCRIPTION, when=serves_capability(TRANSCRIPTION))
async def transcribe(agent: Agent, request: TranscriptionRequest) -> TextResult:
    """Return the transcript of a recording."""
    client = agent.services[Client]
    return await api.transcribe(client.connection(TRANSCRIPTION), model_for(client.settings, TRANSCRIPTION), request)


@model(ModelType.TEXT_TO_SPEECH, when=serves_capability(SPEECH))
async def synthesize_speech(agent: Agent, request: SpeechRequest) -> SpeechResult:
    """Return a text as speech."""
    client = agent.services[Client]
    return await api.synthesize_speech(
        client.connection(SPEECH),
        model_for(client.settings, SPEECH),
        request,
        voice=client.settings.openai_tts_voice,
        instructions=client.settings.openai_tts_instructions,
    )
