"""JSON requests to models, and models to responses without secrets.

Errors of requests: an HTTP status, a stable code and a message.

The pages of the web app, and the files that they load.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from aiohttp import web
from pydantic import BaseModel, TypeAdapter, ValidationError

from adapters.web.schemas import ErrorBody, ErrorResponse
from bot import TemporaryError
from bot.platform import HttpProblem as HttpProblem  # here for the modules of the adapter, beside what builds it
from bot.platform import body_timeout
from bot.store import StoreUnavailable
from bot.text import LANGUAGES, current_language, page_texts, redact, shorten, translate

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
CODE_AND_MESSAGE_BY_STATUS = {
    400: ("bad_request", "the request is not valid HTTP"),
    404: ("not_found", "nothing exists at this address"),
    405: ("method_not_allowed", "this address does not support the method"),
    413: ("too_large", "the body is too large"),
    417: ("expectation_failed", "only 100-continue is supported in Expect"),
    500: ("internal_error", "internal error; the server's log has more"),
}


def build_refusal(status: int, headers: Mapping[str, str] | None = None) -> HttpProblem:
    """Return the problem for an HTTP status."""
    code, message = CODE_AND_MESSAGE_BY_STATUS.get(status, ("refused", "the request is refused"))
    return HttpProblem(status, code, message, headers)


def build_wrong_token() -> HttpProblem:
    """Return a 401 for a wrong token."""
    return HttpProblem(401, "unauthorized", "this is not the token", {"WWW-Authenticate": "Bearer"})


def build_not_found(label: str, name: object) -> HttpProblem:
    """Return a 404; also for things that exist but may not be read."""
    return HttpProblem(404, "not_found", f"there is no {label} {str(name)[:100]!r}")


def build_stopping() -> HttpProblem:
    """Return a 503 for a process that is stopping."""
    return HttpProblem(
        503,
        "stopping",
        "the bot is stopping: send the request again after the restart, with the same idempotency key",
        {"Retry-After": "5"},
    )


def build_too_many_messages(count: int) -> HttpProblem:
    """Return a 429 for a token of which `count` messages have no outcome yet."""
    return HttpProblem(
        429,
        "too_many_messages",
        f"{count} messages of this token are still being answered: wait for an answer and send it again",
        {"Retry-After": "5"},
    )


def build_unavailable(error: TemporaryError) -> HttpProblem:
    """Return a 503 for a temporary failure; details are only logged."""
    code = error.cause if isinstance(error, StoreUnavailable) else "try_again"
    return HttpProblem(
        503,
        code,
        "temporarily unavailable: send the request again later, with the same idempotency key",
        {"Retry-After": "10"},
    )


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


PAGES_FOLDER = Path(__file__).with_name("pages")
# Every page with the addresses that show it: the page itself reads the rest of the address.
PAGES = {
    "/": "index.html",
    "/c/{id}": "index.html",
    "/signin": "signin.html",
    "/console": "console.html",
    "/console/{tail:.*}": "console.html",
}
SIGN_IN_PATH = "/signin"
TEXT_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".txt": "text/plain",
}
CONTENT_TYPES = {**TEXT_TYPES, ".woff2": "font/woff2", ".png": "image/png", ".webp": "image/webp"}


TRANSLATED_PAGES = ("index.html", "signin.html")
PAGE_TEXT = re.compile(r"(?<=<p class=\"note\">)[^<]+|(?<=href=\"#say\">)[^<]+|(?<=<title>)[^<·]+(?= ·)")


def relative_base(path: str) -> str:
    """Return the relative address of the app's root from a path, such as `../` from `/c/1`.

    So the app works behind a path prefix that a proxy removes, without knowing it.
    """
    return "../" * (path.count("/") - 1) or "./"


@dataclass(frozen=True, slots=True)
class Page:
    """An HTML page; its base address is the app's root, however deep the address is that shows it."""

    text: str
    is_translated: bool

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Respond with the page, in the language that the browser asks for."""
        base = f'<head>\n<base href="{relative_base(request.path)}">'
        text = self.text.replace("<head>", base, 1)
        if self.is_translated:
            text = text.replace('lang="en"', f'lang="{current_language()}"', 1)
            text = PAGE_TEXT.sub(lambda found: translate(found[0]), text)
        return web.Response(text=text, content_type="text/html", charset="utf-8", headers={"Cache-Control": "no-store"})


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A static file; `etag` is a hash of its content."""

    body: bytes
    content_type: str
    charset: str | None
    etag: str

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Respond with the file, or with 304 if the client has it."""
        if any(etag.value == self.etag for etag in request.if_none_match or ()):
            response = web.Response(status=304)
        else:
            response = web.Response(body=self.body, content_type=self.content_type, charset=self.charset)
        response.etag = self.etag
        response.headers["Cache-Control"] = "private, no-cache"
        return response


def add_pages(router: web.UrlDispatcher) -> dict[str, web.AbstractRoute]:
    """Add the routes of the pages; return them by path."""
    pages = {
        name: Page((PAGES_FOLDER / name).read_text(encoding="utf-8"), name in TRANSLATED_PAGES)
        for name in PAGES.values()
    }
    return {path: router.add_get(path, pages[name].serve) for path, name in PAGES.items()}


def add_static_files(router: web.UrlDispatcher) -> list[web.AbstractRoute]:
    """Add routes for the other files of the pages' folder and its sub-folders, and for the texts of the pages in each
    language, under `/pages/`; return them.
    """
    return [router.add_get(f"/pages/{name}", file.serve) for name, file in _read_static_files().items()]


@cache
def _read_static_files() -> dict[str, StaticFile]:
    bodies = {
        path.relative_to(PAGES_FOLDER).as_posix(): path.read_bytes()
        for path in sorted(PAGES_FOLDER.rglob("*"))
        if path.suffix in CONTENT_TYPES and path.suffix != ".html" and path.is_file()
    }
    bodies |= {f"texts/{language}.json": json.dumps(page_texts(language)).encode() for language in LANGUAGES}
    return {name: _build_file(name, body) for name, body in bodies.items()}


def _build_file(name: str, body: bytes) -> StaticFile:
    suffix = Path(name).suffix
    charset = "utf-8" if suffix in TEXT_TYPES else None
    return StaticFile(body, CONTENT_TYPES[suffix], charset, hashlib.sha256(body).hexdigest()[:16])
