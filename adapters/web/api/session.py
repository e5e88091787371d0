"""HTTP handlers of the session of a browser: signing in and out, and what its token allows."""

from dataclasses import dataclass
from typing import Annotated

from aiohttp import web
from pydantic import StringConstraints

from adapters.web.api.files import build_file_limits
from adapters.web.auth import GRANT, Access, Credential, CredentialKind, Grant, TokenAuth
from adapters.web.config import Limits
from adapters.web.errors import build_wrong_token
from adapters.web.json_io import JsonResponder, read_json, validate_model
from adapters.web.openapi import Operation, package_version
from adapters.web.outgoing import build_agent_body
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import MAX_ATTACHMENTS, AgentBody, FileLimits, RequestModel, ResponseModel
from bot.platform import GuessLimiter, TokenScope, TrustedProxies


class SignInRequest(RequestModel):
    """The server's token, or one with a scope."""

    token: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


class SizeLimits(ResponseModel):
    """Largest sizes, in bytes, of a request and of a frame of the WebSocket, and files of a message."""

    body_bytes: int
    frame_bytes: int
    files: int


class SessionResponse(ResponseModel):
    """What the token allows (`role` is its scope), its name, and the characters it may talk with."""

    role: TokenScope
    name: str
    agents: list[AgentBody]
    version: str
    limits: SizeLimits
    files: FileLimits


class SignedOutResponse(ResponseModel):
    """The browser's cookies of this server are removed."""

    is_signed_in: bool = False


@dataclass(frozen=True, slots=True)
class SessionApi:
    """Handlers for the session of a browser; the cookie holds the session, so nothing is stored."""

    _directory: AgentDirectory
    _auth: TokenAuth
    _guess_limiter: GuessLimiter
    _proxies: TrustedProxies
    _responder: JsonResponder
    _limits: Limits

    async def show_session(self, request: web.Request) -> web.StreamResponse:
        """Return what the token of the request allows."""
        return self._respond(GRANT.get())

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Exchange a token for a cookie of the browser, which scripts of pages cannot read."""
        body = validate_model(SignInRequest, await read_json(request, timeout=self._limits.body_seconds))
        credential = Credential(CredentialKind.BEARER, body.token)
        grant = self._auth.find_grant(credential)
        if grant is None:
            client = self._proxies.find_client(request.remote, request.headers)
            self._guess_limiter.refuse(client, build_wrong_token())
        response = self._respond(grant)
        self._auth.set_cookie(response, grant, credential, request.cookies)
        return response

    async def sign_out(self, request: web.Request) -> web.StreamResponse:
        """Remove the cookies of the browser; the token itself stays valid."""
        response = self._responder.respond(SignedOutResponse())
        self._auth.remove_cookies(response, request.cookies)
        return response

    def _respond(self, grant: Grant) -> web.Response:
        limits = SizeLimits(
            body_bytes=self._limits.max_body_bytes, frame_bytes=self._limits.max_frame_bytes, files=MAX_ATTACHMENTS
        )
        return self._responder.respond(
            SessionResponse(
                role=grant.scope,
                name=grant.name,
                agents=[build_agent_body(handle) for handle in self._directory],
                version=package_version(),
                limits=limits,
                files=build_file_limits(self._limits),
            )
        )

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        path = "/api/session"
        return [
            Operation("session", self.show_session, path, Access.ANY, SessionResponse),
            Operation(
                "sign-in",
                self.sign_in,
                path,
                Access.PUBLIC,
                SessionResponse,
                problem_statuses=(400, 408, 413, 415, 422),
                body=SignInRequest,
                method="POST",
            ),
            Operation("sign-out", self.sign_out, path, Access.ANY, SignedOutResponse, method="DELETE"),
        ]
