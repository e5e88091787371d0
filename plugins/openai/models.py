"""The handlers of text and embeddings."""

from typing import Annotated

import openai
from pydantic import BaseModel, Field

from bot import Agent, model
from bot.models import EmbeddingRequest, EmbeddingResult, ModelError, ModelType, TextRequest, TextResult, Usage
from plugins.openai.chat import complete
from plugins.openai.client import Client
from plugins.openai.responses import Lenient, TokenCount, parse_response
from plugins.openai.served_models import LARGE, SMALL, find_text_model
from plugins.openai.settings import can_call_tools, has_medium_model, model_for, serves_capability, writes_text


@model(ModelType.TEXT_SMALL, can_call_tools=can_call_tools, when=writes_text)
async def small(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the small model."""
    client = agent.services[Client]
    return await complete(client, await find_text_model(client, SMALL), request)


@model(ModelType.TEXT_MEDIUM, can_call_tools=can_call_tools, when=has_medium_model)
async def medium(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the medium model."""
    client = agent.services[Client]
    return await complete(client, client.settings.openai_medium_model or "", request)


@model(ModelType.TEXT_LARGE, can_call_tools=can_call_tools, when=writes_text)
async def large(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the large model."""
    client = agent.services[Client]
    return await complete(client, await find_text_model(client, LARGE), request)


EMBEDDING = "EMBEDDING"


class EmbeddingBody(BaseModel):
    """The embedding of the text at `index`."""

    index: Annotated[int, Field(ge=0)]
    embedding: list[float]


class EmbeddingUsage(BaseModel):
    """The tokens of an embedding request."""

    prompt_tokens: TokenCount


class EmbeddingsBody(BaseModel):
    """A response with embeddings."""

    data: list[EmbeddingBody]
    usage: Lenient[EmbeddingUsage] = None


@model(ModelType.TEXT_EMBEDDING, when=serves_capability(EMBEDDING))
async def embed(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Return the embeddings of texts. Raises ModelError if one is missing or has a wrong dimension."""
    client = agent.services[Client]
    name, dimensions = model_for(client.settings, EMBEDDING), client.settings.openai_embedding_dimensions
    connection = client.connection(EMBEDDING)
    with connection.mapped_errors():
        response = await connection.sdk.embeddings.with_raw_response.create(
            model=name,
            input=list(request.texts),
            dimensions=openai.omit if dimensions is None else dimensions,
            encoding_format="float",
        )
    body = parse_response(EmbeddingsBody, response.content, name, "list of vectors")
    ordered = sorted(body.data, key=lambda item: item.index)
    if [item.index for item in ordered] != list(range(len(request.texts))):
        raise ModelError(f"openai: {name} did not return one vector for each of {len(request.texts)} texts")
    lengths = {len(item.embedding) for item in ordered}
    if dimensions is not None and lengths - {dimensions}:
        raise ModelError(
            f"openai: {name} returned vectors of {max(lengths)} numbers, but OPENAI_EMBEDDING_DIMENSIONS is "
            f"{dimensions}: remove that setting, or choose a model that supports it"
        )
    return EmbeddingResult(
        vectors=tuple(tuple(item.embedding) for item in ordered),
        model=_embedding_space(
            name, max(lengths, default=0), is_plain=dimensions is None and connection.endpoint.is_openai
        ),
        usage=Usage(body.usage.prompt_tokens) if body.usage else None,
    )


def _embedding_space(name: str, dimension: int, *, is_plain: bool) -> str:
    """Return the name of the space in which vectors are comparable.

    The dimension is part of it unless the model is OpenAI's own: another server may change the model behind
    a name.
    """
    return name if is_plain else f"{name}-{dimension}"
