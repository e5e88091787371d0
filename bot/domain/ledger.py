"""The ledger: receipts of inbound events, journal steps, deliveries, model calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from bot.domain.content import Content

CANCELLED_ERROR = "cancelled"  # the error of a cancelled model call
DROPPED_CAUSE = "a person dropped it"  # of a delivery that an operator has given up
DEATH_NOTE = "the process died while only this message was under way"


class Outcome(StrEnum):
    """The state of an inbound event; every event ends in exactly one of the last seven, which are final."""

    RECEIVED = "received"
    CLAIMED = "claimed"
    ANSWERED = "answered"
    IGNORED = "ignored"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    PARKED = "parked"

    is_final: bool

    def __init__(self, value: str) -> None:
        self.is_final = value not in {"received", "claimed"}


class Rule(StrEnum):
    """The rules that decide about an event, as receipts name them.

    A receipt may also name a setting, an exception or an adapter's rule: not every rule is listed here.
    """

    OWN_MESSAGE = "own message"
    EMPTY_MESSAGE = "empty message"
    ON_EDIT = "ON_EDIT"
    RESPOND_TO_BOTS = "RESPOND_TO_BOTS"
    MUTED = "MUTED"
    PERSON_MUTED = "person muted"
    CANNOT_SEND = "cannot send"
    FOLLOWED = "FOLLOWED"
    BYPASS_TYPES = "SHOULD_RESPOND_BYPASS_TYPES"
    BYPASS_SOURCES = "SHOULD_RESPOND_BYPASS_SOURCES"
    MENTION = "mention"
    REPLY = "reply"
    NAME_CALLED = "name called"
    ADDRESSED = "addressed"
    NOT_ADDRESSED = "not addressed"
    DECISION_FAILED = "shouldRespond"
    DECIDED_RESPOND = "shouldRespond: RESPOND"
    DECIDED_IGNORE = "shouldRespond: IGNORE"
    DECIDED_NONE = "shouldRespond: NONE"
    DECIDED_STOP = "shouldRespond: STOP"
    DECISION_UNREADABLE = "shouldRespond: unreadable"
    CHOSE_SILENCE = "IGNORE"
    REPETITION = "repetition"
    LATEST_RESPONSE = "LATEST_RESPONSE"
    RESPONSE_TIMEOUT = "RESPONSE_TIMEOUT"
    RESTART = "restart"
    INTERNAL_ERROR = "internal error"
    BACKFILL = "backfill"
    EDITED = "edited"
    EDITED_LATE = "edited late"
    EDITED_IGNORED = "edited, ignored before"
    REGENERATED = "regenerated"
    STOPPED = "stopped"
    COMMAND = "command"
    COMMAND_INTERRUPTED = "command interrupted"
    REMOVED = "removed"
    ERASED = "forgotten"


GENERATED_REASONS = frozenset(
    {
        Rule.DECISION_FAILED,
        Rule.DECIDED_RESPOND,
        Rule.DECIDED_IGNORE,
        Rule.DECIDED_NONE,
        Rule.DECIDED_STOP,
        Rule.DECISION_UNREADABLE,
        Rule.CHOSE_SILENCE,
    }
)


class EditState(StrEnum):
    """Whether an event is an edit that arrived after its message had its outcome or its answer was begun.

    IGNORED edits a message that was ignored so far. REGENERATED asks for a new answer to a message that has its
    outcome.
    """

    NORMAL = "normal"
    LATE = "late"
    IGNORED = "ignored"
    REGENERATED = "regenerated"


EDIT_STATES = MappingProxyType(
    {
        Rule.EDITED_LATE.value: EditState.LATE,
        Rule.EDITED_IGNORED.value: EditState.IGNORED,
        Rule.REGENERATED.value: EditState.REGENERATED,
    }
)
PLUGIN_MESSAGE_PREFIX = "plugin:"  # of the message ids of messages that no platform has sent
COMMAND_PREFIX = "command:"  # of the ids in the keys of commands, which are no messages


@dataclass(frozen=True, slots=True)
class EventKey:
    """The identity of an inbound event, the same when a platform delivers it again.

    Two keys, both unique: the transport's own (`event_id`), and the message's (`room_id`, `message_id`,
    `revision`), which survives a transport that renumbers its events.
    """

    platform: str
    account: str
    event_id: str
    room_id: UUID
    message_id: str
    revision: int = 0


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call to a model: tokens as the provider counted them, or estimated (`is_estimate`).

    `tokens_cached` is included in `tokens_in`; `cost` is in US dollars, None if the price is unknown.
    """

    type: str
    purpose: str
    model: str
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    is_estimate: bool = False
    prompt_bytes: int = 0
    seconds: float = 0.0
    error: str = ""
    cost: float | None = None

    @property
    def is_counted(self) -> bool:
        """Whether its tokens cost something: not those of a call that failed before anything of its answer came.

        A cancelled call is counted, because the provider had started it.
        """
        return not self.has_failed or not self.is_estimate or self.tokens_out > 0

    @property
    def has_failed(self) -> bool:
        """Whether it ended with an error; a cancelled call has not failed."""
        return self.error not in ("", CANCELLED_ERROR)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of one inbound event, and why.

    `reason` is a sentence for people; `rule` is a `Rule` or the setting that decided. `supersede_count`
    counts how often a newer turn took the message over. A closed receipt is not `is_evaluated` until the
    evaluators have run.
    """

    id: UUID
    key: EventKey
    room_id: UUID
    author_id: UUID
    memory_id: UUID
    received_at: datetime
    outcome: Outcome = Outcome.RECEIVED
    reason: str = ""
    rule: str = ""
    turn_id: UUID | None = None
    superseded_by: UUID | None = None
    attempts: int = 0
    supersede_count: int = 0
    claimed_at: datetime | None = None
    closed_at: datetime | None = None
    model_calls: tuple[ModelCall, ...] = ()
    notes: tuple[str, ...] = ()
    is_evaluated: bool = True

    @property
    def deaths(self) -> int:
        """How often the process died while only this message was under way; its notes say so."""
        return sum(note.startswith(DEATH_NOTE) for note in self.notes)

    @property
    def is_reason_generated(self) -> bool:
        """Whether a model wrote the reason: it may quote other people, so it is not shown in a room."""
        return self.rule in GENERATED_REASONS

    @property
    def edit_state(self) -> EditState:
        """The state of an edit that waits for its answer; stored as the rule until another rule decides."""
        return EDIT_STATES.get(self.rule, EditState.NORMAL)


class StepState(StrEnum):
    """The progress of a paid or side-effecting step."""

    INTENDED = "intended"
    DONE = "done"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Step:
    """One paid or side-effecting step of a turn, stored so that a restart neither pays nor acts twice.

    `key` names the step within its turn ("answer:1", "action:0:FORECAST"); `result` is JSON data.
    """

    turn_id: UUID
    key: str
    kind: str
    state: StepState
    effect: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    recorded_at: datetime | None = None


class DeliveryState(StrEnum):
    """The state of an outgoing part."""

    PENDING = "pending"
    ATTEMPTING = "attempting"
    SENT = "sent"
    FAILED = "failed"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One outgoing part of a reply.

    `id` is derived from its turn, so that a replayed turn produces the same id. `seq` orders the parts of a
    room; the store assigns it when the part is committed.

    `replaces_external_id` is the platform's id of the message to edit instead of sending one. `draft_id`
    is the streamed draft that this part replaces; a draft names itself.

    `late_notice` is what `content.text` begins with where later parts have arrived before this one; it is not
    stored, and earlier attempts may have been made without it.
    """

    id: str
    turn_id: UUID
    room_id: UUID
    memory_id: UUID
    platform: str
    account: str
    target: str
    part: int
    content: Content
    created_at: datetime
    seq: int = 0
    state: DeliveryState = DeliveryState.PENDING
    attempts: int = 0
    first_attempt_at: datetime | None = None
    external_id: str = ""
    reply_to: str = ""
    cause: str = ""
    replaces_external_id: str = ""
    draft_id: str = ""
    late_notice: str = ""

    @property
    def possible_texts(self) -> tuple[str, ...]:
        """The texts under which the platform may have it: with the notice, and without."""
        return self.content.text, self.content.text.removeprefix(self.late_notice)
