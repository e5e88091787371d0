"""HTTP handlers of the settings of worlds that plugins declare; a secret can be written, and is never returned."""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from aiohttp import web
from pydantic import StringConstraints

from adapters.web.auth import Access
from adapters.web.config import Limits
from adapters.web.errors import HttpProblem, build_not_found
from adapters.web.json_io import JsonResponder, read_json, validate_model
from adapters.web.messages import run_shielded
from adapters.web.openapi import Operation
from adapters.web.queries import AgentDirectory, parse_id
from adapters.web.schemas import RequestModel, ResponseModel, Text
from bot import SettingError, World
from bot.platform import AgentHandle, TaskSet

SOURCE = "HTTP API"  # in the log of who changed what


class WorldSettingRequest(RequestModel):
    """The new value of a setting; blank to remove it."""

    value: Annotated[Text, StringConstraints(max_length=4000)]


class WorldSettingBody(ResponseModel):
    """A setting of a world; `value` is empty for a secret, whether it is set or not."""

    name: str
    description: str
    usage: str
    plugin: str
    is_secret: bool
    is_required: bool
    is_set: bool
    value: str


class WorldSettingsResponse(ResponseModel):
    """The settings that a world can have now; `note` is what the plugin says about a change."""

    world_id: UUID
    agent_id: UUID
    name: str
    settings: list[WorldSettingBody]
    note: str = ""


@dataclass(frozen=True, slots=True)
class WorldSettingsApi:
    """Handlers for the settings of worlds."""

    _directory: AgentDirectory
    _requests: TaskSet
    _responder: JsonResponder
    _limits: Limits

    async def list_settings(self, request: web.Request) -> web.StreamResponse:
        """List the settings of a world that plugins declare."""
        handle, world = await self._find_world(request)
        return await self._respond(handle, world)

    async def set_setting(self, request: web.Request) -> web.StreamResponse:
        """Set a setting of a world; a blank value removes it."""
        handle, world = await self._find_world(request)
        name = request.match_info["name"]
        if name not in {spec.name for spec in handle.catalog.world_settings}:
            raise build_not_found("setting of worlds", name)
        body = validate_model(WorldSettingRequest, await read_json(request, timeout=self._limits.body_seconds))
        return await run_shielded(self._requests, self._change(handle, world, name, body.value))

    async def _change(self, handle: AgentHandle, world: World, name: str, value: str) -> web.StreamResponse:
        try:
            note = await handle.world_settings.change(world.id, name, value, actor=None, source=SOURCE)
        except SettingError as error:
            raise HttpProblem(422, "invalid_request", str(error)) from None
        return await self._respond(handle, await handle.conversations.world(world.id) or world, note)

    async def _find_world(self, request: web.Request) -> tuple[AgentHandle, World]:
        world_id = parse_id(request.match_info["id"])
        for handle in self._directory:
            if (world := await handle.conversations.world(world_id)) is not None:
                return handle, world
        raise build_not_found("world", world_id)

    async def _respond(self, handle: AgentHandle, world: World, note: str = "") -> web.StreamResponse:
        states = await handle.world_settings.states(world)
        bodies = [
            WorldSettingBody.build(state.spec, is_set=state.is_set, value="" if state.spec.is_secret else state.value)
            for state in states
        ]
        return self._responder.respond(
            WorldSettingsResponse(
                world_id=world.id, agent_id=handle.agent_id, name=world.name, settings=bodies, note=note
            )
        )

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        path = "/api/worlds/{id}/settings"
        return [
            Operation(
                "world-settings", self.list_settings, path, Access.READ, WorldSettingsResponse, problem_statuses=(404,)
            ),
            Operation(
                "set-world-setting",
                self.set_setting,
                f"{path}/{{name}}",
                Access.CHANGE,
                WorldSettingsResponse,
                problem_statuses=(400, 404, 408, 413, 415, 422, 503),
                body=WorldSettingRequest,
                method="POST",
            ),
        ]
