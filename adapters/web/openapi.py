"""The OpenAPI document."""

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Self, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import quote

from aiohttp import web
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from adapters.web.auth import Access
from adapters.web.frames import LIVE_FRAMES, ClientFrame, ServerFrame
from adapters.web.json_io import read_json, validate_model
from adapters.web.schemas import ErrorResponse, HealthResponse, Query
from bot.platform import BoundRoute, RouteScope, TokenScope

HEALTH_PATH = "/healthz"
METRICS_PATH = "/metrics"
SOCKET_PATH = "/api/ws"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
M = TypeVar("M", bound=BaseModel)
ReadBody = Callable[[], Awaitable[M]]
OperationHandler = Callable[..., Coroutine[Any, Any, web.StreamResponse | BaseModel]]
CLIENT_FRAMES: tuple[type[BaseModel], ...] = get_args(ClientFrame)
SERVER_FRAMES: tuple[type[BaseModel], ...] = (*get_args(ServerFrame), *LIVE_FRAMES)
PARAMETER = re.compile(r"\{(\w+)(?::[^{}]*(?:\{[^{}]*\}[^{}]*)*)?\}")
ACCESS_BY_SCOPE = {
    RouteScope.PUBLIC: Access.PUBLIC,
    RouteScope.CHAT: Access.CHAT,
    RouteScope.READ_ONLY: Access.READ,
    RouteScope.OPERATOR: Access.CHANGE,
}
SCHEMA_PREFIX = "#/components/schemas/"
EVENTS_DESCRIPTION = (
    "With `stream`, server-sent events: `typing`, `control` (action and target), `piece` (a PieceBody) as a reply is "
    "written, `reply` (a MessageBody) as each is delivered, then `outcome` (a MessageResponse); `error` (an "
    "ErrorResponse) if the bot stops before."
)
KEY_DESCRIPTION = (
    "A request that is repeated with the same key is not done again but gets the answer of the first one: for "
    "messages also after a restart, for other changes a day long, if they are among the last thousand."
)
STATUS_DESCRIPTIONS = {
    400: "The body is not JSON, or not a form",
    401: "The token is missing or wrong",
    403: "Another site's page sent this, or the token's scope does not allow it",
    404: "Not found",
    408: "The body arrived too slowly",
    409: "The state of what was to be changed does not allow this",
    413: "The body is larger than 1 MiB, or a file larger than its limit",
    415: "The body is of another type",
    416: "The file is shorter than the range",
    421: "Unknown host name",
    422: "A field is wrong, the idempotency key belongs to another request, or the character's file cannot be used",
    429: "Too many wrong tokens, or too many messages of this token without an answer yet",
    503: "The bot is stopping, nothing can be stored now, or there are too many connections",
}
COMMON_STATUSES = (401, 403, 421, 429)
QUERY_STATUSES = (404, 422)
KEY_STATUSES = (408, 413, 422)
BODY_STATUSES = (400, 408, 413, 415, 422)
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path, and what it needs.

    `problem_statuses` come in addition to those of all paths and queries.

    The handler's docstring is the summary; a model that it returns is sent as JSON. One that `is_file` responds with
    the bytes of a file; one that `takes_files` expects a form with files. One that `can_stream` responds, if asked to,
    with events. One that `has_csv` responds with a table for `Accept: text/csv`. One with a `content_type` responds
    with a text. Every change accepts an idempotency key; one that `handles_key` does so by itself, for the others the
    server keeps the answer.
    """

    method: str
    path: str
    name: str
    access: Access
    handler: OperationHandler
    response: type[BaseModel] | None = None
    query: type[Query] | None = None
    body: type[BaseModel] | None = None
    problem_statuses: tuple[int, ...] = ()
    parameters: Collection[str] = ()
    is_file: bool = False
    takes_files: bool = False
    can_stream: bool = False
    has_csv: bool = False
    content_type: str = ""
    handles_key: bool = False

    def bind(self, api: object) -> Self:
        """Return the operation of an object whose class declares it."""
        return replace(self, handler=partial(self.handler, api))

    async def answer(self, request: web.Request, *, body_seconds: float) -> web.StreamResponse | BaseModel:
        """Call the handler with what it takes of the request. Raises HttpProblem for an invalid query."""
        arguments: dict[str, Any] = {}
        if self.query is not None and "query" in self.parameters:
            arguments["query"] = validate_model(self.query, _read_query(request, self.query))
        if self.body is not None and "read_body" in self.parameters:
            arguments["read_body"] = partial(_read_body, request, self.body, body_seconds)
        return await self.handler(request, **arguments)

    @property
    def is_change(self) -> bool:
        """Whether it changes something, so that a repeated request could do it twice."""
        return self.method != "GET" and self.access in (Access.CHANGE, Access.CHAT)

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        handler = self.handler.func if isinstance(self.handler, partial) else self.handler
        return (inspect.getdoc(handler) or self.name).partition("\n")[0].rstrip(".")


def operation(
    method: str,
    path: str,
    name: str,
    access: Access,
    problem_statuses: tuple[int, ...] = (),
    *,
    response: type[BaseModel] | None = None,
    query: type[Query] | None = None,
    body: type[BaseModel] | None = None,
    **details: Any,
) -> Callable[[OperationHandler], Operation]:
    """Turn a method into an operation of its class, which `operations_of` binds to an object.

    The method may take a validated `query` beside the request, and `read_body`, which returns the validated body or
    raises HttpProblem. These and the model that it returns are described as annotated, unless they are given; the
    statuses of reading a body need not be.
    """

    def declare(handler: OperationHandler) -> Operation:
        hints = get_type_hints(handler)
        returned = hints.pop("return")
        models = [item for item in get_args(returned) or (returned,) if issubclass(item, BaseModel)]
        read_body = hints.get("read_body")
        return Operation(
            method,
            path,
            name,
            access,
            handler,
            response or next(iter(models), None),
            query or hints.get("query"),
            body or (get_args(get_args(read_body)[-1])[0] if read_body else None),
            problem_statuses + (BODY_STATUSES if read_body else ()),
            hints.keys(),
            **details,
        )

    return declare


def operations_of(api: object) -> list[Operation]:
    """Return the operations that the class of an object declares."""
    return [value.bind(api) for value in vars(type(api)).values() if isinstance(value, Operation)]


async def _read_body(request: web.Request, model: type[M], body_seconds: float) -> M:
    return validate_model(model, await read_json(request, timeout=body_seconds))


def _read_query(request: web.Request, model: type[BaseModel]) -> dict[str, str | list[str]]:
    """Return the query of a request, with a list of values for each of the names that may be repeated."""
    lists = {item.alias or name for name, item in model.model_fields.items() if get_origin(item.annotation) is list}
    return {name: request.query.getall(name) if name in lists else value for name, value in request.query.items()}


def build_document(operations: Sequence[Operation], routes: Iterable[BoundRoute] = ()) -> Json:
    """Return the OpenAPI document of the operations and of the routes of plugins."""
    schemas = _build_schemas(
        tuple(operation.body for operation in operations if operation.body),
        tuple(operation.response for operation in operations if operation.response),
        tuple(operation.query for operation in operations if operation.query),
    )
    paths: dict[str, Json] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe_operation(operation)
    for route in routes:
        path = f"/plugins/{quote(route.plugin, safe='')}" + PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {}).setdefault(route.method.lower(), _describe_route(route))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Greenroom", "version": package_version(), "license": {"name": "MIT", "identifier": "MIT"}},
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


@lru_cache(maxsize=1)  # a tenth of a second of work, the same for every server in a process
def _build_schemas(
    bodies: tuple[type[BaseModel], ...], responses: tuple[type[BaseModel], ...], queries: tuple[type[Query], ...]
) -> Json:
    """Return the schemas of all models by name; the caller must not change them."""
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in (*bodies, *CLIENT_FRAMES)]
    answers: tuple[type[BaseModel], ...] = (*responses, ErrorResponse, *SERVER_FRAMES)
    modes += [(model, "serialization") for model in answers]
    _, definitions = models_json_schema(modes, ref_template=f"{SCHEMA_PREFIX}{{model}}")
    schemas: Json = definitions["$defs"]
    for query in queries:
        schemas |= _query_schema(query).get("$defs", {})
    schemas["ClientFrame"] = {"anyOf": [_schema_ref(model) for model in CLIENT_FRAMES]}
    schemas["ServerFrame"] = {"anyOf": [_schema_ref(model) for model in SERVER_FRAMES]}
    return schemas


def _describe_operation(operation: Operation) -> Json:
    described: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "x-scopes": [scope.value for scope in TokenScope if operation.access.allows(scope)],
        "parameters": _describe_parameters(operation),
        "responses": _describe_responses(operation),
    }
    if operation.access is Access.PUBLIC:
        described["security"] = []
    if operation.access is Access.SIGNED:
        described["security"] = [{"token": []}, {"cookie": []}, {}]
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _json_content(_schema_ref(operation.body))}
    if operation.takes_files:
        files = {"type": "array", "items": {"type": "string", "format": "binary"}}
        form = {"type": "object", "properties": {"file": files}, "required": ["file"]}
        described["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": form}}}
    return described


def _describe_route(route: BoundRoute) -> Json:
    access = ACCESS_BY_SCOPE[route.scope]
    described: Json = {
        "operationId": f"plugins.{route.plugin}.{route.method.lower()}.{route.path}",
        "summary": route.summary,
        "x-scopes": [scope.value for scope in TokenScope if access.allows(scope)],
        "x-max-body-bytes": route.max_body_bytes,
        "parameters": _path_parameters(route.path),
        "responses": {"default": {"description": f"The response of the plugin {route.plugin!r}, or an error"}},
    }
    if route.is_public:
        described["security"] = []
    if route.accepts_files:
        described["requestBody"] = {"content": {"multipart/form-data": {"schema": {"type": "object"}}}}
    return described


def _path_parameters(path: str) -> list[Json]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in PARAMETER.findall(path)
    ]


def _describe_parameters(operation: Operation) -> list[Json]:
    parameters = _path_parameters(operation.path)
    if operation.query is not None:
        properties: Mapping[str, Json] = _query_schema(operation.query)["properties"]
        parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]
    if operation.is_change:
        schema = {"type": "string", "maxLength": 200}
        described = {"name": "Idempotency-Key", "in": "header", "schema": schema, "description": KEY_DESCRIPTION}
        parameters.append(described)
    return parameters


@lru_cache(maxsize=256)
def _query_schema(query: type[Query]) -> Json:
    return query.model_json_schema(ref_template=f"{SCHEMA_PREFIX}{{model}}")


def _describe_responses(operation: Operation) -> Json:
    statuses = {*operation.problem_statuses, *(QUERY_STATUSES if operation.query else ())}
    if operation.is_change:
        statuses |= {*KEY_STATUSES}
    if operation.path != HEALTH_PATH:
        statuses |= {*COMMON_STATUSES}
    problem_ref = _schema_ref(HealthResponse if operation.path == HEALTH_PATH else ErrorResponse)
    problem_responses = {
        str(status): {"description": STATUS_DESCRIPTIONS[status], "content": _json_content(problem_ref)}
        for status in sorted(statuses)
    }
    if operation.path == SOCKET_PATH:
        return {"101": {"description": "The conversation begins"}, **problem_responses}
    if operation.is_file:
        schema: Json = {"type": "string", "format": "binary"}
        return {"200": {"description": operation.summary, "content": {"*/*": {"schema": schema}}}, **problem_responses}
    if operation.content_type:
        text_content = {operation.content_type: {"schema": {"type": "string"}}}
        return {"200": {"description": operation.summary, "content": text_content}, **problem_responses}
    schema = _schema_ref(operation.response) if operation.response else {"type": "object"}
    content = _json_content(schema)
    if operation.can_stream:
        content["text/event-stream"] = {"schema": {"type": "string", "description": EVENTS_DESCRIPTION}}
    if operation.has_csv:
        content["text/csv"] = {"schema": {"type": "string"}}
    return {"200": {"description": operation.summary, "content": content}, **problem_responses}


def _json_content(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _schema_ref(model: type[BaseModel]) -> Json:
    return {"$ref": f"{SCHEMA_PREFIX}{model.__name__}"}


def package_version() -> str:
    """Return the installed version of the program."""
    try:
        return version("greenroom")
    except PackageNotFoundError:
        return "0"
