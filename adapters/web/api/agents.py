"""HTTP handlers of the agents: their list, and reading a character's file again."""

from dataclasses import dataclass
from uuid import UUID

from aiohttp import web

from adapters.web.api.files import FILE_POLICY, build_file_limits
from adapters.web.auth import Access
from adapters.web.config import Limits
from adapters.web.errors import HttpProblem, build_not_found
from adapters.web.json_io import JsonResponder
from adapters.web.openapi import Operation
from adapters.web.outgoing import build_agent_body
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import AgentBody, FileLimits, ResponseModel
from bot import Role


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
    _responder: JsonResponder
    _limits: Limits

    async def list_agents(self, request: web.Request) -> web.StreamResponse:
        """List the agents."""
        bodies = [build_agent_body(handle) for handle in self._directory]
        return self._responder.respond(AgentsResponse(agents=bodies, files=build_file_limits(self._limits)))

    async def list_commands(self, request: web.Request) -> web.StreamResponse:
        """List the commands of an agent that need no role on the page."""
        handle = self._directory.find_agent(request.match_info["agent"])
        commands = [
            CommandBody(name=command.name, description=command.description)
            for command in sorted(handle.commands, key=lambda command: command.name)
            if command.role is Role.NONE or command.is_open_in_direct_chat
        ]
        return self._responder.respond(CommandsResponse(commands=commands))

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

    async def reload_agent(self, request: web.Request) -> web.StreamResponse:
        """Read an agent's character file again and take up what can change while it runs."""
        handle = self._directory.find_agent(request.match_info["agent"])
        result = await handle.reload()
        if result.error:
            raise HttpProblem(422, "character_refused", result.error)
        return self._responder.respond(
            ReloadResponse(
                agent_id=handle.agent_id,
                name=handle.character.name,
                file=result.file,
                changed=list(result.changed),
                needs_restart=list(result.needs_restart),
            )
        )

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        return [
            Operation("agents", self.list_agents, "/api/agents", Access.ANY, AgentsResponse),
            Operation(
                "picture",
                self.show_picture,
                "/api/agents/{agent}/picture",
                Access.ANY,
                problem_statuses=(404,),
                is_file=True,
            ),
            Operation(
                "commands",
                self.list_commands,
                "/api/agents/{agent}/commands",
                Access.ANY,
                CommandsResponse,
                problem_statuses=(404,),
            ),
            Operation(
                "reload",
                self.reload_agent,
                "/api/agents/{agent}/reload",
                Access.CHANGE,
                ReloadResponse,
                problem_statuses=(404, 422),
                method="POST",
            ),
        ]
