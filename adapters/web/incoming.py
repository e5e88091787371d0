"""Request or frame → InboundMessage, command, choice."""

import hashlib
import json
import mimetypes
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit
from uuid import UUID

from adapters.web.errors import Problem
from adapters.web.schemas import AttachmentRequest, MessageRequest
from adapters.web.ws_frames import Give, Hello, Press, Say
from bot import (
    Attachment,
    ChannelType,
    Content,
    Entity,
    MediaKind,
    Memory,
    MemoryKind,
    Room,
    World,
    derived_id,
    new_id,
)
from bot.platform import Arrival, Asked, EventKey, Pressed
from bot.text import clean_name

PLATFORM = "web"
API, PAGE = "api", "client_chat"
FINGERPRINT = "fingerprint"


@dataclass(frozen=True, slots=True)
class Said:
    """A message before it has an id; `key` makes it the same message when it is sent again."""

    text: str
    room: str
    user: str
    kind: ChannelType
    source: str
    key: str = ""
    attachments: tuple[Attachment, ...] = ()

    @property
    def fingerprint(self) -> str:
        """A short name for everything that makes a message what it is."""
        parts = [self.text, self.room, self.user, [(one.url, one.title) for one in self.attachments]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def said_by_api(body: MessageRequest, header_key: str | None) -> Said:
    """Take a message from a request; raises Problem where body and header disagree about its key."""
    if header_key is not None and body.idempotency_key not in (None, header_key):
        raise Problem(422, "invalid_request", "idempotency_key: the header Idempotency-Key is another one")
    return Said(
        text=body.text,
        room=body.room,
        user=body.user,
        kind=ChannelType.API,
        source=API,
        key=body.idempotency_key or header_key or "",
        attachments=_attachments(body.attachments),
    )


def said_by_page(hello: Hello, frame: Say) -> Said:
    """Take a message from a WebSocket's frame."""
    return Said(
        text=frame.text,
        room=hello.room,
        user=hello.user,
        kind=ChannelType.DM,
        source=PAGE,
        key=frame.client_id,
        attachments=_attachments(frame.attachments),
    )


def message_received(said: Said, *, agent_id: UUID, message_id: UUID, at: datetime) -> Arrival:
    """Make the arrival of a message.

    Who wrote it is what the client says, so nobody gets a role by it.
    """
    account = str(agent_id)
    author = Entity(user_id(said.user), PLATFORM, said.user, (clean_name(said.user),))
    world = World(derived_id(agent_id, PLATFORM), PLATFORM, account, "Web")
    room = Room(
        id=room_id(agent_id, said.room),
        world_id=world.id,
        type=said.kind,
        platform=PLATFORM,
        external_id=said.room,
        account=account,
        name=said.room,
    )
    external_id = f"{said.source}:{said.key or message_id}"
    message = Memory(
        id=message_id,
        kind=MemoryKind.MESSAGE,
        entity_id=author.id,
        room_id=room.id,
        world_id=world.id,
        content=Content(text=said.text, attachments=said.attachments, source=said.source),
        created_at=at,
        external_id=external_id,
        metadata={FINGERPRINT: said.fingerprint},
    )
    key = EventKey(PLATFORM, account, external_id, room.id, external_id)
    return Arrival(key, world, room, author, message)


def room_id(agent_id: UUID, room: str) -> UUID:
    """Name the room that a client's word for it means."""
    return derived_id(agent_id, PLATFORM, room)


def user_id(user: str) -> UUID:
    """Name the person that a client's word for them means."""
    return derived_id(PLATFORM, user)


def _attachments(sent: Iterable[AttachmentRequest]) -> tuple[Attachment, ...]:
    return tuple(
        Attachment(
            id=str(number),
            kind=_kind(one),
            url=one.url,
            content_type=one.content_type or "",
            title=one.title,
        )
        for number, one in enumerate(sent)
    )


def _kind(sent: AttachmentRequest) -> MediaKind:
    type_ = sent.content_type or mimetypes.guess_type(urlsplit(sent.url).path)[0] or ""
    family = type_.partition("/")[0].strip().lower()
    if family in ("image", "video", "audio"):
        return MediaKind(family.upper())
    return MediaKind.DOCUMENT


def command_given(hello: Hello, frame: Give, *, agent_id: UUID, at: datetime) -> Asked:
    """Take a command from the line in which it was written."""
    place = _place(hello, frame, agent_id, at)
    name, *rest = frame.text.removeprefix("/").split(None, 1) or [""]
    return Asked(
        name, place.world, place.room, place.author, place.key.event_id, at, text="".join(rest).strip()
    )


def choice_pressed(hello: Hello, frame: Press, *, agent_id: UUID, at: datetime) -> Pressed:
    """Take the value of a button."""
    place = _place(hello, frame, agent_id, at)
    return Pressed(place.world, place.room, place.author, frame.value, place.key.event_id, at)


def _place(hello: Hello, frame: Give | Press, agent_id: UUID, at: datetime) -> Arrival:
    """Find who asks, and where; what another person's client calls by the same name is another event."""
    key = f"{frame.client_id}:{hello.user}"
    said = Said("", hello.room, hello.user, ChannelType.DM, PAGE, key)
    return message_received(said, agent_id=agent_id, message_id=new_id(), at=at)
