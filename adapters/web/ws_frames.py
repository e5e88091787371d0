"""What passes over a WebSocket, in both directions."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, TypeAdapter

from adapters.web.schemas import (
    AgentBody,
    AgentName,
    AttachmentRequest,
    Author,
    Key,
    MessageBody,
    OutcomeBody,
    RequestModel,
    ResponseModel,
    RoomName,
    Text,
    UserName,
)


class HelloFrame(RequestModel):
    """The first frame of a client: which room it comes into, and who it is there."""

    type: Literal["hello"]
    room: RoomName = "main"
    user: UserName = "guest"
    agent: AgentName | None = None


class SendFrame(RequestModel):
    """A message; one that was not acknowledged is sent again with the same `client_id`."""

    type: Literal["message"]
    text: Text
    client_id: Key
    attachments: list[AttachmentRequest] = Field(default_factory=list, max_length=10)


class CommandFrame(RequestModel):
    """A command, as in `/help`; given again with the same `client_id` within a day it does nothing more."""

    type: Literal["command"]
    text: Annotated[Text, Field(min_length=1, max_length=4100)]
    client_id: Key


class SelectFrame(RequestModel):
    """A choice that was shown, by its value."""

    type: Literal["press"]
    value: Annotated[str, Field(min_length=1, max_length=64)]
    client_id: Key


ClientFrame = TypeAdapter[HelloFrame | SendFrame | CommandFrame | SelectFrame](
    Annotated[HelloFrame | SendFrame | CommandFrame | SelectFrame, Field(discriminator="type")]
)


class BaseServerFrame(ResponseModel):
    """What all frames to a client have in common: `seq` grows by one from frame to frame."""

    seq: int = 0


class ReadyFrame(BaseServerFrame):
    """The room as it stands; what follows comes on top of it."""

    type: Literal["ready"] = "ready"
    agent: AgentBody
    room: str
    room_id: UUID
    user: Author
    messages: list[MessageBody]
    is_typing: bool


class AckFrame(BaseServerFrame):
    """A message is kept; it will have its outcome whatever happens to this connection."""

    type: Literal["ack"] = "ack"
    client_id: str
    message_id: UUID


class ChoiceBody(ResponseModel):
    """Something to press."""

    label: str
    value: str


class CommandResultFrame(BaseServerFrame):
    """What came of a command or of a choice, for whoever gave it; nothing of it is kept."""

    type: Literal["shown"] = "shown"
    client_id: str
    text: str
    choices: list[ChoiceBody]


class TypingFrame(BaseServerFrame):
    """The agent has begun, or ceased, to work in this room."""

    type: Literal["typing"] = "typing"
    active: bool


class DraftFrame(BaseServerFrame):
    """A reply is being written: `text` comes behind what is there of it or, with `anew`, in its place.

    The message with this `id` takes its place; where `text` is empty none will come.
    """

    type: Literal["draft"] = "draft"
    id: UUID
    text: str
    anew: bool


class MessageFrame(BaseServerFrame, MessageBody):
    """A message of this room: a reply, or what somebody else said."""

    type: Literal["message"] = "message"


class OutcomeFrame(BaseServerFrame, OutcomeBody):
    """What became of a message."""

    type: Literal["outcome"] = "outcome"
    message_id: UUID
    superseded_by: UUID | None


class ErrorFrame(BaseServerFrame):
    """A frame was refused."""

    type: Literal["error"] = "error"
    code: str
    message: Text
    client_id: Text | None = None


ServerFrame = (
    ReadyFrame
    | AckFrame
    | CommandResultFrame
    | TypingFrame
    | DraftFrame
    | MessageFrame
    | OutcomeFrame
    | ErrorFrame
)
