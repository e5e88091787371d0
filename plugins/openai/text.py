"""The two sizes of text."""

from bot import Agent, ModelType, TextRequest, TextResult, model
from plugins.openai.client import Client


@model(ModelType.TEXT_SMALL)
async def small(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the small model."""
    client = agent.services[Client]
    return await client.complete(client.settings.openai_small_model, request)


@model(ModelType.TEXT_LARGE)
async def large(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the large model."""
    client = agent.services[Client]
    return await client.complete(client.settings.openai_large_model, request)
