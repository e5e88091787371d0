"""Request body → model; model → response without secrets."""

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import Any, NoReturn, TypeVar

from aiohttp import web
from pydantic import BaseModel, TypeAdapter, ValidationError

from adapters.web.errors import REQUEST_ID, Problem
from adapters.web.schemas import ErrorAnswer, ErrorBody
from bot.text import shorten

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
MOST_KEYS = 1000
MOST_SHOWN = 5


async def read_json(request: web.Request, *, deadline: float) -> object:
    """Read a request's JSON body. Raises Problem where there is none, or it is too large or too slow."""
    if request.content_type != "application/json":
        raise Problem(415, "unsupported_media_type", "send the body as Content-Type: application/json")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Problem(415, "unsupported_media_type", "send the body without a Content-Encoding")
    return parse_json(await read_body(request, deadline=deadline))


async def read_body(request: web.Request, *, deadline: float) -> bytes:
    """Read a request's body within a deadline and the server's limit."""
    try:
        async with asyncio.timeout(deadline):
            return await request.read()
    except TimeoutError:
        raise Problem(408, "too_slow", f"the body did not arrive within {deadline:g} seconds") from None


def parse_json(text: str | bytes) -> object:
    """Parse JSON as it is exchanged: no NaN, no key twice, nothing absurdly deep or wide."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError:
        raise Problem(400, "invalid_json", "the JSON is nested too deeply") from None
    except ValueError as error:
        raise Problem(400, "invalid_json", f"this is not JSON: {shorten(str(error), 200)}") from None


def validated(model: type[M], data: object) -> M:
    """Check data against a model; raises Problem naming the fields that are wrong."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        _refuse(error)


def validated_by(adapter: TypeAdapter[T], data: object) -> T:
    """Check data against one of several models."""
    try:
        return adapter.validate_python(data)
    except ValidationError as error:
        _refuse(error)


def _refuse(error: ValidationError) -> NoReturn:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{_path(one['loc'])}: {one['msg']}" for one in found[:MOST_SHOWN]]
    if len(found) > MOST_SHOWN:
        lines.append(f"and {len(found) - MOST_SHOWN} more")
    raise Problem(422, "invalid_request", "; ".join(lines)) from None


def _path(location: tuple[int | str, ...]) -> str:
    return shorten(".".join(map(str, location)), 100) or "body"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MOST_KEYS:
        raise ValueError(f"an object has more than {MOST_KEYS} keys")
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


REDACTED = "[redacted]"


class Answers:
    """Writes what leaves the server; `secrets` are values that never do."""

    def __init__(self, secrets: Collection[str]) -> None:
        escaped = (json.dumps(secret, ensure_ascii=False)[1:-1] for secret in secrets)
        self._secrets = sorted({*secrets, *escaped}, key=len, reverse=True)

    def text(self, body: BaseModel) -> str:
        """Write a model as one line of JSON."""
        return self.cleared(body.model_dump_json())

    def json(
        self, body: BaseModel, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        """Answer a request with a model."""
        return web.Response(
            text=self.text(body), status=status, headers=headers, content_type="application/json"
        )

    def refusal(self, problem: Problem) -> web.Response:
        """Answer a request that is refused."""
        body = ErrorBody(code=problem.code, message=problem.message, request_id=REQUEST_ID.get())
        return self.json(ErrorAnswer(error=body), status=problem.status, headers=problem.headers)

    def cleared(self, text: str) -> str:
        """Take the secrets out of a text."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return text
