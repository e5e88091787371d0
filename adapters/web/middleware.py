"""Middleware of every request: host, authentication and origin checks, error responses."""

import logging
from base64 import b64encode
from contextvars import ContextVar
from hashlib import sha256
from secrets import token_hex
from typing import NoReturn

from aiohttp import web

from adapters.web.auth import GRANT, Access, Credential, CredentialKind, Grant, TokenAuth
from adapters.web.clients import ConnectionPool, GuessLimiter, TrustedProxies
from adapters.web.errors import REQUEST_ID, HttpProblem, build_refusal, build_stopping, build_unavailable
from adapters.web.json_io import JsonResponder
from adapters.web.openapi import HEALTH_PATH, Handler
from bot import TemporaryError
from bot.platform import InboxClosed, is_cross_site, is_same_origin, parse_host_header

logger = logging.getLogger(__name__)
_has_started: ContextVar[bool] = ContextVar("is_begun", default=False)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Server": "greenroom",
}
UNAUTHORIZED_STYLE = "body{max-width:34rem;margin:12vh auto;padding:0 1rem;font:1rem/1.5 system-ui,sans-serif}"
UNAUTHORIZED_PAGE = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>Greenroom</title>
<style>{UNAUTHORIZED_STYLE}</style></head><body><h1>This page needs its token</h1>
<p>Open the address that was printed in the terminal when the bot started:
it ends in <code>/?token=…</code>.
The token is also stored in the file <code>server-token</code> in the bot's data folder.</p>
<p>If you have just done so, <a href="/">continue to the page</a>.</p></body></html>
"""
UNAUTHORIZED_POLICY = CONTENT_SECURITY_POLICY.replace(
    "style-src 'self'", f"style-src 'sha256-{b64encode(sha256(UNAUTHORIZED_STYLE.encode()).digest()).decode()}'"
)


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
    response.headers["X-Request-Id"] = REQUEST_ID.get()


class Middleware:
    """The middlewares; `hosts` are the accepted host names."""

    def __init__(
        self,
        responder: JsonResponder,
        auth: TokenAuth,
        hosts: frozenset[str],
        *,
        guess_limiter: GuessLimiter,
        proxies: TrustedProxies,
        pool: ConnectionPool,
    ) -> None:
        self._responder = responder
        self._auth = auth
        self._hosts = hosts
        self._guess_limiter = guess_limiter
        self._proxies = proxies
        self._pool = pool
        self._access: dict[web.AbstractRoute, Access] = {}

    def declare(self, route: web.AbstractRoute, access: Access) -> None:
        """Declare what a route needs; one that is not declared needs `Access.CHANGE`."""
        self._access[route] = access
        for other in route.resource or ():  # HEAD beside GET
            self._access.setdefault(other, access)

    @web.middleware
    async def handle_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn every error into a response with a code; log internal errors."""
        REQUEST_ID.set(token_hex(8))
        try:
            return await handler(request)
        except HttpProblem as problem:
            reply_problem = problem
        except InboxClosed:
            reply_problem = build_stopping()
        except TemporaryError as error:
            reply_problem = build_unavailable(error)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            headers = {name: value for name, value in error.headers.items() if name == "Allow"}
            reply_problem = build_refusal(error.status, headers)
        except ConnectionError:
            raise
        except Exception:  # an error of a handler affects its own request only
            logger.exception("request %s to %s failed", REQUEST_ID.get(), request.rel_url.raw_path)
            reply_problem = build_refusal(500)
        if _has_started.get():
            raise ConnectionResetError(f"request {REQUEST_ID.get()} failed after its answer had begun")
        return self._build_response(request, reply_problem)

    @web.middleware
    async def authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check host name, credential and origin of a request. Raises HttpProblem."""
        self._pool.record_activity(request)
        if parse_host_header(request.headers.get("Host", "")) not in self._hosts:
            raise HttpProblem(421, "unknown_host", "unknown host name: add it to SERVER_ALLOWED_HOSTS")
        access = self._access.get(request.match_info.route, Access.CHANGE)
        if request.path == HEALTH_PATH:  # by any method
            access = Access.PUBLIC
        credential = grant = None
        is_signed = access is Access.SIGNED and self._auth.is_signed(request)
        if access is not Access.PUBLIC and not is_signed:
            credential, grant = self._authenticate(request)
        if request.method not in SAFE_METHODS or "Upgrade" in request.headers:
            _check_origin(request, credential)
        if credential is None or grant is None:
            return await self._handle_public(request, handler)
        if credential.kind is CredentialKind.LINK:
            response = web.Response(status=303, headers={"Location": "/"})
            self._auth.set_cookie(response, grant, credential, request.cookies)
            return response
        grant.require(access)
        GRANT.set(grant)
        answer = await handler(request)
        if not answer.prepared:
            grant.require(access)  # it may have been revoked meanwhile
        return answer

    async def _handle_public(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == HEALTH_PATH:
            return await handler(request)
        with self._pool.run_public(request):
            return await handler(request)

    def _authenticate(self, request: web.Request) -> tuple[Credential, Grant]:
        credential = self._auth.read_credential(request)
        if credential is None:
            raise HttpProblem(401, "unauthorized", "this needs the token", {"WWW-Authenticate": "Bearer"})
        grant = self._auth.find_grant(credential)
        if grant is None:
            self._refuse_guess(request)
        self._pool.authenticate(request)
        return credential, grant

    def _refuse_guess(self, request: web.Request) -> NoReturn:
        client = self._proxies.find_client(request.remote, request.headers)
        if blocked_seconds := self._guess_limiter.blocked_seconds(client):
            headers = {"Retry-After": str(int(blocked_seconds) + 1)}
            raise HttpProblem(429, "too_many_attempts", "too many wrong tokens; wait a few minutes", headers)
        self._guess_limiter.record_failure(client)
        raise HttpProblem(401, "unauthorized", "this is not the token", {"WWW-Authenticate": "Bearer"})

    def _build_response(self, request: web.Request, problem: HttpProblem) -> web.Response:
        if request.path == "/" and problem.status == 401:
            headers = {**problem.headers, "Content-Security-Policy": UNAUTHORIZED_POLICY}
            return web.Response(text=UNAUTHORIZED_PAGE, status=401, content_type="text/html", headers=headers)
        return self._responder.respond_problem(problem)


def _check_origin(request: web.Request, credential: Credential | None) -> None:
    is_by_cookie = credential is not None and credential.kind is CredentialKind.COOKIE
    if is_cross_site(request.headers) or (is_by_cookie and not is_same_origin(request.headers)):
        raise HttpProblem(403, "cross_site", "only the server's own pages, or a bearer token, may do this")
