"""JSON requests to models, and models to responses without secrets."""

import json
from collections.abc import Collection, Mapping
from typing import Any, NoReturn, TypeVar

from aiohttp import web
from pydantic import BaseModel, TypeAdapter, ValidationError

from adapters.web.errors import REQUEST_ID, HttpProblem
from adapters.web.schemas import ErrorBody, ErrorResponse
from bot.platform import body_timeout
from bot.text import redact, shorten

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
MAX_KEYS = 1000
MAX_ERRORS_LISTED = 5


async def read_json(request: web.Request, *, timeout: float) -> object:
    """Return a request's JSON body. Raises HttpProblem if it is missing, too large or too slow."""
    if request.content_type != "application/json":
        raise HttpProblem(415, "unsupported_media_type", "send the body as Content-Type: application/json")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HttpProblem(415, "unsupported_media_type", "send the body without a Content-Encoding")
    return parse_json(await read_body(request, timeout=timeout))


async def read_body(request: web.Request, *, timeout: float, max_bytes: int = 0) -> bytes:
    """Return a request's body, at most `max_bytes` long, by default the limit of the server.

    Raises HttpProblem if it is longer, or does not arrive within `timeout` seconds.
    """
    async with body_timeout(timeout):
        if not max_bytes:
            return await request.read()
        check_length(request.content_length or 0, max_bytes)
        body = bytearray()
        async for chunk in request.content.iter_any():
            body += chunk
            check_length(len(body), max_bytes)
        return bytes(body)


def check_length(length: int, max_bytes: int) -> None:
    """Raise HttpProblem (413) for a body that is too long."""
    if length > max_bytes:
        raise HttpProblem(413, "too_large", f"the body is larger than {max_bytes} bytes")


def parse_json(text: str | bytes) -> object:
    """Parse strict JSON: no NaN, no duplicate keys, bounded depth and width. Raises HttpProblem."""
    try:
        return json.loads(text, object_pairs_hook=_build_object, parse_constant=_reject_constant)
    except RecursionError:
        raise HttpProblem(400, "invalid_json", "the JSON is nested too deeply") from None
    except ValueError as error:
        raise HttpProblem(400, "invalid_json", f"the body is not JSON: {shorten(str(error), 200)}") from None


def validate_model(model: type[M], data: object) -> M:
    """Return data as a model. Raises HttpProblem that names the invalid fields."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        _raise_invalid(error)


def validate_with(adapter: TypeAdapter[T], data: object) -> T:
    """Return data as one of several models. Raises HttpProblem."""
    try:
        return adapter.validate_python(data)
    except ValidationError as error:
        _raise_invalid(error)


def _raise_invalid(error: ValidationError) -> NoReturn:
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [
        f"{_format_path(item['loc'])}: {item['msg'].removeprefix('Value error, ')}"
        for item in errors[:MAX_ERRORS_LISTED]
    ]
    if len(errors) > MAX_ERRORS_LISTED:
        lines.append(f"and {len(errors) - MAX_ERRORS_LISTED} more")
    raise HttpProblem(422, "invalid_request", "; ".join(lines)) from None


def _format_path(location: tuple[int | str, ...]) -> str:
    return shorten(".".join(map(str, location)), 100) or "body"


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_KEYS:
        raise ValueError(f"an object has more than {MAX_KEYS} keys")
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a duplicate key")
    return members


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


class JsonResponder:
    """Builds responses; `secrets` are removed from them."""

    def __init__(self, secrets: Collection[str]) -> None:
        escaped = (json.dumps(secret, ensure_ascii=False)[1:-1] for secret in secrets)
        self._secrets = frozenset({*secrets, *escaped})

    def to_json(self, body: BaseModel) -> str:
        """Return a model as one line of JSON."""
        return self.redact(body.model_dump_json(by_alias=True))

    def respond(self, body: BaseModel, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
        """Return a response with a model as JSON."""
        return web.Response(text=self.to_json(body), status=status, headers=headers, content_type="application/json")

    def respond_problem(self, problem: HttpProblem) -> web.Response:
        """Return the response for a problem."""
        body = ErrorBody(code=problem.code, message=problem.message, request_id=REQUEST_ID.get())
        return self.respond(ErrorResponse(error=body), status=problem.status, headers=problem.headers)

    def redact(self, text: str) -> str:
        """Return a text without the secrets."""
        return redact(text, self._secrets)
