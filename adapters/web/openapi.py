"""The API described to programs: OpenAPI 3.1, made of the models that requests and answers are made of."""

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from adapters.web.bodies import ErrorAnswer, Health
from adapters.web.frames import (
    Ack,
    DraftFrame,
    ErrorFrame,
    Give,
    Hello,
    MessageFrame,
    OutcomeFrame,
    Press,
    Ready,
    Say,
    ShownFrame,
    TypingFrame,
)
from adapters.web.operations import HEALTH, SOCKET, Operation

CLIENT_FRAMES: tuple[type[BaseModel], ...] = (Hello, Say, Give, Press)
SERVER_FRAMES: tuple[type[BaseModel], ...] = (
    Ready,
    Ack,
    ShownFrame,
    TypingFrame,
    DraftFrame,
    MessageFrame,
    OutcomeFrame,
    ErrorFrame,
)
SCHEMAS = "#/components/schemas/"
EVENTS = (
    "With `stream`, server-sent events: `typing`, `piece` (a PieceBody) as a reply is written, `reply` (a "
    "MessageBody) as each is delivered, then "
    "`outcome` (a MessageAnswer); `error` (an ErrorAnswer) where the bot stops before."
)
MEANINGS = {
    400: "The body is not JSON",
    401: "The token is missing or wrong",
    403: "Another site's page sent this",
    404: "There is no such thing",
    408: "The body came too slowly",
    409: "It is not as it would have to be for this",
    413: "The body is larger than 1 MiB",
    415: "The body is not application/json",
    421: "The server is not called so",
    422: "A field is wrong, or the idempotency key belongs to another message",
    429: "Too many wrong tokens",
    503: "The bot is stopping, nothing can be kept just now, or too many are connected",
}
ANYWHERE = (401, 403, 421, 429)

Json = dict[str, Any]


def document(operations: Sequence[Operation]) -> Json:
    """Describe the operations."""
    asked = [one.body for one in operations if one.body] + list(CLIENT_FRAMES)
    told = [one.answer for one in operations if one.answer] + [ErrorAnswer, *SERVER_FRAMES]
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in asked]
    modes += [(model, "serialization") for model in told]
    _, found = models_json_schema(modes, ref_template=f"{SCHEMAS}{{model}}")
    schemas = found["$defs"]
    schemas["ClientFrame"] = {"anyOf": [_ref(model) for model in CLIENT_FRAMES]}
    schemas["ServerFrame"] = {"anyOf": [_ref(model) for model in SERVER_FRAMES]}
    paths: dict[str, Json] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Greenroom",
            "version": _version(),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "greenroom-…"},
            },
        },
    }


def _operation(one: Operation) -> Json:
    described: Json = {
        "operationId": one.name,
        "summary": one.summary,
        "parameters": _parameters(one),
        "responses": _responses(one),
    }
    if one.path == HEALTH:
        described["security"] = []
    if one.body is not None:
        described["requestBody"] = {"required": True, "content": _content(_ref(one.body))}
    return described


def _parameters(one: Operation) -> list[Json]:
    found: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", one.path)
    ]
    if one.query is not None:
        properties: Mapping[str, Json] = one.query.model_json_schema()["properties"]
        found += [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]
    if one.body is not None:
        schema = {"type": "string", "maxLength": 200}
        found.append({"name": "Idempotency-Key", "in": "header", "schema": schema})
    return found


def _responses(one: Operation) -> Json:
    statuses = one.refusals if one.path == HEALTH else sorted({*ANYWHERE, *one.refusals})
    refusal = _ref(Health if one.path == HEALTH else ErrorAnswer)
    refusals = {
        str(status): {"description": MEANINGS[status], "content": _content(refusal)} for status in statuses
    }
    if one.path == SOCKET:
        return {"101": {"description": "The conversation begins"}, **refusals}
    schema = _ref(one.answer) if one.answer else {"type": "object"}
    content = _content(schema)
    if one.body is not None:
        content["text/event-stream"] = {"schema": {"type": "string", "description": EVENTS}}
    return {"200": {"description": one.summary, "content": content}, **refusals}


def _content(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _ref(model: type[BaseModel]) -> Json:
    return {"$ref": f"{SCHEMAS}{model.__name__}"}


def _version() -> str:
    try:
        return version("greenroom")
    except PackageNotFoundError:
        return "0"
