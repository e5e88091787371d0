"""Operation table and OpenAPI document."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from adapters.web.schemas import (
    AgentsAnswer,
    CostsAnswer,
    CostsQuery,
    DecisionAnswer,
    ErrorAnswer,
    Health,
    MessageAnswer,
    MessageRequest,
    MessagesAnswer,
    MessagesQuery,
    OutboxAnswer,
    OutboxQuery,
    Query,
    ReceiptAnswer,
    ReceiptsAnswer,
    ReceiptsQuery,
    RoomsAnswer,
    RoomsQuery,
)
from adapters.web.ws_frames import (
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

HEALTH = "/healthz"
SOCKET = "/api/ws"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one address; `refusals` are the statuses beside those that any address has."""

    name: str
    method: str
    path: str
    summary: str
    answer: type[BaseModel] | None = None
    query: type[Query] | None = None
    body: type[BaseModel] | None = None
    refusals: tuple[int, ...] = ()


OPERATIONS = (
    Operation(
        "health",
        "GET",
        HEALTH,
        "Tell whether messages are taken in, and how each platform is connected; needs no token",
        Health,
        refusals=(503,),
    ),
    Operation("agents", "GET", "/api/agents", "List the agents", AgentsAnswer),
    Operation(
        "say",
        "POST",
        "/api/agents/{agent}/messages",
        "Send an agent, by id or name, a message and wait for its outcome",
        MessageAnswer,
        body=MessageRequest,
        refusals=(400, 404, 408, 413, 415, 422, 503),
    ),
    Operation("rooms", "GET", "/api/rooms", "List rooms", RoomsAnswer, RoomsQuery, refusals=(404, 422)),
    Operation(
        "messages",
        "GET",
        "/api/rooms/{id}/messages",
        "List the last messages of a room",
        MessagesAnswer,
        MessagesQuery,
        refusals=(404, 422),
    ),
    Operation(
        "receipts",
        "GET",
        "/api/receipts",
        "List what became of the latest messages",
        ReceiptsAnswer,
        ReceiptsQuery,
        refusals=(404, 422),
    ),
    Operation(
        "receipt",
        "GET",
        "/api/receipts/{id}",
        "Tell what became of a message, by its id or its receipt's, and why",
        ReceiptAnswer,
        refusals=(404,),
    ),
    Operation(
        "costs",
        "GET",
        "/api/costs",
        "Tell what models have cost, by day, room, person or model",
        CostsAnswer,
        CostsQuery,
        refusals=(404, 422),
    ),
    Operation(
        "outbox",
        "GET",
        "/api/outbox",
        "List the parts that wait, are held or have failed",
        OutboxAnswer,
        OutboxQuery,
        refusals=(404, 422),
    ),
    Operation(
        "send",
        "POST",
        "/api/outbox/{id}/send",
        "Put a held or failed part back, so that it leaves",
        DecisionAnswer,
        refusals=(404, 409),
    ),
    Operation(
        "drop",
        "POST",
        "/api/outbox/{id}/drop",
        "Give a part up for good",
        DecisionAnswer,
        refusals=(404, 409),
    ),
    Operation("openapi", "GET", "/api/openapi.json", "This description"),
    Operation("socket", "GET", SOCKET, "Talk over a WebSocket; its frames are ClientFrame and ServerFrame"),
)


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
