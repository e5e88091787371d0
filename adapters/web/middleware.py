"""Middleware of every request: host, authentication and origin checks, error responses."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import token_hex
from urllib.parse import urlencode

from aiohttp import web

from adapters.web import json_io
from adapters.web.auth import GRANT, Access, Credential, CredentialKind, Grant, TokenAuth
from adapters.web.openapi import HEALTH_PATH, Handler
from adapters.web.schemas import KEY_ADAPTER
from bot import TemporaryError, platform
from bot.text import use_language

logger = logging.getLogger(__name__)
_has_started: ContextVar[bool] = ContextVar("is_begun", default=False)
SIGN_IN_CODES = frozenset({"unauthorized", "too_many_attempts"})
MAX_KEPT_ANSWERS, MAX_KEPT_BYTES, KEEPING_SECONDS = 1000, 64 * 1024, 86400.0
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
    "connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Server": "greenroom",
}


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to every response of a route."""
    _has_started.set(True)
    set_security_headers(response)


def set_security_headers(response: web.StreamResponse) -> None:
    """Set the security headers and the request's id."""
    response.headers.update(SECURITY_HEADERS)
    response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
    response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["X-Request-Id"] = json_io.REQUEST_ID.get()


def build_refusal_response(status: int) -> web.Response:
    """Return the response to a request that did not reach the middleware; it ends the connection."""
    json_io.REQUEST_ID.set(token_hex(8))
    response = json_io.JsonResponder(()).respond_problem(json_io.build_refusal(status))
    set_security_headers(response)
    response.force_close()
    return response


@dataclass(slots=True)
class KeptAnswer:
    """The answer to a change with an idempotency key, once there is one; `digest` is that of the request."""

    digest: bytes
    kept_at: float
    is_done: asyncio.Event = field(default_factory=asyncio.Event)
    body: bytes | None = None
    content_type: str = ""

    def build(self) -> web.Response:
        """Return the answer once more."""
        return web.Response(body=self.body, headers={"Content-Type": self.content_type})


class KeptAnswers:
    """The answers to the latest changes with an idempotency key, so that a repeated request changes nothing.

    A request that failed is not kept: it may be sent again.
    """

    def __init__(self, body_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._body_seconds = body_seconds
        self._clock = clock
        self._answers: platform.BoundedDict[tuple[str, ...], KeptAnswer] = platform.BoundedDict(MAX_KEPT_ANSWERS)

    async def answer(self, request: web.Request, handler: Handler, owner: str) -> web.StreamResponse:
        """Run the handler, or return its earlier answer to the same request. Raises HttpProblem for another one."""
        header = request.headers.get("Idempotency-Key")
        if header is None:
            return await handler(request)
        name = (owner, json_io.validate_with(KEY_ADAPTER, header))
        digest = await self._digest(request)
        while (kept := self._answers.get(name)) is not None and self._clock() - kept.kept_at < KEEPING_SECONDS:
            if kept.digest != digest:
                raise json_io.HttpProblem(422, "invalid_request", "the idempotency key belongs to another request")
            await kept.is_done.wait()
            if kept.body is not None:
                return kept.build()
        kept = self._answers[name] = KeptAnswer(digest, self._clock())
        try:
            response = await handler(request)
            if isinstance(response, web.Response) and isinstance(response.body, bytes) and response.status == 200:
                kept.content_type, kept.body = response.headers["Content-Type"], response.body
            return response
        finally:
            kept.is_done.set()
            if kept.body is None or len(kept.body) > MAX_KEPT_BYTES:
                self._answers.pop(name, None)

    async def _digest(self, request: web.Request) -> bytes:
        """Return a hash of the request; of a form with files, of its length instead of its bytes."""
        digest = sha256(f"{request.method} {request.rel_url.raw_path_qs}\n".encode())
        if request.content_type == "application/json":
            digest.update(await json_io.read_body(request, timeout=self._body_seconds))
        else:
            digest.update(str(request.content_length).encode())
        return digest.digest()


class Middleware:
    """The middlewares; `hosts` are the accepted host names."""

    def __init__(
        self,
        responder: json_io.JsonResponder,
        auth: TokenAuth,
        hosts: frozenset[str],
        kept_answers: KeptAnswers,
        guess_limiter: platform.GuessLimiter,
        proxies: platform.TrustedProxies,
        pool: platform.ConnectionPool,
    ) -> None:
        self._responder = responder
        self._auth = auth
        self._hosts = hosts
        self._guess_limiter = guess_limiter
        self._proxies = proxies
        self._pool = pool
        self._access: dict[web.AbstractRoute, Access] = {}
        self._pages: set[web.AbstractRoute] = set()
        self._kept: set[web.AbstractRoute] = set()
        self._kept_answers = kept_answers

    def declare(self, route: web.AbstractRoute, access: Access) -> None:
        """Declare what a route needs; one that is not declared needs `Access.CHANGE`."""
        self._access[route] = access
        for other in route.resource or ():  # HEAD beside GET
            self._access.setdefault(other, access)

    def keep_answers(self, route: web.AbstractRoute) -> None:
        """Store the answers of a route, so that a request repeated with its idempotency key changes nothing."""
        self._kept.add(route)

    def declare_page(self, route: web.AbstractRoute, *, is_public: bool) -> None:
        """Declare a page: its address may contain the token, and without a token it leads to the sign-in page."""
        self.declare(route, Access.PUBLIC if is_public else Access.ANY)
        self._pages.update((route, *(route.resource or ())))

    @web.middleware
    async def handle_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn every error into a response with a code; log internal errors."""
        json_io.REQUEST_ID.set(token_hex(8))
        try:
            with use_language(request.query.get("language", ""), request.headers.get("Accept-Language", "")):
                return await handler(request)
        except json_io.HttpProblem as problem:
            reply_problem = problem
        except platform.InboxClosed:
            reply_problem = json_io.build_stopping()
        except TemporaryError as error:
            reply_problem = json_io.build_unavailable(error)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            headers = {name: value for name, value in error.headers.items() if name == "Allow"}
            reply_problem = json_io.build_refusal(error.status, headers)
        except ConnectionError:
            raise
        except Exception:  # an error of a handler affects its own request only
            logger.exception("request %s to %s failed", json_io.REQUEST_ID.get(), request.rel_url.raw_path)
            reply_problem = json_io.build_refusal(500)
        if _has_started.get():
            raise ConnectionResetError(f"request {json_io.REQUEST_ID.get()} failed after its answer had begun")
        return self._build_response(request, reply_problem)

    @web.middleware
    async def authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check host name, credential and origin of a request. Raises HttpProblem."""
        self._pool.record_activity(request)
        if platform.parse_host_header(request.headers.get("Host", "")) not in self._hosts:
            raise json_io.HttpProblem(421, "unknown_host", "unknown host name: add it to SERVER_ALLOWED_HOSTS")
        access = self._access.get(request.match_info.route, Access.CHANGE)
        if request.path == HEALTH_PATH:  # by any method
            access = Access.PUBLIC
        credential = grant = None
        is_admitted = (access is Access.SIGNED and self._auth.is_signed(request)) or (
            access is Access.METRICS and self._auth.has_metrics_token(request)
        )
        if access is not Access.PUBLIC and not is_admitted:
            credential, grant = self._authenticate(request, is_page=request.match_info.route in self._pages)
        if request.method not in SAFE_METHODS or "Upgrade" in request.headers:
            _check_origin(request, credential)
        if credential is None or grant is None:
            return await self._handle_public(request, handler)
        if credential.kind is CredentialKind.LINK:
            response = web.Response(status=303, headers={"Location": f"./{_name_without_token(request)}"})
            self._auth.set_cookie(response, grant, credential, request.cookies)
            return response
        grant.require(access)
        GRANT.set(grant)
        if request.match_info.route in self._kept:
            answer = await self._kept_answers.answer(request, handler, grant.token_id)
        else:
            answer = await handler(request)
        if not answer.prepared:
            grant.require(access)  # it may have been revoked meanwhile
        return answer

    async def _handle_public(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == HEALTH_PATH:
            return await handler(request)
        with self._pool.run_public(request):
            return await handler(request)

    def _authenticate(self, request: web.Request, *, is_page: bool) -> tuple[Credential, Grant]:
        credential = self._auth.read_credential(request, is_page=is_page)
        if credential is None:
            raise json_io.HttpProblem(401, "unauthorized", "this needs the token", {"WWW-Authenticate": "Bearer"})
        grant = self._auth.find_grant(credential)
        if grant is None:
            client = self._proxies.find_client(request.remote, request.headers)
            self._guess_limiter.refuse(client, json_io.build_wrong_token())
        self._pool.authenticate(request)
        return credential, grant

    def _build_response(self, request: web.Request, problem: json_io.HttpProblem) -> web.Response:
        is_sign_in_needed = problem.code in SIGN_IN_CODES and not request.headers.get("Authorization")
        if is_sign_in_needed and request.match_info.route in self._pages:
            return web.Response(status=303, headers={"Location": _build_sign_in_address(request, problem)})
        return self._responder.respond_problem(problem)


def _build_sign_in_address(request: web.Request, problem: json_io.HttpProblem) -> str:
    """Return the relative address of the sign-in page, which leads back to the page of the request."""
    query = {}
    if page := f"{request.rel_url.raw_path.rpartition('/')[0]}/{_name_without_token(request)}".lstrip("/"):
        query["next"] = page
    if "token" in request.query:
        query["problem"] = problem.code
    return f"{json_io.relative_base(request.path)}{json_io.SIGN_IN_PATH[1:]}?{urlencode(query)}".rstrip("?")


def _name_without_token(request: web.Request) -> str:
    """Return the last segment of a request's address, with the query but for the token."""
    url = request.rel_url.without_query_params("token")
    return url.raw_path.rpartition("/")[2] + (f"?{url.raw_query_string}" if url.raw_query_string else "")


def _check_origin(request: web.Request, credential: Credential | None) -> None:
    is_by_cookie = credential is not None and credential.kind is CredentialKind.COOKIE
    if platform.is_cross_site(request.headers) or (is_by_cookie and not platform.is_same_origin(request.headers)):
        raise json_io.HttpProblem(403, "cross_site", "only the server's own pages, or a bearer token, may do this")
