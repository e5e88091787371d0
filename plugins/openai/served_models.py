"""The model for text where no variable names one: another server than OpenAI is asked which it has."""

import openai
from pydantic import BaseModel

from bot.models import ModelError, ModelRefused
from plugins.openai.client import Client
from plugins.openai.responses import parse_response

MAX_LISTED = 10
LARGE, SMALL = "openai_large_model", "openai_small_model"


class ServedModel(BaseModel):
    """A model that a server has."""

    id: str


class ModelsBody(BaseModel):
    """A response with the models of a server."""

    data: list[ServedModel]


async def find_text_model(client: Client, field: str) -> str:
    """Return the model that a setting names, or the only one of the server where it is not set.

    The default name is kept at OpenAI, at a server that has it, and at one that does not list its models.
    Raises ModelRefused if the server has several others.
    """
    name: str = getattr(client.settings, field)
    connection = client.connection()
    if field in client.settings.model_fields_set or connection.endpoint.is_openai:
        return name
    if client.served_models is None:
        try:
            response = await connection.sdk.models.with_raw_response.list()
            body = parse_response(ModelsBody, response.content, "models", "list of models")
        except (openai.OpenAIError, ModelError):  # a server need not list them; the request for a text then tells
            return name
        client.served_models = tuple(model.id for model in body.data if "embed" not in model.id.lower())
    served = client.served_models
    if name in served or not served:
        return name
    if len(served) > 1:
        names = ", ".join(served[:MAX_LISTED])
        raise ModelRefused(
            f"openai: {connection.host} has several models and not {name}: set {LARGE.upper()} and {SMALL.upper()} "
            f"to one of {names}"
        )
    return served[0]
