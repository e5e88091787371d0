"""What requests and answers look like; the API's documentation is made of these."""

from datetime import date, datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from bot import ChannelType, MediaKind, Outcome
from bot.platform import ConnectionState, DisconnectCause

LINE_PATTERN = r"^[^\x00-\x1f\x7f\u2028\u2029]+$"
PRINTABLE_PATTERN = r"^[\x20-\x7e]+$"
URL_PATTERN = r"^https?://[^\s\x00-\x1f\x7f]+$"


def _replace_surrogates(text: str) -> str:
    """Replace halves of characters, which no file and no database takes."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


Text = Annotated[str, AfterValidator(_replace_surrogates)]
RoomName = Annotated[str, StringConstraints(strip_whitespace=True, max_length=120, pattern=LINE_PATTERN)]
UserName = Annotated[str, StringConstraints(strip_whitespace=True, max_length=64, pattern=LINE_PATTERN)]
AgentName = Annotated[str, StringConstraints(strip_whitespace=True, max_length=200, pattern=LINE_PATTERN)]
Key = Annotated[str, StringConstraints(max_length=200, pattern=PRINTABLE_PATTERN)]


class RequestModel(BaseModel):
    """What a client sends: nothing is guessed, and nothing unknown is passed over."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class ResponseModel(BaseModel):
    """What a client is told."""

    model_config = ConfigDict(frozen=True)


class AttachmentRequest(RequestModel):
    """Something that comes with a message, by its address."""

    url: Annotated[str, StringConstraints(max_length=2048, pattern=URL_PATTERN)]
    content_type: Annotated[str, StringConstraints(max_length=100, pattern=PRINTABLE_PATTERN)] | None = None
    title: Annotated[Text, StringConstraints(max_length=200)] = ""


class MessageRequest(RequestModel):
    """A message to an agent.

    `room` and `user` are names of your own choosing: the same names mean the same room and the same
    person. What is sent twice with one `idempotency_key` is answered once.
    """

    text: Text
    room: RoomName = "api"
    user: UserName = "guest"
    idempotency_key: Key | None = None
    stream: bool = False
    attachments: list[AttachmentRequest] = Field(default_factory=list, max_length=10)


class Query(BaseModel):
    """What may stand behind the question mark of an address; everything there is text."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class RoomsQuery(Query):
    """Which rooms are wanted."""

    agent: AgentName | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class MessagesQuery(Query):
    """How many of a room's messages are wanted."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50


class ReceiptsQuery(Query):
    """Which receipts are wanted."""

    room: UUID | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class OutboxQuery(Query):
    """Which parts are wanted."""

    agent: AgentName | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class CostsQuery(Query):
    """What costs are wanted: of how many days, and summed by what."""

    agent: AgentName | None = None
    days: Annotated[int, Field(ge=1, le=400)] = 7
    by: Literal["day", "room", "person", "model"] = "day"


class ErrorBody(ResponseModel):
    """Why there is no answer: a stable code, a sentence, and the id under which the log knows it."""

    code: str
    message: Text
    request_id: str


class ErrorResponse(ResponseModel):
    """What every refused request is answered with."""

    error: ErrorBody


class PlatformHealth(ResponseModel):
    """How a platform is connected; of several accounts, the one that is worst off.

    `cause` says in a word why it is not, such as `dns`, and `since` from when on that has been so.
    """

    state: ConnectionState
    since: datetime
    cause: DisconnectCause | None = None


class HealthResponse(ResponseModel):
    """That the server is there, whether it takes messages in, and which platforms are connected.

    Where nothing can be kept just now, `cause` says why in a word, such as `db_locked`. It is `degraded`
    where everything is kept, and a platform is cut off.
    """

    status: Literal["ok", "degraded", "unavailable"] = "ok"
    cause: str | None = None
    since: datetime | None = None
    platforms: dict[str, PlatformHealth] = {}


class AgentBody(ResponseModel):
    """A character that can be talked to."""

    id: UUID
    name: str
    username: str
    bio: list[str]
    topics: list[str]


class AgentsResponse(ResponseModel):
    """Everybody who lives here."""

    agents: list[AgentBody]


class RoomBody(ResponseModel):
    """A place in which an agent talks, on any platform."""

    id: UUID
    agent_id: UUID
    name: str
    type: ChannelType
    platform: str
    external_id: str


class RoomsResponse(ResponseModel):
    """Rooms, agent by agent, the most recently active first."""

    rooms: list[RoomBody]


class Author(ResponseModel):
    """Who wrote a message."""

    id: UUID
    name: str
    is_agent: bool


class AttachmentBody(ResponseModel):
    """Something that came with a message, and what was read in it."""

    kind: MediaKind
    url: str
    content_type: str
    title: str
    description: str
    problem: str


class PieceBody(ResponseModel):
    """What came to a reply while it is being written or, with `anew`, all that is written of it so far."""

    id: UUID
    text: str
    anew: bool


class OutcomeBody(ResponseModel):
    """Where a message stands, and why."""

    outcome: Outcome
    reason: str
    rule: str


class MessageBody(ResponseModel):
    """A message. `outcome` is that of a message to the agent, where it is known."""

    id: UUID
    room_id: UUID
    author: Author
    text: str
    created_at: datetime
    in_reply_to: UUID | None
    actions: list[str]
    attachments: list[AttachmentBody]
    outcome: OutcomeBody | None = None


class MessagesResponse(ResponseModel):
    """The last messages of a room, oldest first."""

    messages: list[MessageBody]


class MessageResponse(ResponseModel):
    """What became of a message.

    A superseded one has no replies: `superseded_by` is the message that was answered in its stead.
    """

    message_id: UUID
    outcome: Outcome
    reason: str
    rule: str
    replies: list[MessageBody]
    superseded_by: UUID | None
    room: str
    room_id: UUID


class CallBody(ResponseModel):
    """One call to a model. `cost` is in US dollars, null where the model's price is not known."""

    type: str
    purpose: str
    model: str
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    is_estimate: bool
    cost: float | None
    seconds: float
    error: str


class ReceiptBody(ResponseModel):
    """What became of one message that came in, why, and what it took.

    `seconds` is how long, in all; `cost` that of the calls whose price is known, null where there is none.
    """

    id: UUID
    agent_id: UUID
    message_id: UUID
    room_id: UUID
    author_id: UUID
    platform: str
    outcome: Outcome
    reason: str
    rule: str
    superseded_by: UUID | None
    received_at: datetime
    claimed_at: datetime | None
    closed_at: datetime | None
    seconds: float | None
    attempts: int
    carried: int
    tokens_in: int
    tokens_out: int
    cost: float | None
    model_calls: list[CallBody]
    notes: list[str]


class ReceiptsResponse(ResponseModel):
    """Receipts, newest first."""

    receipts: list[ReceiptBody]


class CostBody(ResponseModel):
    """What some model calls have come to: `usd` is that of all but the unpriced and the failed ones."""

    usd: float
    calls: int
    failed_calls: int
    unpriced_calls: int
    estimated_calls: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int


class SumBody(CostBody):
    """A sum; `key` is its day, its model, or the id of its room or person, null where it is nobody's."""

    key: str | None


class CostsResponse(ResponseModel):
    """What models have cost from one day to another (in UTC), in all and in sums.

    Days stand in order, all else with the dearest first.
    """

    first: date
    last: date
    total: CostBody
    sums: list[SumBody]


class DeliveryBody(ResponseModel):
    """One outgoing part of a reply, and whether it arrived."""

    id: str
    message_id: UUID
    part: int
    state: str
    attempts: int
    created_at: datetime
    first_attempt_at: datetime | None
    cause: str


class UndeliveredPartBody(DeliveryBody):
    """An outgoing part that has not arrived: it waits, is under way, is held (`unknown`) or has failed."""

    agent_id: UUID
    room_id: UUID
    room: str
    platform: str
    text: str


class OutboxResponse(ResponseModel):
    """What has not arrived, agent by agent, in the order in which it leaves."""

    parts: list[UndeliveredPartBody]


class DecisionResponse(UndeliveredPartBody):
    """A part as it stands after a decision about it, and a word about that."""

    note: str


class ReceiptResponse(ReceiptBody):
    """A receipt with the message itself, and everything that was said to it."""

    message: MessageBody | None
    replies: list[MessageBody]
    deliveries: list[DeliveryBody]
