"""Frames of the WebSocket, in both directions: those of a room, and live updates."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, get_args
from uuid import UUID

from pydantic import BaseModel, Field, TypeAdapter

from adapters.web import schemas
from bot import Outcome, Room
from bot.platform import ConnectionState, DeliveryState, DisconnectCause
from bot.store import ProposalState


class TopicKind(StrEnum):
    """What a topic is about; the frames of a topic have it as `type`."""

    MESSAGE = "message"
    CONVERSATION = "conversation"
    RECEIPT = "receipt"
    STEP = "step"
    DELIVERY = "delivery"
    PROPOSAL = "proposal"
    ACCOUNT = "account"
    MODEL = "model"
    BUSY = "busy"
    SPENDING = "spending"
    TASK = "task"
    LOG = "log"


# What a chat token may subscribe to, of its own rooms.
CHAT_TOPICS = frozenset(TopicKind) - {
    TopicKind.PROPOSAL,
    TopicKind.ACCOUNT,
    TopicKind.MODEL,
    TopicKind.SPENDING,
    TopicKind.TASK,
    TopicKind.LOG,
}


class LogLevel(StrEnum):
    """The lowest level of the lines of a `log` topic."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Topic(schemas.RequestModel):
    """Updates of a kind: of one agent (by id or name) or all, of one room or all; `level` is for `log` only.

    With `is_summary` there comes at most one `changed` frame a second instead of the updates, which costs the bot
    next to nothing.
    """

    kind: Annotated[TopicKind, Field(strict=False)]
    agent: schemas.AgentName | None = None
    room: Annotated[UUID, Field(strict=False)] | None = None
    level: Annotated[LogLevel, Field(strict=False)] = LogLevel.INFO
    is_summary: bool = False


class SubscribeFrame(schemas.RequestModel):
    """The topics of the connection; they replace those before.

    `after` is the `event_id` of the last frame that was received, also on an earlier connection: later updates of
    the topics are sent again. Where they are not known any more, a `reset` frame comes instead. With `is_batched`
    updates come a few times a second, together in `batch` frames, which costs the bot less.
    """

    type: Literal["subscribe"]
    topics: list[Topic] = Field(max_length=50)
    after: Annotated[str, Field(max_length=64)] | None = None
    is_batched: bool = False


class LiveFrame(schemas.ResponseModel):
    """Base of updates; of those about the same a slow client receives the latest only."""

    event_id: str = ""
    at: datetime

    @property
    def topic_kind(self) -> TopicKind:
        """The kind of topic that it belongs to."""
        return TopicKind(str(getattr(self, "type", "")))


class AgentFrame(LiveFrame):
    """Base of updates of one agent."""

    agent_id: UUID


@dataclass(frozen=True, slots=True)
class LiveUpdate:
    """What happened, for the topics that it belongs to; `build` returns its frame, when a connection receives it.

    `build` is None where it was not loaded, because no connection wanted the frame. An update replaces an earlier one
    of the same kind, agent and `id` that was not sent yet. `agent_id` is None where it concerns no single agent,
    `room` is the name of its room, where topics are limited by it.
    """

    kind: TopicKind
    build: Callable[[], LiveFrame] | None
    id: object = ""
    agent_id: UUID | None = None
    room_id: UUID | None = None
    room: str = ""
    severity: LogLevel = LogLevel.ERROR  # of a line of the log; the highest for others

    @classmethod
    def of_frame(cls, frame: LiveFrame) -> Self:
        """Return the update of a frame that is already built."""
        fields = {name: getattr(frame, name, None) for name in ("id", "agent_id", "room_id")}
        severity = frame.level if isinstance(frame, LogFrame) else LogLevel.ERROR
        return cls(frame.topic_kind, lambda: frame, **fields, room=getattr(frame, "room", ""), severity=severity)

    @property
    def key(self) -> tuple[object, ...]:
        """What it is about."""
        return (self.kind, self.agent_id, self.id)


class ChangedFrame(LiveFrame):
    """There were updates of a topic that is watched as a summary, the last ones at `at`.

    `agent_id` is that of the topic. `rooms` are the ids of the rooms that they concern; with `is_partial` there are
    more of them.
    """

    type: Literal["changed"] = "changed"
    topic: TopicKind
    agent_id: UUID | None
    rooms: list[UUID]
    is_partial: bool


class RoomMessageFrame(AgentFrame, schemas.MessageBody):
    """A message of any platform, when it is stored, edited or, for a reply, sent."""

    type: Literal["message"] = "message"


class ConversationFrame(AgentFrame):
    """A conversation has a new message, another title, or was deleted; `room` is the name of its room."""

    type: Literal["conversation"] = "conversation"
    id: UUID
    room_id: UUID
    room: str
    title: str
    updated_at: datetime | None = None  # null if nothing was written
    is_deleted: bool = False

    @classmethod
    def of_room(cls, agent_id: UUID, room: Room, at: datetime, **changes: Any) -> Self:
        """Return the frame about the conversation in a room."""
        names = {"id": room.id, "room_id": room.id, "room": room.external_id, "title": room.name}
        return cls(at=at, agent_id=agent_id, **names, **changes)


class ReceiptFrame(AgentFrame):
    """What became of a message: `claimed` while the agent works on it, then the outcome.

    `id` is the message's; `receipt_id` and `headline`, a sentence about the outcome, come with the outcome. `cost`
    is in US dollars.
    """

    type: Literal["receipt"] = "receipt"
    id: UUID
    room_id: UUID
    receipt_id: UUID | None = None
    author_id: UUID | None = None
    outcome: Outcome
    reason: str = ""
    rule: str = ""
    headline: str = ""
    received_at: datetime | None = None
    closed_at: datetime | None = None
    cost: float | None = None


class StepFrame(AgentFrame):
    """A step of the work on a message: an action, an evaluator or a call to a model, by name.

    `id` is the same while the step is `running` and when it is `done` or has `failed`.
    """

    type: Literal["step"] = "step"
    id: str
    run_id: UUID
    room_id: UUID | None
    step: Literal["action", "evaluator", "model"]
    name: str
    state: Literal["running", "done", "failed"]
    seconds: float | None = None
    note: str = ""


class DeliveryFrame(AgentFrame):
    """A part of a reply that is not attempted again: it arrived, is held, has failed or was cancelled."""

    type: Literal["delivery"] = "delivery"
    id: str
    room_id: UUID
    message_id: UUID
    platform: str
    part: int
    state: DeliveryState
    attempts: int
    cause: str


class ProposalFrame(AgentFrame):
    """A reply or post waits for a person, has another text, or does not wait any more."""

    type: Literal["proposal"] = "proposal"
    id: str
    room_id: UUID
    state: ProposalState
    revision: int


class AccountFrame(LiveFrame):
    """The connection of an account changed; `id` is its place among the accounts of the process."""

    type: Literal["account"] = "account"
    id: int
    platform: str
    state: ConnectionState
    since: datetime
    cause: DisconnectCause | None


class ModelFrame(AgentFrame):
    """A call to a model ended, with an `error` or without; `id` is the model's name, `work` its purpose."""

    type: Literal["model"] = "model"
    id: str
    work: str
    seconds: float
    tokens_in: int
    tokens_out: int
    cost: float | None
    error: str


class BusyFrame(AgentFrame):
    """A model is busy; it is called again at `retry_at`, for the `attempt`th time; `id` is the run that waits."""

    type: Literal["busy"] = "busy"
    id: UUID | None
    room_id: UUID | None
    model: str
    attempt: int
    retry_at: datetime


class SpendingFrame(AgentFrame):
    """What an agent has spent today (UTC) in US dollars, besides calls whose price is unknown."""

    type: Literal["spending"] = "spending"
    day: date
    usd: float
    unpriced_calls: int


class TaskFrame(AgentFrame):
    """A run of a scheduled task ended, with an `error` or without; it runs again at `next_run`, if at all."""

    type: Literal["task"] = "task"
    id: UUID
    name: str
    room_id: UUID | None
    error: str
    next_run: datetime | None


class LogFrame(LiveFrame):
    """A line of the log; `id` is its number since the start."""

    type: Literal["log"] = "log"
    id: int
    level: LogLevel
    logger: str
    text: str


class SubscribedFrame(schemas.ResponseModel):
    """The topics are subscribed to: pass `event_id` as `after` to receive what comes from now on."""

    seq: int = 0
    type: Literal["subscribed"] = "subscribed"
    event_id: str


class ResetFrame(schemas.ResponseModel):
    """Updates were left out, because they are too old or the client reads too slowly: load everything again."""

    type: Literal["reset"] = "reset"
    event_id: str


AnyLiveFrame = (
    RoomMessageFrame
    | ConversationFrame
    | ReceiptFrame
    | StepFrame
    | DeliveryFrame
    | ProposalFrame
    | AccountFrame
    | ModelFrame
    | BusyFrame
    | SpendingFrame
    | TaskFrame
    | LogFrame
    | ChangedFrame
)


class BatchFrame(schemas.ResponseModel):
    """Updates in their order, for a connection that takes batches."""

    type: Literal["batch"] = "batch"
    frames: list[AnyLiveFrame]


LIVE_FRAMES: tuple[type[BaseModel], ...] = (*get_args(AnyLiveFrame), ResetFrame, BatchFrame)


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
