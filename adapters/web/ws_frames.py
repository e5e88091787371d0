"""Frames of the WebSocket, in both directions."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, TypeAdapter

from adapters.web import schemas
from adapters.web.live import SubscribedFrame, SubscribeFrame

JsonUUID = Annotated[UUID, Field(strict=False)]  # in JSON it is a string


class HelloFrame(schemas.RequestModel):
    """The first frame of a client: the room to join and the user's name."""

    type: Literal["hello"]
    room: schemas.RoomName = "main"
    user: schemas.UserName = "guest"
    agent: schemas.AgentName | None = None


class SendFrame(schemas.RequestModel):
    """A message, with text or attachments; send it again with the same `client_id` if it was not acknowledged."""

    type: Literal["message"]
    text: schemas.Text
    client_id: schemas.Key
    attachments: list[schemas.AttachmentRequest] = Field(default_factory=list, max_length=schemas.MAX_ATTACHMENTS)


class CommandFrame(schemas.RequestModel):
    """A command such as `/help`; repeated with the same `client_id` within a day it has no effect."""

    type: Literal["command"]
    text: Annotated[schemas.Text, Field(min_length=1, max_length=4100)]
    client_id: schemas.Key


class AnswerFrame(schemas.RequestModel):
    """Stop the answer to a message, or have it answered once more; `message_id` may be the id of its reply."""

    type: Literal["stop", "regenerate"]
    message_id: JsonUUID
    client_id: schemas.Key


class EditFrame(schemas.RequestModel):
    """The new text of a message, which is answered once more."""

    type: Literal["edit"]
    message_id: JsonUUID
    text: Annotated[schemas.Text, Field(min_length=1)]
    client_id: schemas.Key


class SelectFrame(schemas.RequestModel):
    """A selected choice, by its value."""

    type: Literal["press"]
    value: Annotated[str, Field(min_length=1, max_length=64)]
    client_id: schemas.Key


ClientFrame = HelloFrame | SendFrame | AnswerFrame | EditFrame | CommandFrame | SelectFrame | SubscribeFrame
CLIENT_FRAME_ADAPTER = TypeAdapter[ClientFrame](Annotated[ClientFrame, Field(discriminator="type")])


class BaseServerFrame(schemas.ResponseModel):
    """Base of frames to a client; `seq` increases by one with each frame."""

    seq: int = 0


class ReadyFrame(BaseServerFrame):
    """The current state of the room; later frames update it."""

    type: Literal["ready"] = "ready"
    agent: schemas.AgentBody
    room: str
    room_id: UUID
    user: schemas.Author
    messages: list[schemas.MessageBody]
    is_typing: bool


class AckFrame(BaseServerFrame):
    """A message is stored; it gets its outcome even if this connection is lost."""

    type: Literal["ack"] = "ack"
    client_id: str
    message_id: UUID


class ChoiceBody(schemas.ResponseModel):
    """A choice, shown as a button."""

    label: str
    value: str


class CommandResultFrame(BaseServerFrame):
    """The result of a command or choice, for its sender only; it is not stored."""

    type: Literal["shown"] = "shown"
    client_id: str
    text: str
    choices: list[ChoiceBody]


class TypingFrame(BaseServerFrame):
    """The agent started or stopped typing in this room; `model_busy` if it waits for a model that is called again."""

    type: Literal["typing"] = "typing"
    active: bool
    model_busy: bool = False


class ControlFrame(BaseServerFrame):
    """The agent asks the page for something; `disable_input` and `enable_input` concern the message field.

    With `disable_input`, `target` is the reason that is shown. A page ignores actions that it does not know.
    """

    type: Literal["control"] = "control"
    action: str
    target: str


class DraftFrame(BaseServerFrame):
    """New text of a streamed reply: it is appended or, if `anew` is true, replaces the text so far.

    The message with this `id` replaces the draft; if `text` is empty, the reply is withdrawn.
    """

    type: Literal["draft"] = "draft"
    id: UUID
    text: str
    is_reset: bool = Field(serialization_alias="anew")


class MessageFrame(BaseServerFrame, schemas.MessageBody):
    """A message of this room: a reply, or a message of another user."""

    type: Literal["message"] = "message"


class OutcomeFrame(BaseServerFrame, schemas.OutcomeBody):
    """The outcome of a message."""

    type: Literal["outcome"] = "outcome"
    message_id: UUID
    superseded_by: UUID | None


def build_outcome_frame(response: schemas.MessageResponse) -> OutcomeFrame:
    """Return the outcome of a message as a frame."""
    figures = {name: getattr(response, name) for name in ("receipt_id", "headline", "took_ms", "cost")}
    return OutcomeFrame.build(response, **figures)


class ErrorFrame(BaseServerFrame):
    """A refused frame."""

    type: Literal["error"] = "error"
    code: str
    message: schemas.Text
    client_id: schemas.Text | None = None


ServerFrame = (
    ReadyFrame
    | AckFrame
    | CommandResultFrame
    | TypingFrame
    | ControlFrame
    | DraftFrame
    | MessageFrame
    | OutcomeFrame
    | ErrorFrame
    | SubscribedFrame
)
