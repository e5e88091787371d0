"""HTTP handlers of rooms and their messages."""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from aiohttp import web
from pydantic import Field

from adapters.web.auth import Access
from adapters.web.json_io import JsonResponder, validate_model
from adapters.web.openapi import Operation
from adapters.web.queries import AgentDirectory, load_room_messages, parse_id
from adapters.web.schemas import AgentQuery, MessageBody, Query, ResponseModel
from bot import ChannelType


class RoomsQuery(AgentQuery):
    """Selection of rooms."""

    limit: Annotated[int, Field(ge=1, le=500)] = 100


class RoomBody(ResponseModel):
    """A room of an agent, on any platform."""

    id: UUID
    world_id: UUID
    agent_id: UUID
    name: str
    type: ChannelType
    platform: str
    external_id: str


class RoomsResponse(ResponseModel):
    """Rooms, agent by agent, the most recently active first."""

    rooms: list[RoomBody]


class MessagesQuery(Query):
    """Number of a room's messages."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50


class MessagesResponse(ResponseModel):
    """The last messages of a room, oldest first."""

    messages: list[MessageBody]


@dataclass(frozen=True, slots=True)
class RoomsApi:
    """Handlers for the rooms of all platforms."""

    _directory: AgentDirectory
    _responder: JsonResponder

    async def list_rooms(self, request: web.Request) -> web.StreamResponse:
        """List rooms."""
        query = validate_model(RoomsQuery, dict(request.query))
        handles = self._directory.select_agents(query.agent)
        bodies = [
            RoomBody.build(room, agent_id=handle.agent_id)
            for handle in handles
            for room in await handle.conversations.rooms()
        ]
        return self._responder.respond(RoomsResponse(rooms=bodies[: query.limit]))

    async def list_messages(self, request: web.Request) -> web.StreamResponse:
        """List the last messages of a room."""
        query = validate_model(MessagesQuery, dict(request.query))
        handle, room = await self._directory.find_room(parse_id(request.match_info["id"]))
        return self._responder.respond(
            MessagesResponse(messages=await load_room_messages(handle, room.id, query.limit))
        )

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        path = "/api/rooms"
        return [
            Operation("rooms", self.list_rooms, path, Access.READ, RoomsResponse, RoomsQuery),
            Operation(
                "messages", self.list_messages, f"{path}/{{id}}/messages", Access.READ, MessagesResponse, MessagesQuery
            ),
        ]
