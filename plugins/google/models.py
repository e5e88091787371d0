"""The handlers of text, embeddings and descriptions of pictures."""

from typing import TYPE_CHECKING, Any

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
from bot.platform import LazyModule
from plugins.google.client import GoogleClient
from plugins.google.settings import GoogleSettings
from plugins.google.tool_schemas import gemini_schema

if TYPE_CHECKING:
    from google.genai import types
else:
    types = LazyModule("google.genai.types", "google.genai")

DEFAULT_DESCRIPTION_PROMPT = "Describe this picture in a few sentences."
MAX_DESCRIPTION_TOKENS = 1024
MAX_TEXTS = 100  # of one request for embeddings
SAMPLING = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "seed")


def build_parameters(request: TextRequest, settings: GoogleSettings) -> dict[str, Any]:
    """Return the parameters of a request, without those that are not set."""
    parameters: dict[str, Any] = {name: getattr(request, name) for name in SAMPLING}
    parameters["max_output_tokens"] = request.max_tokens
    parameters["system_instruction"] = request.system or None
    parameters["stop_sequences"] = list(request.stop) or None
    if request.schema is not None:
        parameters["response_mime_type"] = "application/json"
        parameters["response_json_schema"] = dict(request.schema)
    if request.tools:
        declarations = [
            types.FunctionDeclaration(
                name=tool.name, description=tool.description, parameters_json_schema=gemini_schema(tool.parameters)
            )
            for tool in request.tools
        ]
        parameters["tools"] = [types.Tool(function_declarations=declarations)]
    if settings.google_thinking_budget is not None:
        parameters["thinking_config"] = types.ThinkingConfig(thinking_budget=settings.google_thinking_budget)
    return {name: value for name, value in parameters.items() if value is not None}


async def _write(agent: Agent, name: str, request: TextRequest) -> TextResult:
    client = agent.services[GoogleClient]
    return await client.write(name, request.prompt, build_parameters(request, client.settings), request.sink)


async def _describe_small(agent: Agent) -> ModelInfo:
    return ModelInfo(agent.services[GoogleClient].settings.google_small_model)


async def _describe_medium(agent: Agent) -> ModelInfo:
    return ModelInfo(agent.services[GoogleClient].settings.google_medium_model or "")


async def _describe_large(agent: Agent) -> ModelInfo:
    return ModelInfo(agent.services[GoogleClient].settings.google_large_model)


def _has_medium_model(settings: Settings) -> bool:
    return settings.load(GoogleSettings).google_medium_model is not None


@model(ModelType.TEXT_SMALL, can_call_tools=True, describe_model=_describe_small)
async def small(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the small model."""
    return await _write(agent, agent.services[GoogleClient].settings.google_small_model, request)


@model(ModelType.TEXT_MEDIUM, can_call_tools=True, when=_has_medium_model, describe_model=_describe_medium)
async def medium(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the medium model."""
    return await _write(agent, agent.services[GoogleClient].settings.google_medium_model or "", request)


@model(ModelType.TEXT_LARGE, can_call_tools=True, describe_model=_describe_large)
async def large(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the large model."""
    return await _write(agent, agent.services[GoogleClient].settings.google_large_model, request)


@model(ModelType.TEXT_EMBEDDING)
async def embed(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Return the embeddings of texts. Raises ModelError if one is missing, and as `GoogleClient.write` does."""
    client = agent.services[GoogleClient]
    name, dimensions = client.settings.google_embedding_model, client.settings.google_embedding_dimensions
    config = types.EmbedContentConfig(output_dimensionality=dimensions)
    vectors: list[tuple[float, ...]] = []
    for start in range(0, len(request.texts), MAX_TEXTS):
        texts = request.texts[start : start + MAX_TEXTS]
        contents: list[Any] = [types.Content(role="user", parts=[types.Part(text=text)]) for text in texts]
        with client.mapped_errors(name):
            response = await client.models.embed_content(model=name, contents=contents, config=config)
        vectors += [tuple(item.values or ()) for item in response.embeddings or ()]
    if len(vectors) != len(request.texts):
        raise ModelError(f"google: {name} did not return one vector for each of {len(request.texts)} texts")
    return EmbeddingResult(tuple(vectors), name if dimensions is None else f"{name}-{dimensions}")


@model(ModelType.IMAGE_DESCRIPTION)
async def describe_image(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
    """Return a description of a picture."""
    client = agent.services[GoogleClient]
    name = client.settings.google_image_model or client.settings.google_large_model
    picture = types.Part.from_bytes(data=request.image, mime_type=request.content_type)
    contents: list[Any] = [picture, request.prompt or DEFAULT_DESCRIPTION_PROMPT]
    return await client.write(name, contents, {"max_output_tokens": MAX_DESCRIPTION_TOKENS})
