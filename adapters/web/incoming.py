"""Conversion of requests and frames to inbound messages, commands and choices; pure."""

import hashlib
import json
import mimetypes
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self
from urllib.parse import urlsplit
from uuid import UUID

from adapters.web.auth import Grant
from adapters.web.config import PLATFORM
from adapters.web.files import build_upload_url
from adapters.web.frames import CommandFrame, SelectFrame, SendFrame
from adapters.web.json_io import HttpProblem
from adapters.web.schemas import AttachmentRequest, MessageRequest
from bot import Attachment, ChannelType, Content, Entity, MediaKind, Room, World, derived_id, new_id
from bot.platform import ACCESS_TOKEN_KEY, ChoiceSelection, CommandInvocation, InboundMessage, TokenScope
from bot.text import chosen_language, sanitize_name, shorten

API_SOURCE, PAGE_SOURCE = "api", "client_chat"
FINGERPRINT_KEY = "fingerprint"
UNTITLED = "Conversation without a title"
CONVERSATION_PREFIX = "c-"  # of the names of rooms that are conversations of the page
MAX_TITLE_LENGTH = 60
COMMAND = re.compile(r"/[a-z][\w-]*(\s|$)", re.IGNORECASE)  # as the page recognises commands


@dataclass(frozen=True, slots=True)
class Participant:
    """Who writes, and in which room; `owner` separates what belongs to a chat token, blank without one.

    `token_id` is that of the token, blank for the server's own.
    """

    room: str
    user: str
    name: str
    owner: str = ""
    token_id: str = ""

    @classmethod
    def build(cls, room: str, user: str, grant: Grant) -> Self:
        """Return the participant that a client names; a chat token has its own user and rooms."""
        if grant.scope is not TokenScope.CHAT:
            return cls(room, user, user, token_id=grant.token_id)
        owner = grant.owner
        own_room = room if room.startswith(f"{owner}:") else f"{owner}:{room}"
        return cls(own_room, owner, grant.name, owner, grant.token_id)

    def own_key(self, key: str) -> str:
        """Return an idempotency key that no other token shares."""
        return f"{self.owner}:{key}" if self.owner and key else key


def is_own_room(grant: Grant, room: Room) -> bool:
    """Return whether a token may see a room: a chat token only its own, any other every room."""
    if grant.scope is not TokenScope.CHAT:
        return True
    return room.platform == PLATFORM and room.external_id.startswith(f"{grant.owner}:")


@dataclass(frozen=True, slots=True)
class SubmittedMessage:
    """A message before it has an id; a repeated `key` identifies the same message.

    A blank `room_name` leaves the known one, without any it is the client's name for the room.
    """

    text: str
    participant: Participant
    kind: ChannelType
    source: str
    key: str = ""
    attachments: tuple[Attachment, ...] = ()
    room_name: str | None = None

    @property
    def room(self) -> str:
        """The room's external id."""
        return self.participant.room

    @property
    def user(self) -> str:
        """The user's external id."""
        return self.participant.user

    @property
    def fingerprint(self) -> str:
        """A hash of the message's content, room and user."""
        parts = [
            self.text,
            self.room,
            self.user,
            [(attachment.url, attachment.title) for attachment in self.attachments],
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def parse_api_message(body: MessageRequest, header_key: str | None, grant: Grant) -> SubmittedMessage:
    """Return the message of a request. Raises HttpProblem if body and header have different keys."""
    if header_key is not None and body.idempotency_key not in (None, header_key):
        raise HttpProblem(422, "invalid_request", "idempotency_key: differs from the header Idempotency-Key")
    participant = Participant.build(body.room, body.user, grant)
    return SubmittedMessage(
        text=body.text,
        participant=participant,
        kind=ChannelType.API,
        source=API_SOURCE,
        key=participant.own_key(body.idempotency_key or header_key or ""),
        attachments=_build_attachments(body.attachments, grant),
    )


def parse_page_message(participant: Participant, frame: SendFrame, grant: Grant) -> SubmittedMessage:
    """Return the message of a WebSocket frame."""
    return SubmittedMessage(
        text=frame.text,
        participant=participant,
        kind=ChannelType.DM,
        source=PAGE_SOURCE,
        key=participant.own_key(frame.client_id),
        attachments=_build_attachments(frame.attachments, grant),
    )


def build_inbound_message(
    submitted: SubmittedMessage, *, agent_id: UUID, message_id: UUID, sent_at: datetime
) -> InboundMessage:
    """Return the inbound message.

    The client chooses the user's name freely, so the user gets no role.
    """
    participant = submitted.participant
    names, metadata = (sanitize_name(participant.name),), {"language": chosen_language.get()}
    author = Entity(user_id_of(submitted.user), PLATFORM, submitted.user, names, metadata=metadata)
    name = submitted.room if submitted.room_name is None else submitted.room_name
    world, room = build_place(agent_id, participant, submitted.kind, name)
    return InboundMessage.build(
        world,
        room,
        author,
        Content(text=submitted.text, attachments=submitted.attachments, source=submitted.source),
        created_at=sent_at,
        message_id=f"{submitted.source}:{submitted.key or message_id}",
        memory_id=message_id,
        metadata={FINGERPRINT_KEY: submitted.fingerprint, ACCESS_TOKEN_KEY: participant.token_id},
    )


def build_place(agent_id: UUID, participant: Participant, kind: ChannelType, name: str) -> tuple[World, Room]:
    """Return the world and the room of a participant; a room's `name` is the title of its conversation."""
    account, world_id = str(agent_id), derived_id(agent_id, PLATFORM)
    if participant.owner:  # nothing that is remembered passes between its conversations and others
        world_id = derived_id(agent_id, PLATFORM, "world", participant.owner)
    world = World(world_id, PLATFORM, account, "Web")
    room = Room(
        id=room_id_of(agent_id, participant.room),
        world_id=world.id,
        type=kind,
        platform=PLATFORM,
        external_id=participant.room,
        account=account,
        name=name,
    )
    return world, room


def build_imported_conversation(agent_id: UUID, key: str, title: str, person: str) -> tuple[World, Room, Entity]:
    """Return the place of a conversation of another program, and the person who had it."""
    participant = Participant(f"{CONVERSATION_PREFIX}{key}", person, person)
    world, room = build_place(agent_id, participant, ChannelType.DM, shorten(title, MAX_TITLE_LENGTH))
    return world, room, Entity(user_id_of(person), PLATFORM, person, (sanitize_name(person),))


def is_conversation_name(room: str) -> bool:
    """Return whether a room's name is that of a conversation, which gets a title from its first message."""
    return room.rpartition(":")[2].startswith(CONVERSATION_PREFIX)


def name_room(room: Room) -> str:
    """Return what people call a room: its name, or the platform's name for it."""
    is_untitled = room.platform == PLATFORM and not room.name and is_conversation_name(room.external_id)
    return UNTITLED if is_untitled else room.name or room.external_id


def build_title(text: str) -> str:
    """Return the title of a conversation that begins with a text: the beginning of its first line."""
    return shorten(next((line.strip() for line in text.splitlines() if line.strip()), ""), MAX_TITLE_LENGTH)


def room_id_of(agent_id: UUID, room: str) -> UUID:
    """Return the id of a room by the client's name for it."""
    return derived_id(agent_id, PLATFORM, room)


def user_id_of(user: str) -> UUID:
    """Return the id of a user by the client's name for them."""
    return derived_id(PLATFORM, user)


def uploader_of(grant: Grant) -> str:
    """Return the owner of the files that are uploaded with a token."""
    return grant.token_id or "operator"


def _build_attachments(requests: Iterable[AttachmentRequest], grant: Grant) -> tuple[Attachment, ...]:
    """Return the attachments; what is known of uploaded files is filled in when they are attached."""
    return tuple(
        Attachment(
            id=request.file
            or str(derived_id("attachment", request.url or "")),  # what was read of it is found by its id
            kind=_media_kind(request),
            url=request.url or build_upload_url(uploader_of(grant), request.file or ""),
            content_type=request.content_type or "",
            title=request.title,
        )
        for request in requests
    )


def _media_kind(request: AttachmentRequest) -> MediaKind:
    content_type = request.content_type or mimetypes.guess_type(urlsplit(request.url or "").path)[0]
    return MediaKind.of_content_type(content_type or "")


def is_command(text: str) -> bool:
    """Return whether a text is a command, such as `/help`."""
    return COMMAND.match(text) is not None


def parse_page_event(participant: Participant, frame: CommandFrame | SelectFrame) -> SubmittedMessage:
    """Return what a frame submits; the same `client_id` of another user is another event."""
    text = frame.text if isinstance(frame, CommandFrame) else ""
    key = f"{frame.client_id}:{participant.user}"
    return SubmittedMessage(text, participant, ChannelType.DM, PAGE_SOURCE, key)


def build_command_invocation(submitted: SubmittedMessage, *, agent_id: UUID, sent_at: datetime) -> CommandInvocation:
    """Return the command that a text is."""
    context = build_inbound_message(submitted, agent_id=agent_id, message_id=new_id(), sent_at=sent_at)
    name, *rest = submitted.text.removeprefix("/").split(None, 1) or [""]
    return CommandInvocation(
        name, context.world, context.room, context.author, context.key.event_id, sent_at, text="".join(rest).strip()
    )


def build_choice_selection(
    submitted: SubmittedMessage, value: str, *, agent_id: UUID, sent_at: datetime
) -> ChoiceSelection:
    """Return the selected choice."""
    context = build_inbound_message(submitted, agent_id=agent_id, message_id=new_id(), sent_at=sent_at)
    return ChoiceSelection(context.world, context.room, context.author, value, context.key.event_id, sent_at)
