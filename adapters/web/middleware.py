"""What every request passes before a handler sees it: the host, the token, the page it comes from."""

import logging
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from hashlib import sha256
from secrets import token_hex

from aiohttp import web

from adapters.web.auth import Credential, Kind, Lock, Throttle, household
from adapters.web.errors import REQUEST_ID, Problem, refused, stopping, unavailable
from adapters.web.json_io import Answers
from adapters.web.openapi import HEALTH
from bot import TryAgain
from bot.platform import IntakeClosed, host_name, is_foreign, is_own_page

logger = logging.getLogger(__name__)
_is_begun: ContextVar[bool] = ContextVar("is_begun", default=False)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Server": "greenroom",
}
SHUT_STYLE = "body{max-width:34rem;margin:12vh auto;padding:0 1rem;font:1rem/1.5 system-ui,sans-serif}"
SHUT_PAGE = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>Greenroom</title><style>{SHUT_STYLE}</style></head>
<body><h1>This door needs its key</h1>
<p>Open the address that was printed in the terminal when the bot started: it ends in <code>/?token=…</code>.
The token is also kept in the file <code>server-token</code> in the bot's data folder.</p>
<p>If you have just done so, <a href="/">go on to the page</a>.</p></body></html>
"""
SHUT_POLICY = POLICY.replace(
    "style-src 'self'", f"style-src 'sha256-{b64encode(sha256(SHUT_STYLE.encode()).digest()).decode()}'"
)


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Put the security headers on everything that leaves by a route."""
    _is_begun.set(True)
    secure(response)


def secure(response: web.StreamResponse) -> None:
    """Put on the headers that keep browsers in bounds, and the request's id."""
    response.headers.update(HEADERS)
    response.headers.setdefault("Content-Security-Policy", POLICY)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["X-Request-Id"] = REQUEST_ID.get()


class Guards:
    """The middlewares; `hosts` are the names by which the server may be called."""

    def __init__(self, answers: Answers, lock: Lock, hosts: frozenset[str], throttle: Throttle) -> None:
        self._answers = answers
        self._lock = lock
        self._hosts = hosts
        self._throttle = throttle
        self._public: set[web.AbstractRoute] = set()

    def open(self, route: web.AbstractRoute) -> None:
        """Let everybody in to a route."""
        self._public.add(route)

    @web.middleware
    async def explain(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn whatever goes wrong into an answer with a code; what is our fault also into a log entry."""
        REQUEST_ID.set(token_hex(8))
        try:
            return await handler(request)
        except Problem as problem:
            refusal = problem
        except IntakeClosed:
            refusal = stopping()
        except TryAgain as error:
            refusal = unavailable(error)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            refusal = refused(error.status, _allowed(error))
        except ConnectionError:
            raise
        except Exception:  # whatever a handler does wrong costs its own request only
            logger.exception("request %s to %s failed", REQUEST_ID.get(), request.rel_url.raw_path)
            refusal = refused(500)
        if _is_begun.get():
            raise ConnectionResetError(f"request {REQUEST_ID.get()} failed after its answer had begun")
        return self._refuse(request, refusal)

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in who calls us by our name, has the token, and is not another site's page."""
        if host_name(request.headers.get("Host", "")) not in self._hosts:
            raise Problem(
                421, "unknown_host", "the server is not called so: add the name to SERVER_ALLOWED_HOSTS"
            )
        credential = None
        if request.path != HEALTH and request.match_info.route not in self._public:
            credential = self._check(request)
        if request.method not in SAFE_METHODS or "Upgrade" in request.headers:
            _refuse_foreign(request, credential)
        if credential is not None and credential.kind is Kind.LINK:
            response = web.Response(status=303, headers={"Location": "/"})
            self._lock.give_cookie(response)
            return response
        return await handler(request)

    def _check(self, request: web.Request) -> Credential:
        credential = self._lock.shown(request)
        if credential is None:
            raise Problem(401, "unauthorized", "this needs the token", {"WWW-Authenticate": "Bearer"})
        # Another site's page can make a browser guess wrong: that must not shut out whoever sits at it.
        client = (household(request.remote), credential.kind, is_foreign(request.headers))
        if wait := self._throttle.wait(client):
            retry = {"Retry-After": str(int(wait) + 1)}
            raise Problem(429, "too_many_attempts", "too many wrong tokens; wait a few minutes", retry)
        if not self._lock.opens(credential):
            self._throttle.count(client)
            raise Problem(401, "unauthorized", "this is not the token", {"WWW-Authenticate": "Bearer"})
        return credential

    def _refuse(self, request: web.Request, problem: Problem) -> web.Response:
        if request.path == "/" and problem.status == 401:
            headers = {**problem.headers, "Content-Security-Policy": SHUT_POLICY}
            return web.Response(text=SHUT_PAGE, status=401, content_type="text/html", headers=headers)
        return self._answers.refusal(problem)


def _refuse_foreign(request: web.Request, credential: Credential | None) -> None:
    is_by_cookie = credential is not None and credential.kind is Kind.COOKIE
    if is_foreign(request.headers) or (is_by_cookie and not is_own_page(request.headers)):
        raise Problem(403, "cross_site", "only the server's own pages, or a bearer token, may do this")


def _allowed(error: web.HTTPException) -> dict[str, str]:
    return {name: value for name, value in error.headers.items() if name == "Allow"}
