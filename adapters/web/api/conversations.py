"""HTTP handlers of conversations: the rooms of the page, with a title, as their owner sees them."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated
from uuid import UUID

from aiohttp import web
from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from adapters.web.auth import GRANT, Access
from adapters.web.config import DELETED_KEY, DELETED_NAME, PLATFORM
from adapters.web.incoming import CONVERSATION_PREFIX, Participant, is_own_room, room_id_of
from adapters.web.incoming import build_place as build_conversation_place
from adapters.web.json_io import HttpProblem, build_not_found, validate_with
from adapters.web.live import ConversationFrame, LiveFrame
from adapters.web.openapi import ReadBody, operation
from adapters.web.queries import AgentDirectory, is_conversation, parse_id
from adapters.web.schemas import KEY_ADAPTER, AgentName, AgentQuery, RequestModel, ResponseModel, Text
from bot import ChannelType, Room, derived_id, new_id, system_clock
from bot.platform import AgentHandle
from bot.store import PageKey, RoomFilter, RoomSummary

PageKeys = dict[UUID, tuple[int, ...]]
Cursor = TypeAdapter[PageKeys](PageKeys)
NO_KEY: PageKey = ()
MAX_PAGES = 5  # of rooms that are examined for one page of conversations
Title = Annotated[Text, StringConstraints(strip_whitespace=True, max_length=200)]


class ConversationsQuery(AgentQuery):
    """Selection of conversations: those with `q` in their title; `before` is the `next` of the page before it."""

    q: Annotated[str, Field(max_length=200)] = ""
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    before: Annotated[str, Field(max_length=4000)] | None = None


class ConversationRequest(RequestModel):
    """A new conversation with an agent, by id or name; without a title, its first message gives it one."""

    agent: AgentName | None = None
    title: Title = ""


class TitleRequest(RequestModel):
    """The new title of a conversation."""

    title: Annotated[Title, StringConstraints(min_length=1)]


class ConversationBody(ResponseModel):
    """A conversation: its room's id, and the name by which messages and the WebSocket name the room."""

    id: UUID
    agent_id: UUID
    room_id: UUID
    room: str
    title: str
    updated_at: datetime | None = None


class ConversationsResponse(ResponseModel):
    """Conversations with at least one message, the most recently active first."""

    conversations: list[ConversationBody]
    next: str | None


class DeletedConversation(ResponseModel):
    """A deleted conversation, and the number of its messages."""

    id: UUID
    messages: int


@dataclass(frozen=True, slots=True)
class ConversationsApi:
    """Handlers for conversations; a chat token sees its own, other tokens those that belong to no chat token."""

    _directory: AgentDirectory
    _publish: Callable[[LiveFrame], None]

    @operation("GET", "/api/conversations", "conversations", Access.ANY)
    async def list_conversations(self, request: web.Request, query: ConversationsQuery) -> ConversationsResponse:
        """List conversations, the most recently active first."""
        before = _parse_cursor(query.before)
        listed: list[tuple[datetime, UUID, PageKey, RoomSummary]] = []
        ends: dict[UUID, PageKey | None] = {}
        for handle in self._directory.select_agents(query.agent):
            if query.before is not None and handle.agent_id not in before:
                continue  # all of it has been listed
            found, ends[handle.agent_id] = await _find_conversations(
                handle, query.q, before.get(handle.agent_id), query.limit
            )
            listed += [(_time_of(summary), handle.agent_id, key, summary) for key, summary in found]
        listed.sort(key=lambda entry: (entry[0], entry[3].room.id), reverse=True)
        page, rest = listed[: query.limit], listed[query.limit :]
        unlisted = {agent_id for _, agent_id, _, _ in rest}
        following = {agent_id: end for agent_id, end in ends.items() if end is not None and agent_id not in unlisted}
        following |= {agent_id: before.get(agent_id, NO_KEY) for agent_id in unlisted}
        following |= {agent_id: key for _, agent_id, key, _ in page if agent_id in unlisted}
        bodies = [_build_body(agent_id, item.room, item.last_event_at) for _, agent_id, _, item in page]
        return ConversationsResponse(conversations=bodies, next=_build_cursor(following))

    @operation("POST", "/api/conversations", "create_conversation", Access.CHAT, (404, 503), handles_key=True)
    async def create_conversation(
        self, request: web.Request, read_body: ReadBody[ConversationRequest]
    ) -> ConversationBody:
        """Begin a conversation; a repeated idempotency key returns the same one."""
        body = await read_body()
        handle = self._directory.find_agent(body.agent)
        header = request.headers.get("Idempotency-Key")
        name = (
            new_id().hex if header is None else derived_id(GRANT.get().token_id, validate_with(KEY_ADAPTER, header)).hex
        )
        participant = Participant.build(f"{CONVERSATION_PREFIX}{name}", "guest", GRANT.get())
        stored = await handle.conversations.room(room_id_of(handle.agent_id, participant.room))
        if stored is None:
            world, room = build_conversation_place(handle.agent_id, participant, ChannelType.DM, body.title)
            await handle.membership.join_room(world, room)
            stored = room
        return _build_body(handle.agent_id, stored, None)

    @operation("GET", "/api/conversations/{id}", "conversation", Access.ANY, (404,))
    async def show_conversation(self, request: web.Request) -> ConversationBody:
        """Return a conversation."""
        handle, room = await self._find(request)
        return _build_body(handle.agent_id, room, None)

    @operation("PATCH", "/api/conversations/{id}", "rename_conversation", Access.CHAT, (404, 503))
    async def rename_conversation(self, request: web.Request, read_body: ReadBody[TitleRequest]) -> ConversationBody:
        """Change the title of a conversation."""
        handle, room = await self._find(request)
        body = await read_body()
        room = await self._update(handle, replace(room, name=body.title))
        self._announce(handle, room)
        return _build_body(handle.agent_id, room, None)

    @operation("DELETE", "/api/conversations/{id}", "delete_conversation", Access.CHAT, (404, 503))
    async def delete_conversation(self, request: web.Request) -> DeletedConversation:
        """Delete a conversation with its title, its messages and what was learnt from them alone; its receipts stay."""
        handle, room = await self._find(request)
        count = await handle.edits.clear_room(room.id)
        await self._update(handle, replace(room, name=DELETED_NAME, metadata={**room.metadata, DELETED_KEY: True}))
        self._announce(handle, room, is_deleted=True)
        return DeletedConversation(id=room.id, messages=count)

    def _announce(self, handle: AgentHandle, room: Room, *, is_deleted: bool = False) -> None:
        """Publish the change to the pages that show the list."""
        self._publish(ConversationFrame.of_room(handle.agent_id, room, system_clock(), is_deleted=is_deleted))

    async def _update(self, handle: AgentHandle, room: Room) -> Room:
        world = await handle.conversations.world(room.world_id)
        if world is None:
            raise build_not_found("conversation", room.id)
        await handle.membership.update_room(world, room)
        return room

    async def _find(self, request: web.Request) -> tuple[AgentHandle, Room]:
        """Return a conversation that the token may see. Raises HttpProblem (404) for any other."""
        room_id = parse_id(request.match_info["id"])
        handle, room = await self._directory.find_room(room_id)
        if not is_conversation(room) or not is_own_room(GRANT.get(), room):
            raise build_not_found("conversation", room_id)
        return handle, room


async def _find_conversations(
    handle: AgentHandle, text: str, before: PageKey | None, limit: int
) -> tuple[list[tuple[PageKey, RoomSummary]], PageKey | None]:
    """Return conversations of one agent, and the key after which there may be more."""
    participant = Participant.build("", "", GRANT.get())
    world, _ = build_conversation_place(handle.agent_id, participant, ChannelType.DM, "")
    folded_text = text.casefold()
    wanted, found = RoomFilter(PLATFORM, world.id, text), list[tuple[PageKey, RoomSummary]]()
    for _ in range(MAX_PAGES):
        try:
            page = await handle.lists.rooms(wanted, counted_since=system_clock(), before=before or None, limit=limit)
        except ValueError:  # the key is that of another list
            raise _build_cursor_problem() from None
        found += [
            (key, item)
            for key, item in page.items
            if is_conversation(item.room) and item.last_event_at and folded_text in item.room.name.casefold()
        ]
        before = page.next
        if before is None or len(found) >= limit:
            break
    if len(found) > limit:
        return found[:limit], found[limit - 1][0]
    return found, before


def _time_of(summary: RoomSummary) -> datetime:
    assert summary.last_event_at is not None
    return summary.last_event_at


def _build_body(agent_id: UUID, room: Room, updated_at: datetime | None) -> ConversationBody:
    return ConversationBody(
        id=room.id, agent_id=agent_id, room_id=room.id, room=room.external_id, title=room.name, updated_at=updated_at
    )


def _build_cursor(following: Mapping[UUID, PageKey]) -> str | None:
    if not following:
        return None
    text = json.dumps({str(agent_id): key for agent_id, key in following.items()}, separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode()


def _parse_cursor(text: str | None) -> PageKeys:
    """Return where the list goes on, by agent. Raises HttpProblem (422) for an invalid cursor."""
    if text is None:
        return {}
    try:
        return Cursor.validate_json(urlsafe_b64decode(text.encode()))
    except (ValueError, ValidationError):
        raise _build_cursor_problem() from None


def _build_cursor_problem() -> HttpProblem:
    return HttpProblem(422, "invalid_request", "before: not a cursor of this list")
