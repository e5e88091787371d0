"""Chat completions: build and send requests, omitting parameters that a model refuses."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bot.models.openai_compatible.client import CompatibleClient
from bot.models.openai_compatible.connection import PROMPT_TOO_LONG, Connection, is_content_refusal
from bot.models.openai_compatible.requests import StatusError, finish
from bot.models.openai_compatible.responses import parse_completion
from bot.models.openai_compatible.streaming import CompletionStream
from bot.models.types import TextRequest, TextResult
from bot.models.usage import note_call
from bot.text import user_text

logger = logging.getLogger(__name__)

PATH = "chat/completions"
SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
# OpenAI does not know these; other servers of this API do.
NON_OPENAI_PARAMETERS = ("top_k", "min_p", "repetition_penalty")
# Parameters that can be omitted, and whether their name in an error's text proves that they are refused.
OPTIONAL = {
    "max_tokens": True,
    "max_completion_tokens": True,
    "response_format": True,
    "stream_options": True,
    "temperature": True,
    "top_p": True,
    "frequency_penalty": True,
    "presence_penalty": True,
    "seed": False,
    "stop": False,
    "tools": True,
    **dict.fromkeys(NON_OPENAI_PARAMETERS, True),
}
TOOLS_UNSUPPORTED = re.compile(r"support tool use|not support tools", re.IGNORECASE)  # OpenRouter (404), Ollama
PARAMETER_ERROR_STATUSES = (400, 422, 500, 501)


async def complete(client: CompatibleClient, model: str, request: TextRequest) -> TextResult:
    """Return the text that a model writes. Raises as `Connection.mapped_errors` does."""
    connection = client.connection()
    if client.listing.info(model).can_call_tools is False:
        request = replace(request, tools=())
    messages = _messages(request.system, request.prompt)
    body = _build_body(request, model, messages, is_openai=connection.endpoint.is_openai)
    return await send(client, connection, body, request)


async def send(
    client: CompatibleClient, connection: Connection, body: dict[str, Any], request: TextRequest | None
) -> TextResult:
    """Return a chat completion, streamed if the request has a sink.

    Parameters that the server refuses for this model are omitted from then on.
    """
    model = str(body["model"])
    note_call(model)
    key = (connection.host, model)
    while True:
        for name in client.refused_parameters.get(key, ()):
            body.pop(name, None)
        with connection.mapped_errors(model):
            try:
                return await _fetch(connection, body, request)
            except StatusError as error:
                if is_content_refusal(error):
                    return TextResult(user_text("notices.no_answer"), model)
                refused = _find_refused(error, body)
                if not refused:
                    raise
        client.refused_parameters.setdefault(key, set()).update(refused)
        logger.warning(
            "%s at %s refuses the parameters %s; they are omitted from now on",
            model,
            connection.host,
            ", ".join(refused),
        )


async def _fetch(connection: Connection, body: Mapping[str, Any], request: TextRequest | None) -> TextResult:
    model = str(body["model"])
    if request is None or request.sink is None:
        return parse_completion(await connection.requests.fetch("POST", PATH, body), model, connection.endpoint)
    async with connection.requests.open("POST", PATH, {**body, "stream": True}) as response:
        result = await CompletionStream(model, request.sink, connection.endpoint).read(response.content.iter_any())
        if not response.content.at_eof():
            await finish(response)
        return result


def _build_body(
    request: TextRequest, model: str, messages: Sequence[Mapping[str, Any]], *, is_openai: bool
) -> dict[str, Any]:
    """Return the body of a request, without parameters that are not set."""
    length_parameter = "max_completion_tokens" if is_openai else "max_tokens"
    body: dict[str, Any] = {"model": model, "messages": messages, length_parameter: request.max_tokens}
    body |= {name: getattr(request, name) for name in (*SAMPLING, *NON_OPENAI_PARAMETERS)}
    body["stop"] = list(request.stop) or None
    if request.schema is not None:
        schema = {"name": "answer", "schema": dict(request.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    body["tools"] = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in request.tools
    ] or None
    if request.sink is not None:
        body["stream_options"] = {"include_usage": True}
    return {name: value for name, value in body.items() if value is not None}


def _messages(system: str, prompt: str) -> list[dict[str, Any]]:
    user = {"role": "user", "content": prompt}
    return [{"role": "system", "content": system}, user] if system else [user]


def _find_refused(error: StatusError, body: Mapping[str, Any]) -> list[str]:
    """Return the sent parameters that the error refuses; empty for any other error."""
    message = error.message
    if "tools" in body and TOOLS_UNSUPPORTED.search(message):
        return ["tools"]
    if error.status_code not in PARAMETER_ERROR_STATUSES or PROMPT_TOO_LONG.search(
        f"{error.code} {error.type} {message}"
    ):
        return []
    parameter = str(error.param or "").partition(".")[0]
    if parameter in OPTIONAL and parameter in body:
        return [parameter]
    words = set(re.findall(r"\w+", message))
    return [name for name, is_unambiguous in OPTIONAL.items() if is_unambiguous and name in body and name in words]
