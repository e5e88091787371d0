"""Request and response models; the OpenAPI document is built from them."""

from datetime import datetime
from typing import Annotated, Literal, Self, cast
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bot import MediaKind, MemoryScope, Outcome
from bot.platform import ConnectionState, DisconnectCause, Result

MAX_ATTACHMENTS = 10
LINE_PATTERN = r"^[^\x00-\x1f\x7f\u2028\u2029]+$"
PRINTABLE_PATTERN = r"^[\x20-\x7e]+$"
URL_PATTERN = r"^https?://[^\s\x00-\x1f\x7f]+$"
RoomName = Annotated[str, StringConstraints(strip_whitespace=True, max_length=120, pattern=LINE_PATTERN)]
UserName = Annotated[str, StringConstraints(strip_whitespace=True, max_length=64, pattern=LINE_PATTERN)]
AgentName = Annotated[str, StringConstraints(strip_whitespace=True, max_length=200, pattern=LINE_PATTERN)]
Key = Annotated[str, StringConstraints(max_length=200, pattern=PRINTABLE_PATTERN)]
KEY_ADAPTER = TypeAdapter[str](Key)


def _replace_surrogates(text: str) -> str:
    """Replace unpaired surrogates, which cannot be stored as UTF-8."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


Text = Annotated[str, AfterValidator(_replace_surrogates)]


class RequestModel(BaseModel):
    """Base of request bodies: strict types, unknown fields are refused.

    The validators of a model are built when it is first used: those of all routes would slow down the start.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True, defer_build=True)


class ResponseModel(Result):
    """Base of responses."""


class AttachmentRequest(RequestModel):
    """An attachment of a message: the URL of a file, or the id of an uploaded `file`."""

    url: Annotated[str, StringConstraints(max_length=2048, pattern=URL_PATTERN)] | None = None
    file: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = None
    content_type: Annotated[str, StringConstraints(max_length=100, pattern=PRINTABLE_PATTERN)] | None = None
    title: Annotated[Text, StringConstraints(max_length=200)] = ""

    @model_validator(mode="after")
    def check_source(self) -> Self:
        """Raise ValueError unless there is one of `url` and `file`."""
        if (self.url is None) == (self.file is None):
            raise ValueError("an attachment has either a url or a file")
        return self


class ContentRequest(RequestModel):
    """What a message consists of: a text, attachments, or both."""

    attachments: list[AttachmentRequest] = Field(default_factory=list, max_length=MAX_ATTACHMENTS)
    text: Text = Field(default_factory=lambda: cast(str, None), validate_default=True)  # optional, but see below

    @field_validator("text", mode="before")
    @classmethod
    def check_content(cls, text: object, info: ValidationInfo) -> object:
        """Raise ValueError for a message of nothing."""
        if text is None and not info.data.get("attachments"):
            raise ValueError("a message has a text or attachments")
        return "" if text is None else text


class MessageRequest(ContentRequest):
    """A message to an agent.

    `room` and `user` are names of your choice: the same names mean the same room and person. A message sent
    twice with one `idempotency_key` is answered once. With attachments it needs no text.
    """

    room: RoomName = "api"
    user: UserName = "guest"
    idempotency_key: Key | None = None
    stream: bool = False


class Query(BaseModel):
    """Base of query strings; all values are text, unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)


class AgentQuery(Query):
    """Selection of an agent, by id or name; all agents without one."""

    agent: AgentName | None = None


class PageQuery(AgentQuery):
    """Selection of a part of a list: `before` is the `next` of the part before it."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    before: Annotated[str, Field(max_length=200)] | None = None


class ErrorBody(ResponseModel):
    """An error: a stable code, a message, and the request's id in the log."""

    code: str
    message: Text
    request_id: str


class ErrorResponse(ResponseModel):
    """Response to a refused request."""

    error: ErrorBody


class PlatformHealth(ResponseModel):
    """The connection of a platform; with several accounts, the worst state.

    `cause` is a code for the disconnection, such as `dns`; `since` is the time of the last change.
    """

    state: ConnectionState
    since: datetime
    cause: DisconnectCause | None = None


class HealthResponse(ResponseModel):
    """Whether messages are accepted, and which platforms are connected.

    If nothing can be stored, `status` is `unavailable` and `cause` a code such as `db_locked`. It is
    `degraded` if messages are stored but a platform is disconnected, or parts of replies are `held` until an
    operator decides about them.
    """

    status: Literal["ok", "degraded", "unavailable"] = "ok"
    cause: str | None = None
    since: datetime | None = None
    platforms: dict[str, PlatformHealth] = Field({})
    held: int = 0


class FileLimits(ResponseModel):
    """The largest size of an uploaded file, in bytes, and how many a message has."""

    max_bytes: int
    max_count: int


class AgentBody(ResponseModel):
    """A character.

    `face` is the path of its picture, null without one; `suggestions` are up to four ways to begin; `greeting` is what
    a conversation of the page begins with, where `{{user}}` is the person's name; `models` are those that write its
    answers, as far as they are known. With `has_transcription` it understands recordings, with
    `has_speech` it can answer with one.
    """

    id: UUID
    name: str
    username: str
    bio: list[str]
    topics: list[str]
    face: str | None = None
    suggestions: list[str] = Field([])
    greeting: str = ""
    models: list[str] = Field([])
    has_transcription: bool = False
    has_speech: bool = False


class Author(ResponseModel):
    """The author of a message."""

    id: UUID
    name: str
    is_agent: bool


class AttachmentBody(ResponseModel):
    """An attachment, described by its content; `url` of a file that the server holds is `/api/files/{id}`, of a file
    in the response to a command, which is not stored, a `data:` URL.

    `text` is the beginning of its transcript or of the text in it, blank until it was read; `bytes` is its size, if
    known.
    """

    kind: MediaKind
    url: str
    content_type: str
    title: str
    description: str
    problem: str
    text: str = ""
    bytes: int | None = None


class PieceBody(ResponseModel):
    """New text of a streamed reply or, if `anew` is true, all its text so far."""

    id: UUID
    text: str
    is_reset: bool = Field(serialization_alias="anew")


class OutcomeBody(ResponseModel):
    """The outcome of a message, with the reason and the rule, and both in a sentence (`headline`) once it is known.

    `took_ms` is the time until its outcome, `cost` the price of its model calls in US dollars; null if unknown.
    """

    outcome: Outcome
    reason: str
    rule: str
    receipt_id: UUID | None = None
    headline: str = ""
    took_ms: int | None = None
    cost: float | None = None


class VersionBody(ResponseModel):
    """One text of a message that was edited or answered again; the `current` one is the message's text."""

    id: UUID
    at: datetime
    text: str
    is_current: bool = Field(serialization_alias="current")


class MessageBody(ResponseModel):
    """A message; `outcome`, `receipt_id`, `took_ms` and `cost` are set for a message to the agent, if known.

    `versions` are its texts, oldest first, if it was edited or answered again; earlier ones have lost their files. A
    reply that is not complete was stopped while it was written. One of the `kind` notice says that an AI
    writes; it stands before the reply with which it was sent. One of the `kind` person was written by a person as the
    account of the bot. One of the `kind` referral names help to a person in distress; no model writes it.
    """

    id: UUID
    room_id: UUID
    author: Author
    text: str
    created_at: datetime
    in_reply_to: UUID | None
    actions: list[str]
    attachments: list[AttachmentBody]
    outcome: OutcomeBody | None = None
    versions: list[VersionBody] = Field([])
    is_complete: bool = True
    edited_at: datetime | None = None
    receipt_id: UUID | None = None
    took_ms: int | None = None
    cost: float | None = None
    kind: Literal["reply", "notice", "referral", "person"] = "reply"


class MessageResponse(ResponseModel):
    """The outcome of a message, with the replies.

    A superseded message has no replies: `superseded_by` is the message that was answered instead. `headline`, `took_ms`
    and `cost` as in OutcomeBody.
    """

    message_id: UUID
    outcome: Outcome
    reason: str
    rule: str
    replies: list[MessageBody]
    superseded_by: UUID | None
    room: str
    room_id: UUID
    receipt_id: UUID | None = None
    headline: str = ""
    took_ms: int | None = None
    cost: float | None = None


class OutcomeResponse(OutcomeBody):
    """The outcome of one message."""

    message_id: UUID
    superseded_by: UUID | None


class EditRequest(RequestModel):
    """The new text of a message."""

    text: Annotated[Text, StringConstraints(min_length=1)]


class UsedMemoryBody(ResponseModel):
    """A memory that a prompt held, and where it may be recalled; `score` is null where it was not found by meaning."""

    id: UUID
    text: str
    source_message_id: UUID | None
    author: str | None
    document: str | None
    score: float | None
    audience: MemoryScope


class StepBody(ResponseModel):
    """One step of the turn, in milliseconds since the message came in.

    `parent` is the index of the step that contains it, `call` that of the model call; `is_after` is set for what ran
    after the answer. `end_ms` is null where only the beginning is known, as of a part that was sent.
    """

    name: str
    kind: str
    start_ms: float
    end_ms: float | None
    parent: int | None
    state: str
    note: str
    call: int | None
    is_after: bool
