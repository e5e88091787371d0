"""HTTP routes of plugins: the decorator, static folders, and webhooks that are signed."""

import asyncio
import hmac
import logging
import mimetypes
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from bot.agent import Agent
from bot.errors import PluginError
from bot.http import DEFAULT_BODY_BYTES, MAX_BODY_BYTES, RouteRequest, RouteResponse, RouteScope
from bot.plugin_system.action import check_async

logger = logging.getLogger(__name__)
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
MAX_STATIC_BYTES = 16 * 1024 * 1024
RouteHandler = Callable[[Agent, RouteRequest], Awaitable[RouteResponse]]


@dataclass(frozen=True, slots=True)
class WebhookSignature:
    """How a service signs what it sends to a public route: the HMAC-SHA256 of the body, in hexadecimal.

    `setting` names the variable with the secret that both share; `header` is where the signature comes, behind
    `prefix`. With a `timestamp_header`, which holds seconds since 1970, timestamp, full stop and body are signed,
    and a request that is more than `tolerance` seconds old or early is refused, so that none can be repeated later.
    """

    setting: str
    header: str = "X-Signature"
    prefix: str = ""
    timestamp_header: str = ""
    tolerance: float = 300.0

    def sign(self, secret: str, body: bytes, timestamp: str = "") -> str:
        """Return the value of the header for a body."""
        signed = f"{timestamp}.".encode() + body if self.timestamp_header else body
        return self.prefix + hmac.new(secret.encode(), signed, "sha256").hexdigest()

    def accepts(self, secret: str, request: RouteRequest, now: float) -> bool:
        """Return whether a request is signed with the secret, in constant time; `now` is in seconds since 1970."""
        timestamp = request.headers.get(self.timestamp_header, "") if self.timestamp_header else ""
        if self.timestamp_header:
            is_number = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12
            if not is_number or abs(now - int(timestamp)) > self.tolerance:
                return False
        given = request.headers.get(self.header, "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, self.sign(secret, request.body, timestamp).encode())


@dataclass(frozen=True, slots=True)
class Route:
    """An HTTP route: method, path, who may call it, what it accepts, and the function that responds."""

    method: str
    path: str
    handler: RouteHandler
    scope: RouteScope = RouteScope.OPERATOR
    max_body_bytes: int = DEFAULT_BODY_BYTES
    accepts_files: bool = False
    signature: WebhookSignature | None = None

    @property
    def is_public(self) -> bool:
        """Whether the route needs no token."""
        return self.scope is RouteScope.PUBLIC

    async def __call__(self, agent: Agent, request: RouteRequest, /) -> RouteResponse:
        if self.signature is not None:
            secret = agent.settings.get(self.signature.setting)
            if not secret:
                logger.error(
                    "%s %s: set %s, the secret of the signature", self.method, self.path, self.signature.setting
                )
                return _problem(503, "not_configured", "the secret of this webhook is not set")
            if not self.signature.accepts(secret, request, agent.clock().timestamp()):
                return _problem(401, "bad_signature", "the signature is missing, wrong or too old")
        return await self.handler(agent, request)


def route(
    method: str,
    path: str,
    *,
    public: bool = False,
    scope: RouteScope | str | None = None,
    max_body_bytes: int = DEFAULT_BODY_BYTES,
    files: bool = False,
    signature: WebhookSignature | None = None,
) -> Callable[[RouteHandler], Route]:
    """Return a decorator that makes a route of an async function that takes the agent and the request.

    A part of the path in braces is a parameter: `/builds/{id}`. `scope` says which token may call it: by default
    one that may read for GET, else the operator's. With `files` a form is read into the request's `form` and
    `files`. A route with a `signature` is public, and refuses what is not signed. Raises PluginError for an unknown
    method, scope or size, and for a path that does not begin with a slash.
    """
    label = f"route {method} {path!r}"
    if method.upper() not in METHODS or not path.startswith("/") or ".." in path:
        raise PluginError(f"{label}: use one of {sorted(METHODS)} and a path like /status")
    if scope is None:
        default = RouteScope.READ_ONLY if method.upper() == "GET" else RouteScope.OPERATOR
        scope = RouteScope.PUBLIC if public or signature is not None else default
    if scope not in set(RouteScope):
        raise PluginError(f"{label}: its scope {scope!r} is none of {', '.join(RouteScope)}")
    scope = RouteScope(scope)
    is_public = scope is RouteScope.PUBLIC
    if (signature is not None and not is_public) or (public and not is_public):
        raise PluginError(f"{label}: a public or signed route needs no token: leave out the scope {scope.value!r}")
    if not 0 < max_body_bytes <= MAX_BODY_BYTES or (is_public and max_body_bytes > DEFAULT_BODY_BYTES):
        limit = DEFAULT_BODY_BYTES if is_public else MAX_BODY_BYTES
        raise PluginError(f"{label}: max_body_bytes is at most {limit}{' for a public route' if is_public else ''}")

    def decorate(handler: RouteHandler) -> Route:
        check_async(handler, f"{method} {path!r}", "route")
        return Route(method.upper(), path, handler, scope, max_body_bytes, files, signature)

    return decorate


def static_folder(path: str, folder: Path, *, scope: RouteScope | str = RouteScope.READ_ONLY) -> Route:
    """Return a route that serves the files of a folder under a path, `index.html` for a folder.

    Hidden files, links that lead outside and files of more than 16 MiB are not served.
    """
    root = folder.resolve()
    if not root.is_dir():
        raise PluginError(f"the static folder {folder} does not exist")

    @route("GET", f"{path.rstrip('/')}/{{file:.*}}", scope=scope)
    async def serve_file(agent: Agent, request: RouteRequest) -> RouteResponse:
        """Return a file of the folder."""
        return await asyncio.to_thread(_read_static, root, request.parameters["file"])

    return serve_file


def _read_static(root: Path, name: str) -> RouteResponse:
    missing = _problem(404, "not_found", "there is no such file")
    if "\0" in name or "\\" in name or any(part.startswith(".") for part in name.split("/")):
        return missing
    try:
        target = (root / name.lstrip("/")).resolve()
        if target.is_dir():
            target /= "index.html"
        if not target.resolve().is_relative_to(root) or not target.is_file():
            return missing
        with target.open("rb") as file:
            body = file.read(MAX_STATIC_BYTES + 1)
    except (OSError, ValueError):
        return missing
    if len(body) > MAX_STATIC_BYTES:
        return missing
    content_type = mimetypes.guess_type(target.name)[0] or "application/octet-stream"
    return RouteResponse(body=body, content_type=content_type)


def _problem(status: int, code: str, message: str) -> RouteResponse:
    return RouteResponse(status, json={"error": {"code": code, "message": message}})
