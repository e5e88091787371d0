"""The handlers of text and of descriptions of pictures."""

import base64

from bot import Agent, model
from bot.models import ImageDescriptionRequest, ModelInfo, ModelType, TextRequest, TextResult
from plugins.anthropic.client import Client

DEFAULT_DESCRIPTION_PROMPT = "Describe this picture in a few sentences."
MAX_DESCRIPTION_TOKENS = 1024


async def _describe_small(agent: Agent) -> ModelInfo:
    return ModelInfo(agent.services[Client].settings.anthropic_small_model)


async def _describe_large(agent: Agent) -> ModelInfo:
    return ModelInfo(agent.services[Client].settings.anthropic_large_model)


@model(ModelType.TEXT_SMALL, can_call_tools=True, describe_model=_describe_small)
async def small(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the small model."""
    client = agent.services[Client]
    return await client.write(client.settings.anthropic_small_model, request)


@model(ModelType.TEXT_LARGE, can_call_tools=True, describe_model=_describe_large)
async def large(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the large model."""
    client = agent.services[Client]
    return await client.write(client.settings.anthropic_large_model, request)


@model(ModelType.IMAGE_DESCRIPTION)
async def describe_image(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
    """Return a description of a picture."""
    client = agent.services[Client]
    data = base64.b64encode(request.image).decode("ascii")
    source = {"type": "base64", "media_type": request.content_type, "data": data}
    content = [
        {"type": "image", "source": source},
        {"type": "text", "text": request.prompt or DEFAULT_DESCRIPTION_PROMPT},
    ]
    body = {
        "model": client.settings.anthropic_large_model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": MAX_DESCRIPTION_TOKENS,
    }
    return await client.send(body)
