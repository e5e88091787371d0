"""Frames of the WebSocket, in both directions."""

from collections import deque
from collections.abc import Callable
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


class SendFrame(schemas.ContentRequest):
    """A message, with text or attachments; send it again with the same `client_id` if it was not acknowledged."""

    type: Literal["message"]
    client_id: schemas.Key


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
    attachments: list[schemas.AttachmentBody]


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


class FrameQueue:
    """The frames that a connection has not sent yet, in order and numbered.

    Of the new text of a draft the pieces are joined while they wait: a slow client receives fewer, longer ones.
    """

    def __init__(self, to_json: Callable[[ServerFrame], str], max_size: int) -> None:
        self._to_json = to_json
        self._max_size = max_size
        self._seq = 0
        self._size = 0
        self._frames: deque[str | UUID] = deque()  # the text of a frame, or the id of a draft
        self._drafts: dict[UUID, DraftFrame] = {}

    def __bool__(self) -> bool:
        return bool(self._frames)

    @property
    def is_full(self) -> bool:
        """Whether the client reads too slowly: more than `max_size` characters wait."""
        return self._size > self._max_size

    def add(self, frame: ServerFrame) -> None:
        """Add a frame."""
        if isinstance(frame, DraftFrame):
            self._add_draft(frame)
            return
        if isinstance(frame, MessageFrame) and frame.id in self._drafts:
            draft = self._drafts.pop(frame.id)
            text = self._frames[self._frames.index(frame.id)] = self._to_json(draft)
            self._size += len(text) - len(draft.text)
        self._seq += 1
        text = self._to_json(frame.model_copy(update={"seq": self._seq}))
        self._size += len(text)
        self._frames.append(text)

    def take(self) -> str:
        """Remove the first frame and return it as JSON."""
        first = self._frames.popleft()
        if isinstance(first, UUID):
            draft = self._drafts.pop(first)
            self._size -= len(draft.text)
            return self._to_json(draft)
        self._size -= len(first)
        return first

    def clear(self) -> None:
        """Remove all frames."""
        self._frames.clear()
        self._drafts.clear()
        self._size = 0

    def _add_draft(self, frame: DraftFrame) -> None:
        waiting = self._drafts.get(frame.id)
        if waiting is None:
            self._seq += 1
            self._drafts[frame.id] = frame.model_copy(update={"seq": self._seq})
            self._frames.append(frame.id)
            self._size += len(frame.text)
            return
        text = frame.text if frame.is_reset else waiting.text + frame.text
        self._size += len(text) - len(waiting.text)
        is_reset = frame.is_reset or waiting.is_reset
        self._drafts[frame.id] = waiting.model_copy(update={"text": text, "is_reset": is_reset})
