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
from plugins.openai.responses import Count, Perhaps, read_as
from plugins.openai.settings import calls_tools, has_medium, model_of, serves, writes


@model(ModelType.TEXT_SMALL, can_call_tools=calls_tools, when=writes)
async def small(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the small model."""
    client = agent.services[Client]
    return await complete(client, client.settings.openai_small_model, request)


@model(ModelType.TEXT_MEDIUM, can_call_tools=calls_tools, when=has_medium)
async def medium(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the model between the two."""
    client = agent.services[Client]
    return await complete(client, client.settings.openai_medium_model or "", request)


@model(ModelType.TEXT_LARGE, can_call_tools=calls_tools, when=writes)
async def large(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the large model."""
    client = agent.services[Client]
    return await complete(client, client.settings.openai_large_model, request)


PART = "EMBEDDING"


class Vector(BaseModel):
    """The vector of the text at `index`."""

    index: Annotated[int, Field(ge=0)]
    embedding: list[float]


class Took(BaseModel):
    """What the vectors took: there is nothing but tokens in."""

    prompt_tokens: Count


class Vectors(BaseModel):
    """An answer to a request for vectors."""

    data: list[Vector]
    usage: Perhaps[Took] = None


@model(ModelType.TEXT_EMBEDDING, when=serves(PART))
async def embedding(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Have vectors made, of the dimension that is set, if one is; never one of another."""
    client = agent.services[Client]
    name, wanted = model_of(client.settings, PART), client.settings.openai_embedding_dimensions
    line = client.line(PART)
    with line.explaining():
        answer = await line.sdk.embeddings.with_raw_response.create(
            model=name,
            input=list(request.texts),
            dimensions=openai.omit if wanted is None else wanted,
            encoding_format="float",
        )
    given = read_as(Vectors, answer.content, name, "list of vectors")
    ordered = sorted(given.data, key=lambda one: one.index)
    if [one.index for one in ordered] != list(range(len(request.texts))):
        raise ModelError(f"openai: {name} gave other vectors than one for each of {len(request.texts)} texts")
    lengths = {len(one.embedding) for one in ordered}
    if wanted is not None and lengths - {wanted}:
        raise ModelError(
            f"openai: {name} gave vectors of {max(lengths)} numbers where OPENAI_EMBEDDING_DIMENSIONS asks "
            f"for {wanted}: take that out, or name a model that can make them"
        )
    return EmbeddingResult(
        vectors=tuple(tuple(one.embedding) for one in ordered),
        model=_kin(name, max(lengths, default=0), is_plain=wanted is None and line.place.is_openai),
        usage=Usage(given.usage.prompt_tokens) if given.usage else None,
    )


def _kin(name: str, dimension: int, *, is_plain: bool) -> str:
    """Name what the vectors can be compared with: those of the same model and dimension.

    Without its dimension only a name of OpenAI says that: a server of one's own may serve another model
    under it tomorrow.
    """
    return name if is_plain else f"{name}-{dimension}"
