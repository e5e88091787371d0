"""The sizes of text."""

from bot import Agent, ModelType, TextRequest, TextResult, model
from plugins.openai.chat import complete
from plugins.openai.client import Client
from plugins.openai.settings import calls_tools, has_medium, writes


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
