"""Request body → model; model → response without secrets."""

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import Any, NoReturn, TypeVar

from aiohttp import web
from pydantic import BaseModel, TypeAdapter, ValidationError

from adapters.web.errors import REQUEST_ID, HttpProblem
from adapters.web.schemas import ErrorBody, ErrorResponse
from bot.text import shorten

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
MAX_KEYS = 1000
MAX_ERRORS_LISTED = 5


async def read_json(request: web.Request, *, timeout: float) -> object:
    """Read a request's JSON body. Raises Problem where there is none, or it is too large or too slow."""
    if request.content_type != "application/json":
        raise HttpProblem(415, "unsupported_media_type", "send the body as Content-Type: application/json")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HttpProblem(415, "unsupported_media_type", "send the body without a Content-Encoding")
    return parse_json(await read_body(request, timeout=timeout))


async def read_body(request: web.Request, *, timeout: float) -> bytes:
    """Read a request's body within a deadline and the server's limit."""
    try:
        async with asyncio.timeout(timeout):
            return await request.read()
    except TimeoutError:
        raise HttpProblem(408, "too_slow", f"the body did not arrive within {timeout:g} seconds") from None


def parse_json(text: str | bytes) -> object:
    """Parse JSON as it is exchanged: no NaN, no key twice, nothing absurdly deep or wide."""
    try:
        return json.loads(text, object_pairs_hook=_build_object, parse_constant=_reject_constant)
    except RecursionError:
        raise HttpProblem(400, "invalid_json", "the JSON is nested too deeply") from None
    except ValueError as error:
        raise HttpProblem(400, "invalid_json", f"this is not JSON: {shorten(str(error), 200)}") from None


def validate_model(model: type[M], data: object) -> M:
    """Check data against a model; raises Problem naming the fields that are wrong."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        _raise_invalid(error)


def validate_with(adapter: TypeAdapter[T], data: object) -> T:
    """Check data against one of several models."""
    try:
        return adapter.validate_python(data)
    except ValidationError as error:
        _raise_invalid(error)


def _raise_invalid(error: ValidationError) -> NoReturn:
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{_format_path(item['loc'])}: {item['msg']}" for item in errors[:MAX_ERRORS_LISTED]]
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
        raise ValueError("an object has the same key twice")
    return members


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


REDACTED = "[redacted]"


class JsonResponder:
    """Writes what leaves the server; `secrets` are values that never do."""

    def __init__(self, secrets: Collection[str]) -> None:
        escaped = (json.dumps(secret, ensure_ascii=False)[1:-1] for secret in secrets)
        self._secrets = sorted({*secrets, *escaped}, key=len, reverse=True)

    def to_json(self, body: BaseModel) -> str:
        """Write a model as one line of JSON."""
        return self.redact(body.model_dump_json())

    def respond(
        self, body: BaseModel, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        """Answer a request with a model."""
        return web.Response(
            text=self.to_json(body), status=status, headers=headers, content_type="application/json"
        )

    def respond_problem(self, problem: HttpProblem) -> web.Response:
        """Answer a request that is refused."""
        body = ErrorBody(code=problem.code, message=problem.message, request_id=REQUEST_ID.get())
        return self.respond(ErrorResponse(error=body), status=problem.status, headers=problem.headers)

    def redact(self, text: str) -> str:
        """Take the secrets out of a text."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return text
