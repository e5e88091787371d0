"""HTTP handlers of rooms, their messages, and messages to agents; of conversations, and of the search."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from typing import Annotated, Literal
from uuid import UUID

from aiohttp import web
from pydantic import AwareDatetime, Field, StringConstraints, TypeAdapter, ValidationError

from adapters.web import queries, schemas
from adapters.web.auth import GRANT, Access
from adapters.web.config import DELETED_KEY, DELETED_NAME, PLATFORM
from adapters.web.frames import ConversationFrame, LiveFrame
from adapters.web.incoming import (
    CONVERSATION_PREFIX,
    Participant,
    is_command,
    is_own_room,
    name_room,
    parse_api_message,
    room_id_of,
)
from adapters.web.incoming import build_place as build_conversation_place
from adapters.web.json_io import HttpProblem, build_not_found, validate_with
from adapters.web.messages import AnswerService, MessageService, MessageStreams
from adapters.web.openapi import ReadBody, operation
from adapters.web.outgoing import build_message_body, build_notice_body
from adapters.web.people_api import SOURCE
from bot import ChannelType, Entity, Memory, Outcome, Room, SettingError, derived_id, new_id, system_clock
from bot.platform import (
    AgentHandle,
    CastBody,
    RoomCast,
    RoomInstructionsBody,
    SaidResponse,
    TakeOverBody,
    describe_receipt,
)
from bot.store import ListedMessage, MessageFilter, PageKey, RoomFilter, RoomSummary
from bot.text import shorten

Cursor = Annotated[str, Field(max_length=4000)]


class RoomsQuery(schemas.AgentQuery):
    """Selection of rooms; `q` is a part of their name or of their id on the platform."""

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    before: Cursor | None = None
    platform: Annotated[str, Field(max_length=100)] = ""
    world: UUID | None = None
    q: Annotated[str, Field(max_length=200)] = ""


class TakeOverRequest(schemas.RequestModel):
    """Who takes over, and why; with a `person` for that one only."""

    person: Annotated[UUID | None, Field(strict=False)] = None
    name: Annotated[str, Field(max_length=100)] = ""
    reason: Annotated[str, Field(max_length=1000)] = ""


class ListedTakeOverBody(TakeOverBody):
    """A take-over with the agent, and the names of its room and of the person there."""

    agent_id: UUID
    room: str
    platform: str
    person: str | None


class TakeOversResponse(schemas.ResponseModel):
    """The take-overs that hold, the oldest first."""

    take_overs: list[ListedTakeOverBody]


class GiveBackRequest(schemas.RequestModel):
    """What is given back: a `person`, else the room, else everybody there."""

    person: Annotated[UUID | None, Field(strict=False)] = None


class GiveBackResponse(schemas.ResponseModel):
    """The take-overs that have ended."""

    ended: list[TakeOverBody]


class InstructionsRequest(schemas.RequestModel):
    """New values by key, for the room or its whole world; a blank one removes what is set there."""

    values: Annotated[dict[str, Annotated[str, Field(max_length=4000)]], Field(max_length=20)]
    of_world: bool = False


class CastRequest(schemas.RequestModel):
    """Which character is added to a room or removed."""

    action: Literal["add", "remove"]
    agent_id: Annotated[UUID, Field(strict=False)]


class WriteRequest(schemas.RequestModel):
    """What a person writes as the account of the bot, under their own `name`."""

    text: Annotated[str, Field(min_length=1, max_length=20_000)]
    name: Annotated[str, Field(max_length=100)] = ""


class RoomBody(schemas.ResponseModel):
    """A room of an agent, on any platform; `messages_today` are those to the agent since midnight (UTC).

    `take_overs` are those that hold: of the room, or of people there. It `has_cast` where several characters share the
    account.

    `name` is the platform's name for a room that has no other; a conversation's is its title.
    """

    id: UUID
    world_id: UUID
    agent_id: UUID
    name: str
    type: ChannelType
    platform: str
    external_id: str
    world: str
    last_event_at: datetime | None
    is_muted: bool
    has_cast: bool
    take_overs: list[TakeOverBody]
    messages_today: int


class RoomsResponse(schemas.ResponseModel):
    """Rooms, the most recently active first; `next` is the `before` of the others, null at the end.

    With filters a part may be short, even empty, and have a `next`: only so many rooms are examined for each.
    """

    rooms: list[RoomBody]
    next: str | None


class MessagesQuery(schemas.Query):
    """Selection of a room's messages: older ones with `before`, newer ones with `after`.

    `outcome` and `rule` may be repeated and select messages to the agent; `to` is exclusive.
    """

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    before: Cursor | None = None
    after: Cursor | None = None
    outcome: Annotated[list[Outcome], Field(max_length=20, default_factory=list)]
    rule: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=20, default_factory=list)]
    author: UUID | None = None
    since: Annotated[AwareDatetime | None, Field(alias="from")] = None
    until: Annotated[AwareDatetime | None, Field(alias="to")] = None


class RoomMessageBody(schemas.MessageBody):
    """A message of a room; one to the agent has the sentence of its outcome, if known."""

    headline: str | None = None


class MessagesResponse(schemas.ResponseModel):
    """Messages of a room, oldest first.

    `next` is the `before` of the older ones (with `after`, the `after` of the newer ones), null where there are none;
    `newest` is the `after` of what will follow these.
    """

    messages: list[RoomMessageBody]
    next: str | None
    newest: str | None


@dataclass(frozen=True, slots=True)
class RoomsApi:
    """Handlers for the rooms of all platforms."""

    _directory: queries.AgentDirectory

    @operation("GET", "/api/rooms", "rooms", Access.READ)
    async def list_rooms(self, request: web.Request, query: RoomsQuery) -> RoomsResponse:
        """List rooms."""
        handles = self._directory.select_agents(query.agent)
        keys = queries.parse_page_keys(query.before, len(handles))
        wanted = RoomFilter(query.platform, query.world, query.q.strip())
        midnight = datetime.combine(system_clock().date(), time(), system_clock().tzinfo)
        pages = [
            await handle.lists.rooms(wanted, counted_since=midnight, before=key, limit=query.limit)
            for handle, key in zip(handles, keys, strict=True)
        ]
        rooms, following = queries.merge_pages(pages, keys, lambda summary: summary.last_event_at, query.limit)
        bodies = [_build_room_body(summary, handles[number]) for number, summary in rooms]
        return RoomsResponse(rooms=bodies, next=following)

    @operation("GET", "/api/rooms/{id}/messages", "messages", Access.ANY)
    async def list_messages(self, request: web.Request, query: MessagesQuery) -> MessagesResponse:
        """List the last messages of a room, or of those that the filters select."""
        room_id = queries.parse_id(request.match_info["id"])
        handle, room = await self._directory.find_room(room_id)
        if not is_own_room(GRANT.get(), room):
            raise build_not_found("room", room_id)
        [before] = queries.parse_page_keys(query.before, 1)
        [after] = queries.parse_page_keys(query.after, 1)
        wanted = MessageFilter(frozenset(query.outcome), frozenset(query.rule), query.author, query.since, query.until)
        if after is not None:
            if before is not None or wanted != MessageFilter():
                raise HttpProblem(422, "invalid_request", "after: not together with `before` or filters")
            page = await handle.lists.messages_after(room.id, after, query.limit)
            items = page.items
        else:
            page = await handle.lists.messages(room.id, wanted, before=before, limit=query.limit)
            items = page.items[::-1]
        newest = items[-1][0] if items else after
        authors = await handle.conversations.authors([item.memory for _, item in items])
        bodies = [body for _, item in items for body in _build_messages(item, handle, authors)]
        return MessagesResponse(
            messages=bodies,
            next=None if page.next is None else queries.format_page_keys([page.next]),
            newest=None if newest is None else queries.format_page_keys([newest]),
        )

    @operation("GET", "/api/take-overs", "take-overs", Access.READ)
    async def list_take_overs(self, request: web.Request, query: schemas.AgentQuery) -> TakeOversResponse:
        """List the take-overs that hold, of rooms and of people there."""
        listed = []
        for handle in self._directory.select_agents(query.agent):
            held = handle.operations.take_overs()
            rooms = await handle.lists.rooms_by_id({item.room_id for item in held})
            ids = {item.person_id for item in held if item.person_id is not None}
            people = await handle.operations.people.entities(ids)
            for item in held:
                room, person = rooms.get(item.room_id), people.get(item.person_id) if item.person_id else None
                listed.append(
                    ListedTakeOverBody(
                        **dict(item),
                        agent_id=handle.agent_id,
                        room=name_room(room) if room else str(item.room_id),
                        platform=room.platform if room else "",
                        person=person.name if person else None,
                    )
                )
        return TakeOversResponse(take_overs=sorted(listed, key=lambda item: item.since))

    @operation("POST", "/api/rooms/{id}/take-over", "take-over", Access.CHANGE, (404, 503))
    async def take_over(self, request: web.Request, read_body: ReadBody[TakeOverRequest]) -> TakeOverBody:
        """Answer in place of an agent in a room, or one person there; return the take-over that holds."""
        handle, room = await self._directory.find_room(queries.parse_id(request.match_info["id"]))
        body = await read_body()
        try:
            return await handle.operations.take_over(
                room.id, body.person, name=body.name, reason=body.reason, source=SOURCE
            )
        except LookupError:
            raise build_not_found("person", body.person) from None

    @operation("POST", "/api/rooms/{id}/give-back", "give-back", Access.CHANGE, (404, 503))
    async def give_back(self, request: web.Request, read_body: ReadBody[GiveBackRequest]) -> GiveBackResponse:
        """End the take-over of a room or of a person there, else those of all people there."""
        handle, room = await self._directory.find_room(queries.parse_id(request.match_info["id"]))
        body = await read_body()
        return GiveBackResponse(ended=await handle.operations.give_back(room.id, body.person, source=SOURCE))

    @operation("GET", "/api/rooms/{id}/instructions", "room-instructions", Access.READ, (404,))
    async def show_instructions(self, request: web.Request) -> RoomInstructionsBody:
        """Return what is set for a room, by the character's file, operators and admins."""
        handle, room = await self._directory.find_room(queries.parse_id(request.match_info["id"]))
        return await handle.operations.instructions(room.id, handle.character.rooms)

    @operation("PUT", "/api/rooms/{id}/instructions", "set-room-instructions", Access.CHANGE, (404, 503))
    async def set_instructions(
        self, request: web.Request, read_body: ReadBody[InstructionsRequest]
    ) -> RoomInstructionsBody:
        """Set values of a room or its world, or remove them with blank ones; return what is in effect then."""
        handle, room = await self._directory.find_room(queries.parse_id(request.match_info["id"]))
        body = await read_body()
        try:
            return await handle.operations.set_instructions(
                room.id, body.values, handle.character.rooms, of_world=body.of_world, source=SOURCE
            )
        except SettingError as error:
            raise HttpProblem(422, "invalid_request", str(error)) from None

    @operation("GET", "/api/rooms/{id}/cast", "room-cast", Access.READ, (404, 503))
    async def show_cast(self, request: web.Request) -> CastBody:
        """Return which of the characters that share the account of a room speak there; 404 where none share it."""
        handle, room, cast = await self._find_cast(request)
        return await cast.describe(handle, room)

    @operation("POST", "/api/rooms/{id}/cast", "change-room-cast", Access.CHANGE, (404, 503))
    async def change_cast(self, request: web.Request, read_body: ReadBody[CastRequest]) -> CastBody:
        """Add a character to those that speak in a room, or remove it; return who speaks there then."""
        handle, room, cast = await self._find_cast(request)
        body = await read_body()
        try:
            return await cast.change(handle, room, body.agent_id, is_member=body.action == "add", source=SOURCE)
        except LookupError:
            raise build_not_found("character", body.agent_id) from None
        except SettingError as error:
            raise HttpProblem(422, "invalid_request", str(error)) from None

    async def _find_cast(self, request: web.Request) -> tuple[AgentHandle, Room, RoomCast]:
        room_id = queries.parse_id(request.match_info["id"])
        handle, room = await self._directory.find_room(room_id)
        if (cast := handle.casts.get(room.platform)) is None:
            raise build_not_found("cast of room", room_id)
        return handle, room, cast

    @operation("POST", "/api/rooms/{id}/write", "write-as-agent", Access.CHANGE, (404, 503), handles_key=True)
    async def write(self, request: web.Request, read_body: ReadBody[WriteRequest]) -> SaidResponse:
        """Send what a person writes as the account of the bot, marked as theirs."""
        handle, room = await self._directory.find_room(queries.parse_id(request.match_info["id"]))
        body, key = await read_body(), _read_key(request)
        return await handle.operations.write_as_agent(room.id, body.text, name=body.name, key=key or "")


def _build_room_body(summary: RoomSummary, handle: AgentHandle) -> RoomBody:
    return RoomBody.build(
        summary.room,
        name=name_room(summary.room),
        agent_id=handle.agent_id,
        world=summary.world_name,
        last_event_at=summary.last_event_at,
        is_muted=summary.is_muted,
        has_cast=summary.room.platform in handle.casts,
        take_overs=[item for item in handle.operations.take_overs() if item.room_id == summary.room.id],
        messages_today=summary.message_count,
    )


def _build_messages(item: ListedMessage, handle: AgentHandle, authors: dict[UUID, Entity]) -> Iterator[RoomMessageBody]:
    """Yield a message, after the AI notice that was sent before it."""
    if (notice := build_notice_body(item.memory, handle.agent_id, handle.character.name)) is not None:
        yield RoomMessageBody(**dict(notice))
    body = build_message_body(item.memory, handle.agent_id, authors, item.receipt, agent_name=handle.character.name)
    headline = None if item.receipt is None else describe_receipt(item.receipt, handle.character.name)
    yield RoomMessageBody(**dict(body), headline=headline)


@dataclass(frozen=True, slots=True)
class MessagesApi:
    """Handlers for messages to agents."""

    _directory: queries.AgentDirectory
    _message_service: MessageService
    _streams: MessageStreams
    _answers: AnswerService

    @operation(
        "POST", "/api/agents/{agent}/messages", "say", Access.CHAT, (404, 503), can_stream=True, handles_key=True
    )
    async def send_message(
        self, request: web.Request, read_body: ReadBody[schemas.MessageRequest]
    ) -> schemas.MessageResponse | web.StreamResponse:
        """Send an agent, by id or name, a message or a command such as `/help`, and wait for its outcome."""
        handle = self._directory.find_agent(request.match_info["agent"])
        body = await read_body()
        header_key = _read_key(request)
        submitted = parse_api_message(body, header_key, GRANT.get())
        if is_command(body.text):
            answer = await self._message_service.answer_command(handle, submitted)
            if body.stream:
                return await self._streams.respond_to_command(request, answer)
            return answer
        if body.stream:
            return await self._streams.respond(request, handle, submitted)
        receipt = await self._message_service.submit(handle, submitted)
        return await self._message_service.wait_response(handle, receipt, submitted.room)

    @operation("POST", "/api/messages/{id}/stop", "stop_answer", Access.CHAT, (404, 409, 503))
    async def stop_answer(self, request: web.Request) -> schemas.OutcomeResponse:
        """Stop the answer to a message, named by its id or its reply's, and return its outcome."""
        message_id = queries.parse_id(request.match_info["id"])
        return await self._answers.stop(message_id, GRANT.get())

    @operation(
        "POST", "/api/messages/{id}/regenerate", "regenerate", Access.CHAT, (404, 409, 422, 503), handles_key=True
    )
    async def regenerate_answer(self, request: web.Request) -> schemas.MessageResponse:
        """Answer a message once more, named by its id or its reply's, and wait for the outcome."""
        message_id, key = queries.parse_id(request.match_info["id"]), _read_key(request)
        receipt = await self._answers.repeat(message_id, GRANT.get(), key or "")
        return await self._answers.wait_response(receipt)

    @operation("PUT", "/api/messages/{id}", "edit_message", Access.CHAT, (404, 409, 503), handles_key=True)
    async def edit_message(
        self, request: web.Request, read_body: ReadBody[schemas.EditRequest]
    ) -> schemas.MessageResponse:
        """Replace the text of a message to an agent, and wait for the outcome of the new one."""
        message_id, key = queries.parse_id(request.match_info["id"]), _read_key(request)
        await self._answers.find(message_id, GRANT.get())
        body = await read_body()
        receipt = await self._answers.edit(message_id, body.text, GRANT.get(), key or "")
        return await self._answers.wait_response(receipt)


def _read_key(request: web.Request) -> str | None:
    """Return the idempotency key of a request's header. Raises HttpProblem for an invalid one."""
    key = request.headers.get("Idempotency-Key")
    return None if key is None else validate_with(schemas.KEY_ADAPTER, key)


PageKeys = dict[UUID, tuple[int, ...]]
PAGE_KEYS = TypeAdapter[PageKeys](PageKeys)
NO_KEY: PageKey = ()
MAX_PAGES = 5  # of rooms that are examined for one page of conversations
Title = Annotated[schemas.Text, StringConstraints(strip_whitespace=True, max_length=200)]


class ConversationsQuery(schemas.AgentQuery):
    """Selection of conversations: those with `q` in their title; `before` is the `next` of the page before it."""

    q: Annotated[str, Field(max_length=200)] = ""
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    before: Annotated[str, Field(max_length=4000)] | None = None


class ConversationRequest(schemas.RequestModel):
    """A new conversation with an agent, by id or name; without a title, its first message gives it one."""

    agent: schemas.AgentName | None = None
    title: Title = ""


class TitleRequest(schemas.RequestModel):
    """The new title of a conversation."""

    title: Annotated[Title, StringConstraints(min_length=1)]


class ConversationBody(schemas.ResponseModel):
    """A conversation: its room's id, and the name by which messages and the WebSocket name the room."""

    id: UUID
    agent_id: UUID
    room_id: UUID
    room: str
    title: str
    updated_at: datetime | None = None


class ConversationsResponse(schemas.ResponseModel):
    """Conversations with at least one message, the most recently active first."""

    conversations: list[ConversationBody]
    next: str | None


class DeletedConversation(schemas.ResponseModel):
    """A deleted conversation, and the number of its messages."""

    id: UUID
    messages: int


@dataclass(frozen=True, slots=True)
class ConversationsApi:
    """Handlers for conversations; a chat token sees its own, other tokens those that belong to no chat token."""

    _directory: queries.AgentDirectory
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
            new_id().hex
            if header is None
            else derived_id(GRANT.get().token_id, validate_with(schemas.KEY_ADAPTER, header)).hex
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
        room_id = queries.parse_id(request.match_info["id"])
        handle, room = await self._directory.find_room(room_id)
        if not queries.is_conversation(room) or not is_own_room(GRANT.get(), room):
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
            if queries.is_conversation(item.room) and item.last_event_at and folded_text in item.room.name.casefold()
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
        return PAGE_KEYS.validate_json(urlsafe_b64decode(text.encode()))
    except (ValueError, ValidationError):
        raise _build_cursor_problem() from None


def _build_cursor_problem() -> HttpProblem:
    return HttpProblem(422, "invalid_request", "before: not a cursor of this list")


MAX_OF_EACH_KIND = 5
MAX_TITLE_LENGTH = 100


class SearchQuery(schemas.AgentQuery):
    """Part of a name, words of a message, or an id."""

    q: Annotated[str, StringConstraints(strip_whitespace=True), Field(max_length=200)] = ""


class SearchHit(schemas.ResponseModel):
    """What was found, with its title and a line that says where it is; a message has the receipt that tells of it."""

    kind: Literal["room", "person", "message", "receipt"]
    id: UUID
    agent_id: UUID
    title: str
    where: str
    receipt_id: UUID | None = None


class SearchResponse(schemas.ResponseModel):
    """What was found, at most five of each kind."""

    results: list[SearchHit]


@dataclass(frozen=True, slots=True)
class SearchApi:
    """Handler of the search."""

    _directory: queries.AgentDirectory

    @operation("GET", "/api/search", "search", Access.READ)
    async def search(self, request: web.Request, query: SearchQuery) -> SearchResponse:
        """Find rooms and people by name, messages by text, and messages, receipts, rooms and people by id."""
        hits: dict[tuple[str, UUID], SearchHit] = {}
        for handle in self._directory.select_agents(query.agent):
            async for hit in _find(handle, query.q):
                hits.setdefault((hit.kind, hit.id), hit)
        kinds = list(dict.fromkeys(hit.kind for hit in hits.values()))
        found = list(hits.values())
        best = [hit for kind in kinds for hit in [item for item in found if item.kind == kind][:MAX_OF_EACH_KIND]]
        return SearchResponse(results=best)


def _find(handle: AgentHandle, text: str) -> AsyncIterator[SearchHit]:
    try:
        return _find_by_id(handle, UUID(text))
    except ValueError:
        return _find_by_name(handle, text)


async def _find_by_name(handle: AgentHandle, text: str) -> AsyncIterator[SearchHit]:
    if not text:
        return
    page = await handle.lists.rooms(RoomFilter(text=text), counted_since=system_clock(), limit=MAX_OF_EACH_KIND)
    for _, summary in page.items:
        yield _build_room_hit(handle, summary.room, summary.world_name)
    for person in await _find_people(handle, text):
        yield _build_hit(handle, "person", person.id, person.name, person.platform)
    rooms = await handle.conversations.rooms()
    names = {room.id: name_room(room) for room in rooms}
    async for message, title in _find_messages(handle, text, rooms):
        receipt_id = message.content.in_reply_to or message.id
        yield _build_hit(handle, "message", message.id, title, names.get(message.room_id, ""), receipt_id)


async def _find_people(handle: AgentHandle, text: str) -> list[Entity]:
    """Return people with a text in a name, those who wrote last; of very many only the last ones are examined."""

    async def fetch(limit: int, before: tuple[datetime, UUID] | None) -> Sequence[tuple[tuple[datetime, UUID], Entity]]:
        people = await handle.people.latest(limit, before)
        return [((item.activity.last_at, item.entity.id), item.entity) for item in people if item.activity is not None]

    found, _ = await queries.collect_page(
        fetch, lambda entity: queries.has_text(text, (*entity.names, entity.external_id)), MAX_OF_EACH_KIND, None
    )
    return found


async def _find_messages(handle: AgentHandle, text: str, rooms: Sequence[Room]) -> AsyncIterator[tuple[Memory, str]]:
    """Yield the messages of these rooms that share the most words with a text, and the title of each."""
    messages = await handle.conversations.search_messages(text, rooms, MAX_OF_EACH_KIND)
    authors = await handle.conversations.authors(messages)
    for message in messages:
        author = authors.get(message.entity_id)
        yield message, f"{author.name}: {message.content.text}" if author else message.content.text


async def _find_by_id(handle: AgentHandle, found_id: UUID) -> AsyncIterator[SearchHit]:
    """Yield everything of an agent that has this id; a message is followed by its receipt."""
    conversations = handle.conversations
    message, receipt = await conversations.message(found_id), await conversations.receipt(found_id)
    room_id = message.room_id if message else receipt.room_id if receipt else found_id
    room = await conversations.room(room_id)
    where = name_room(room) if room else ""
    if message is not None:
        author = (await handle.people.entities([message.entity_id])).get(message.entity_id)
        title = f"{author.name}: {message.content.text}" if author else message.content.text
        yield _build_hit(handle, "message", message.id, title, where)
    if receipt is not None:
        yield _build_hit(handle, "receipt", receipt.id, describe_receipt(receipt, handle.character.name), where)
    if room is not None and room.id == found_id:
        yield _build_room_hit(handle, room)
    if (person := (await handle.people.entities([found_id])).get(found_id)) is not None:
        yield _build_hit(handle, "person", person.id, person.name, person.platform)


def _build_room_hit(handle: AgentHandle, room: Room, world_name: str = "") -> SearchHit:
    where = " · ".join(filter(None, (room.platform, world_name)))
    return _build_hit(handle, "room", room.id, name_room(room), where)


def _build_hit(
    handle: AgentHandle, kind: str, found_id: UUID, title: str, where: str, receipt_id: UUID | None = None
) -> SearchHit:
    shown_title = shorten(" ".join(title.split()), MAX_TITLE_LENGTH)
    body = {"kind": kind, "id": found_id, "agent_id": handle.agent_id, "title": shown_title, "where": where}
    return SearchHit.model_validate({**body, "receipt_id": receipt_id})
