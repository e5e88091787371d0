"""HTTP handlers of the session of a browser: signing in and out, and what its token allows.

HTTP handlers of the agents: their list, and reading a character's file again.
"""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from aiohttp import web
from pydantic import StringConstraints

from adapters.web.api.files import FILE_POLICY, build_file_limits
from adapters.web.auth import GRANT, Access, Credential, CredentialKind, Grant, TokenAuth
from adapters.web.config import Limits
from adapters.web.json_io import HttpProblem, JsonResponder, build_not_found, build_wrong_token
from adapters.web.openapi import ReadBody, operation, package_version
from adapters.web.outgoing import build_agent_body
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import MAX_ATTACHMENTS, AgentBody, FileLimits, RequestModel, ResponseModel
from bot import Role
from bot.platform import GuessLimiter, TokenScope, TrustedProxies
from bot.text import translate


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

    @operation("GET", "/api/session", "session", Access.ANY)
    async def show_session(self, request: web.Request) -> SessionResponse:
        """Return what the token of the request allows."""
        return self._describe(GRANT.get())

    @operation("POST", "/api/session", "sign-in", Access.PUBLIC, response=SessionResponse)
    async def sign_in(self, request: web.Request, read_body: ReadBody[SignInRequest]) -> web.StreamResponse:
        """Exchange a token for a cookie of the browser, which scripts of pages cannot read."""
        body = await read_body()
        credential = Credential(CredentialKind.BEARER, body.token)
        grant = self._auth.find_grant(credential)
        if grant is None:
            client = self._proxies.find_client(request.remote, request.headers)
            self._guess_limiter.refuse(client, build_wrong_token())
        response = self._responder.respond(self._describe(grant))
        self._auth.set_cookie(response, grant, credential, request.cookies)
        return response

    @operation("DELETE", "/api/session", "sign-out", Access.ANY, response=SignedOutResponse)
    async def sign_out(self, request: web.Request) -> web.StreamResponse:
        """Remove the cookies of the browser; the token itself stays valid."""
        response = self._responder.respond(SignedOutResponse())
        self._auth.remove_cookies(response, request.cookies)
        return response

    def _describe(self, grant: Grant) -> SessionResponse:
        limits = SizeLimits(
            body_bytes=self._limits.max_body_bytes, frame_bytes=self._limits.max_frame_bytes, files=MAX_ATTACHMENTS
        )
        return SessionResponse(
            role=grant.scope,
            name=grant.name,
            agents=[build_agent_body(handle) for handle in self._directory],
            version=package_version(),
            limits=limits,
            files=build_file_limits(self._limits),
        )


class AgentsResponse(ResponseModel):
    """All agents of the process, and the limits of uploaded files."""

    agents: list[AgentBody]
    files: FileLimits


class CommandBody(ResponseModel):
    """A command, such as `/help`, and what it does."""

    name: str
    description: str


class CommandsResponse(ResponseModel):
    """The commands that a person may run on the page, by name."""

    commands: list[CommandBody]


class ReloadResponse(ResponseModel):
    """What was taken up from a character's file, and what counts after the next start only."""

    agent_id: UUID
    name: str
    file: str
    changed: list[str]
    needs_restart: list[str]


@dataclass(frozen=True, slots=True)
class AgentsApi:
    """Handlers for the agents of the process."""

    _directory: AgentDirectory
    _limits: Limits

    @operation("GET", "/api/agents", "agents", Access.ANY)
    async def list_agents(self, request: web.Request) -> AgentsResponse:
        """List the agents."""
        bodies = [build_agent_body(handle) for handle in self._directory]
        return AgentsResponse(agents=bodies, files=build_file_limits(self._limits))

    @operation("GET", "/api/agents/{agent}/commands", "commands", Access.ANY, (404,))
    async def list_commands(self, request: web.Request) -> CommandsResponse:
        """List the commands of an agent that need no role on the page."""
        handle = self._directory.find_agent(request.match_info["agent"])
        commands = [
            CommandBody(name=command.name, description=translate(command.description))
            for command in sorted(handle.commands, key=lambda command: command.name)
            if command.role is Role.NONE or command.is_open_in_direct_chat
        ]
        return CommandsResponse(commands=commands)

    @operation("GET", "/api/agents/{agent}/picture", "picture", Access.ANY, (404,), is_file=True)
    async def show_picture(self, request: web.Request) -> web.StreamResponse:
        """Return the picture of an agent's character; 404 without one, or if it cannot be used."""
        handle = self._directory.find_agent(request.match_info["agent"])
        picture = await handle.read_picture()
        if picture is None:
            raise build_not_found("picture of", handle.character.name)
        response = web.Response(body=picture.body, content_type=picture.content_type)
        response.headers["Cache-Control"] = "private, max-age=600"
        response.headers["Content-Security-Policy"] = FILE_POLICY
        return response

    @operation("POST", "/api/agents/{agent}/reload", "reload", Access.CHANGE, (404, 422))
    async def reload_agent(self, request: web.Request) -> ReloadResponse:
        """Read an agent's character file again and take up what can change while it runs."""
        handle = self._directory.find_agent(request.match_info["agent"])
        result = await handle.reload()
        if result.error:
            raise HttpProblem(422, "character_refused", result.error)
        return ReloadResponse(
            agent_id=handle.agent_id,
            name=handle.character.name,
            file=result.file,
            changed=list(result.changed),
            needs_restart=list(result.needs_restart),
        )
