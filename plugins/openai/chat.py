"""Chat completions: what is sent, how the answer is fetched, what is left out where it is refused."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import openai

from bot.models import TextRequest, TextResult
from plugins.openai.client import TOO_LONG, Client, Line, is_of_content, words_of
from plugins.openai.responses import REFUSED, read_completion
from plugins.openai.streaming import Stream

logger = logging.getLogger(__name__)

SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
# The API does not know these; servers of one's own do.
FOREIGN = ("top_k", "min_p", "repetition_penalty")
# What can be done without, and whether its name in an error's text is enough to know that it is meant.
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
    **dict.fromkeys(FOREIGN, True),
}
OBJECTIONS = (400, 422, 500, 501)


async def complete(client: Client, model: str, request: TextRequest) -> TextResult:
    """Have a text written; raises as `Line.explaining` tells."""
    line = client.line()
    content = _messages(request.system, request.prompt)
    sent = _asked(request, model, content, is_openai=line.place.is_openai)
    return await write(client, line, sent, request)


async def write(client: Client, line: Line, sent: dict[str, Any], request: TextRequest | None) -> TextResult:
    """Have a chat completion written, piece by piece where the request has a sink.

    What the server refuses to be asked with is left out, from then on.
    """
    model = str(sent["model"])
    key = (line.host, model)
    while True:
        for name in client.refused.get(key, ()):
            sent.pop(name, None)
        with line.explaining():
            try:
                return await _fetch(line, sent, request)
            except openai.APIStatusError as error:
                if is_of_content(error):
                    return TextResult(REFUSED, model)
                refused = _objected(error, sent)
                if not refused:
                    raise
        client.refused.setdefault(key, set()).update(refused)
        logger.warning("%s at %s refuses %s: it is asked without", model, line.host, ", ".join(refused))


async def _fetch(line: Line, sent: Mapping[str, Any], request: TextRequest | None) -> TextResult:
    model = str(sent["model"])
    create = line.sdk.chat.completions
    given = {name: value for name, value in sent.items() if name not in FOREIGN}
    extra = {name: sent[name] for name in FOREIGN if name in sent} or None
    if request is None or request.sink is None:
        answer = await create.with_raw_response.create(**given, extra_body=extra)
        return read_completion(answer.content, model)
    streaming = create.with_streaming_response.create(**given, stream=True, extra_body=extra)
    async with streaming as response:
        return await Stream(model, request.sink).read(response.iter_bytes())


def _asked(
    request: TextRequest, model: str, messages: Sequence[Mapping[str, Any]], *, is_openai: bool
) -> dict[str, Any]:
    """Write down what is sent; what is not set is not sent."""
    length = "max_completion_tokens" if is_openai else "max_tokens"
    sent: dict[str, Any] = {"model": model, "messages": messages, length: request.max_tokens}
    sent |= {name: getattr(request, name) for name in (*SAMPLING, *FOREIGN)}
    sent["stop"] = list(request.stop) or None
    if request.schema is not None:
        shape = {"name": "answer", "schema": dict(request.schema)}
        sent["response_format"] = {"type": "json_schema", "json_schema": shape}
    sent["tools"] = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in request.tools
    ] or None
    if request.sink is not None:
        sent["stream_options"] = {"include_usage": True}
    return {name: value for name, value in sent.items() if value is not None}


def _messages(system: str, prompt: str) -> list[dict[str, Any]]:
    user = {"role": "user", "content": prompt}
    return [{"role": "system", "content": system}, user] if system else [user]


def _objected(error: openai.APIStatusError, sent: Mapping[str, Any]) -> list[str]:
    """List what was sent and is refused; nothing where the error is about anything else."""
    said = words_of(error)
    if error.status_code not in OBJECTIONS or TOO_LONG.search(f"{error.code} {error.type} {said}"):
        return []
    named = (error.param or "").partition(".")[0]
    if named in OPTIONAL and named in sent:
        return [named]
    words = set(re.findall(r"\w+", said))
    return [name for name, is_telling in OPTIONAL.items() if is_telling and name in sent and name in words]
