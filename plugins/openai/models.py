"""Text and embedding handlers."""

from typing import Annotated

import openai
from pydantic import BaseModel, Field

from bot import Agent, model
from bot.models import (
    EmbeddingRequest,
    EmbeddingResult,
    ModelError,
    ModelType,
    TextRequest,
    TextResult,
    Usage,
)
from plugins.openai.chat import complete
from plugins.openai.client import Client
from plugins.openai.responses import Lenient, TokenCount, parse_response
from plugins.openai.settings import (
    can_call_tools,
    has_medium_model,
    model_for,
    serves_capability,
    writes_text,
)


@model(ModelType.TEXT_SMALL, can_call_tools=can_call_tools, when=writes_text)
async def small(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the small model."""
    client = agent.services[Client]
    return await complete(client, client.settings.openai_small_model, request)


@model(ModelType.TEXT_MEDIUM, can_call_tools=can_call_tools, when=has_medium_model)
async def medium(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the model between the two."""
    client = agent.services[Client]
    return await complete(client, client.settings.openai_medium_model or "", request)


@model(ModelType.TEXT_LARGE, can_call_tools=can_call_tools, when=writes_text)
async def large(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the large model."""
    client = agent.services[Client]
    return await complete(client, client.settings.openai_large_model, request)


EMBEDDING = "EMBEDDING"


class EmbeddingBody(BaseModel):
    """The vector of the text at `index`."""

    index: Annotated[int, Field(ge=0)]
    embedding: list[float]


class EmbeddingUsage(BaseModel):
    """What the vectors took: there is nothing but tokens in."""

    prompt_tokens: TokenCount


class EmbeddingsBody(BaseModel):
    """An answer to a request for vectors."""

    data: list[EmbeddingBody]
    usage: Lenient[EmbeddingUsage] = None


@model(ModelType.TEXT_EMBEDDING, when=serves_capability(EMBEDDING))
async def embed(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Have vectors made, of the dimension that is set, if one is; never one of another."""
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
        raise ModelError(f"openai: {name} gave other vectors than one for each of {len(request.texts)} texts")
    lengths = {len(item.embedding) for item in ordered}
    if dimensions is not None and lengths - {dimensions}:
        raise ModelError(
            f"openai: {name} gave vectors of {max(lengths)} numbers where OPENAI_EMBEDDING_DIMENSIONS asks "
            f"for {dimensions}: take that out, or name a model that can make them"
        )
    return EmbeddingResult(
        vectors=tuple(tuple(item.embedding) for item in ordered),
        model=_embedding_space(
            name, max(lengths, default=0), is_plain=dimensions is None and connection.endpoint.is_openai
        ),
        usage=Usage(body.usage.prompt_tokens) if body.usage else None,
    )


def _embedding_space(name: str, dimension: int, *, is_plain: bool) -> str:
    """Name what the vectors can be compared with: those of the same model and dimension.

    Without its dimension only a name of OpenAI says that: a server of one's own may serve another model
    under it tomorrow.
    """
    return name if is_plain else f"{name}-{dimension}"
