"""The ledger: receipts of inbound events, journal steps, deliveries, model calls.

Results of actions and providers, the plan of a turn's actions, and the turn's state.

Costs of model calls: one entry per day, room, person, model and purpose.
"""

import hmac
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from math import inf
from secrets import token_bytes
from types import MappingProxyType
from typing import Any, Final, TypeVar
from uuid import UUID

from bot.domain.content import Content
from bot.domain.environment import UNKNOWN_AUTHORS

CANCELLED_ERROR = "cancelled"  # the error of a cancelled model call
DROPPED_CAUSE = "a person dropped it"  # of a delivery that an operator has given up


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
    TAKEN_OVER = "taken over"
    MATURE_CONTENT = "content: mature"
    CANNOT_SEND = "cannot send"
    FOLLOWED = "FOLLOWED"
    ROOM_ANSWER = "room: answer"
    ROOM_BUDGET = "room: budget"
    BYPASS_TYPES = "SHOULD_RESPOND_BYPASS_TYPES"
    BYPASS_SOURCES = "SHOULD_RESPOND_BYPASS_SOURCES"
    MENTION = "mention"
    REPLY = "reply"
    NAME_CALLED = "name called"
    ADDRESSED = "addressed"
    NOT_ADDRESSED = "not addressed"
    DECISION_FAILED = "shouldRespond"
    DECIDED_RESPOND = "shouldRespond: RESPOND"
    DECIDED_REACT = "shouldRespond: REACT"
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
    REGENERATED = "regenerated"
    STOPPED = "stopped"
    COMMAND = "command"
    COMMAND_INTERRUPTED = "command interrupted"
    REMOVED = "removed"
    ERASED = "forgotten"
    NOT_READ = "not_read"
    FILTERED = "filter"
    DRAFT = "draft"
    APPROVAL_TIMEOUT = "APPROVAL_TIMEOUT"


GENERATED_REASONS = frozenset(
    {
        Rule.DECISION_FAILED,
        Rule.DECIDED_RESPOND,
        Rule.DECIDED_REACT,
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


class EventOrigin(StrEnum):
    """Who made an inbound event: a platform, a plugin (a message that no platform has sent), or a command."""

    PLATFORM = "platform"
    PLUGIN = "plugin"
    COMMAND = "command"


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
    evaluators have run. `crash_count` counts how often the process died while only this message was under way.
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
    crash_count: int = 0
    edit_state: EditState = EditState.NORMAL
    origin: EventOrigin = EventOrigin.PLATFORM

    @property
    def cost(self) -> float | None:
        """What the model calls with a known price have cost, in US dollars; None without any."""
        costs = [call.cost for call in self.model_calls if call.cost is not None]
        return sum(costs) if costs else None

    @property
    def seconds(self) -> float | None:
        """The time from the arrival of the event to its outcome, in seconds; None while it is open."""
        return None if self.closed_at is None else (self.closed_at - self.received_at).total_seconds()

    @property
    def is_reason_generated(self) -> bool:
        """Whether a model wrote the reason: it may quote other people, so it is not shown in a room."""
        return self.rule in GENERATED_REASONS


class StepState(StrEnum):
    """The progress of a paid or side-effecting step."""

    INTENDED = "intended"
    DONE = "done"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Step:
    """One paid or side-effecting step of a turn, stored so that a restart neither pays nor acts twice.

    `key` names the step within its turn ("answer:1", "action:0:FORECAST"); `result` is JSON data. `subject_ids` are
    the room and the people whose words it holds: it is deleted with them.
    """

    turn_id: UUID
    key: str
    kind: str
    state: StepState
    effect: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    recorded_at: datetime | None = None
    subject_ids: frozenset[UUID] = frozenset()


class DeliveryState(StrEnum):
    """The state of an outgoing part."""

    PENDING = "pending"
    ATTEMPTING = "attempting"
    SENT = "sent"
    FAILED = "failed"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"


class DeliveryKind(StrEnum):
    """What an outgoing part is: of a reply or a post, or a text of the operator's that no model writes.

    A NOTICE says that an AI writes here; a REFERRAL names help to a person in distress. A REACTION is an emoji at the
    message `reply_to`; `replaces_external_id` is the id of the delivery of the reaction that it replaces, or removes
    where it has no text. A THREAD opens a thread with the text as its name, at the message `reply_to`; its
    `external_id` is that of the thread's room.
    """

    REPLY = "reply"
    NOTICE = "notice"
    REFERRAL = "referral"
    REACTION = "reaction"
    THREAD = "thread"

    @property
    def is_gesture(self) -> bool:
        """Whether it is no text of a conversation: it is made again where its outcome is unknown, and has no draft."""
        return self in (DeliveryKind.REACTION, DeliveryKind.THREAD)


@dataclass(frozen=True, slots=True)
class Disclosure:
    """The last notice or referral that a person got: when, in which room, and as which delivery."""

    entity_id: UUID
    kind: DeliveryKind
    at: datetime
    room_id: UUID
    delivery_id: str


@dataclass(frozen=True, slots=True)
class CareCount:
    """How many referrals there were on a day (UTC) for one category of distress."""

    day: date
    category: str
    count: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """One outgoing part of a reply.

    `id` is derived from its turn, so that a replayed turn produces the same id. `seq` orders the parts of a
    room; the store assigns it when the part is committed.

    `replaces_external_id` is the platform's id of the message to edit instead of sending one. `draft_id`
    is the streamed draft that this part replaces; a draft names itself.

    `next_attempt_at` is when it is tried again at the earliest, while it waits between two attempts.

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
    next_attempt_at: datetime | None = None
    external_id: str = ""
    reply_to: str = ""
    cause: str = ""
    replaces_external_id: str = ""
    draft_id: str = ""
    late_notice: str = ""
    kind: DeliveryKind = DeliveryKind.REPLY

    @property
    def possible_texts(self) -> tuple[str, ...]:
        """The texts under which the platform may have it: with the notice, and without."""
        return self.content.text, self.content.text.removeprefix(self.late_notice)


OUTCOME_UNKNOWN: Final = "outcome unknown"


# In the values of providers and actions: the pages that an answer may be based on. A page that was read is a mapping
# with its `site`, a result of a search one with its `number` as text and its `url`.
SOURCES_KEY = "webSources"


@dataclass(frozen=True, slots=True)
class ProviderResult:
    """What a provider returns: `text` for the prompt, `values` for templates, `data` for code.

    `data["memories"]` are the memories that it shows, for the receipt: pairs of an id and a score or None.

    `authors` are the ids of the people who wrote what is in it, names and titles included: empty if nothing is
    by people in rooms, ANYBODY among them if it is not known. None means unknown.
    """

    text: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    authors: Collection[UUID] | None = None

    @property
    def known_authors(self) -> Collection[UUID]:
        """Who wrote what a prompt shows of it; ANYBODY where that is unknown."""
        if not (self.text or self.values):
            return ()
        return UNKNOWN_AUTHORS if self.authors is None else self.authors


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What an action returns: `text` for the model, `values` for templates, `data` for later actions.

    `authors` are the ids of the people who wrote what is in it; None means unknown, but for bundled plugins.
    An `error` that begins with OUTCOME_UNKNOWN means that the action may have been carried out. `is_reported` is set
    by the pipeline for a successful action that replied: people have read what became of it. `is_error_internal` is
    set by the pipeline too, where the action did not return the error: an exception's text is the operator's alone.
    """

    success: bool = True
    text: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    action: str = ""
    authors: Collection[UUID] | None = field(default=None, compare=False)
    is_reported: bool = field(default=False, compare=False)
    is_error_internal: bool = field(default=False, compare=False)

    @property
    def is_outcome_unknown(self) -> bool:
        """Whether the action failed and may have been carried out all the same."""
        return not self.success and self.error.startswith(OUTCOME_UNKNOWN)


@dataclass(frozen=True, slots=True)
class ActionPreview:
    """What a call of an action would do: `text`, a sentence for the people who confirm it.

    `names` holds, for each target, the names of which the asker's own message must contain one. A confirmed
    call runs with `arguments` in place of the model's: ids in place of names, which may change meanwhile. One
    that `is_harmless` runs at once.
    """

    text: str
    names: tuple[tuple[str, ...], ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    is_harmless: bool = False


class StepStatus(StrEnum):
    """The status of one action of a plan."""

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(slots=True)
class PlanStep:
    """One action of a plan."""

    action: str
    status: StepStatus = StepStatus.PENDING
    error: str = ""
    result: ActionResult | None = None

    @property
    def is_pending(self) -> bool:
        """Whether the step has not run yet."""
        return self.status is StepStatus.PENDING


@dataclass(slots=True)
class ActionPlan:
    """The actions named by one model answer, in order; `current_step` counts from 0."""

    thought: str
    steps: list[PlanStep]
    current_step: int = 0

    @property
    def total_steps(self) -> int:
        """The number of actions in the plan."""
        return len(self.steps)

    def start_step(self, action: str) -> None:
        """Append an action that was chosen later, and make it the current step."""
        self.steps.append(PlanStep(action))
        self.current_step = len(self.steps) - 1

    def finish_step(self, result: ActionResult) -> None:
        """Store the result of the current action."""
        step = self.steps[self.current_step]
        step.result, step.error = result, result.error
        step.status = StepStatus.COMPLETED if result.success else StepStatus.FAILED


@dataclass(frozen=True, slots=True)
class ProviderFailure:
    """A provider that returned nothing, and why; shown in the receipt."""

    name: str
    cause: str


@dataclass(slots=True)
class State:
    """Everything composed for one turn.

    `results` holds each provider's result by name, so that none runs twice in a turn. `text` and `values`
    come from the last composition, of the `composed_providers` in their order. `data` is shared between
    stages (`actionPlan`, `actionResults`, `actionParams`, `workingMemory`, as in elizaOS); its `providers` are the
    results of the composed providers by name. `is_shortened`
    means that the prompt was too long for a model. `result_authors` are the authors of the results of actions
    that the last composition showed. `max_message_length` is the length of a message to answer in a prompt, in
    characters.
    """

    results: dict[str, ProviderResult] = field(default_factory=dict)
    failures: list[ProviderFailure] = field(default_factory=list)
    text: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    composed_providers: tuple[str, ...] = ()
    is_shortened: bool = False
    max_message_length: int = 32_768
    result_authors: frozenset[UUID] = frozenset()

    def invalidate(self, *names: str) -> None:
        """Drop the results of these providers, so that they run again at the next composition."""
        for name in names:
            self.results.pop(name, None)

    def authors(self) -> set[UUID]:
        """Return who wrote what a model has read in this turn."""
        authors = set(self.result_authors)
        for result in self.results.values():
            authors.update(result.known_authors)
        return authors

    @property
    def providers(self) -> Mapping[str, ProviderResult]:
        """The results so far, by provider name."""
        return self.results


K = TypeVar("K")
CostKey = tuple[date, UUID | None, UUID | None, str, str]


class CostDimension(StrEnum):
    """What costs can be summed by; the values are names of fields of `CostEntry`."""

    DAY = "day"
    ROOM = "room_id"
    PERSON = "person_id"
    MODEL = "model"
    PURPOSE = "purpose"


@dataclass(frozen=True, slots=True)
class CostEntry:
    """The model calls of one day (in UTC) for one person in one room, by one model, for one purpose.

    Room and person are None for calls that belong to no message, such as tasks and posts. `cost` is in US
    dollars and covers all calls but the `unpriced_calls`. The tokens of `estimated_calls` were not counted by
    the provider. `failed_calls` cost nothing unless a part of the answer came. The purpose is empty for what was
    stored before purposes were.
    """

    day: date
    model: str
    room_id: UUID | None = None
    person_id: UUID | None = None
    calls: int = 0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    unpriced_calls: int = 0
    estimated_calls: int = 0
    failed_calls: int = 0
    purpose: str = ""

    @property
    def key(self) -> CostKey:
        """The fields that identify the entry: day, room, person, model, purpose."""
        return (self.day, self.room_id, self.person_id, self.model, self.purpose)

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.tokens_in + self.tokens_out

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON: dollars with nine decimals, and counts."""
        return {
            "usd": round(self.cost, 9),
            "calls": self.calls,
            "failed_calls": self.failed_calls,
            "unpriced_calls": self.unpriced_calls,
            "estimated_calls": self.estimated_calls,
            "tokens_in": self.tokens_in,
            "tokens_cached": self.tokens_cached,
            "tokens_out": self.tokens_out,
        }

    def negated(self) -> "CostEntry":
        """Return an entry that takes this one's figures out of a sum."""
        return replace(
            self,
            calls=-self.calls,
            tokens_in=-self.tokens_in,
            tokens_cached=-self.tokens_cached,
            tokens_out=-self.tokens_out,
            cost=-self.cost,
            unpriced_calls=-self.unpriced_calls,
            estimated_calls=-self.estimated_calls,
            failed_calls=-self.failed_calls,
        )

    def plus(self, other: "CostEntry") -> "CostEntry":
        """Return an entry with the figures of both; the key is this entry's."""
        return CostEntry(
            self.day,
            self.model,
            self.room_id,
            self.person_id,
            calls=self.calls + other.calls,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_cached=self.tokens_cached + other.tokens_cached,
            tokens_out=self.tokens_out + other.tokens_out,
            cost=self.cost + other.cost,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
            estimated_calls=self.estimated_calls + other.estimated_calls,
            failed_calls=self.failed_calls + other.failed_calls,
            purpose=self.purpose,
        )


@dataclass(slots=True)
class CostUsage:
    """An amount of dollars and tokens."""

    cost: float = 0.0
    tokens: int = 0

    @property
    def is_some(self) -> bool:
        """Whether it is more than nothing; less than a billionth of a dollar is nothing."""
        return self.tokens > 0 or self.cost > 1e-9

    def add(self, other: "CostUsage", times: int = 1) -> None:
        """Add another amount this many times."""
        self.cost += other.cost * times
        self.tokens += other.tokens * times


@dataclass(frozen=True, slots=True)
class ErasedUsage:
    """What people had used of the limits of a day (in UTC) before their data was erased, so that it still counts.

    Each is known by a hash of their id with a random key, which is kept until the day is over.
    """

    day: date
    key: bytes = field(default_factory=lambda: token_bytes(32), repr=False)
    usage: Mapping[str, CostUsage] = field(default_factory=dict)

    @property
    def expires_at(self) -> datetime:
        """The end of the day, when all of it is deleted."""
        return datetime.combine(self.day + timedelta(days=1), time(), UTC)

    def of(self, person_id: UUID | None) -> CostUsage:
        """Return what a person had used; nothing for None."""
        usage = self.usage.get(self._hash(person_id)) if person_id is not None and self.usage else None
        return CostUsage() if usage is None else replace(usage)

    def plus(self, person_id: UUID, usage: CostUsage) -> "ErasedUsage":
        """Return it with what a person has used since the last erasure."""
        total = self.of(person_id)
        total.add(usage)
        return replace(self, usage={**self.usage, self._hash(person_id): total})

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for `from_json`."""
        usage = {name: [amount.cost, amount.tokens] for name, amount in self.usage.items()}
        return {"day": self.day.isoformat(), "key": self.key.hex(), "usage": usage}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None, day: date) -> "ErasedUsage":
        """Return what was stored for a day; with a new key and no usage where nothing was."""
        if stored is None or stored["day"] != day.isoformat():
            return cls(day)
        usage = {name: CostUsage(*amounts) for name, amounts in stored["usage"].items()}
        return cls(day, bytes.fromhex(stored["key"]), usage)

    def _hash(self, person_id: UUID) -> str:
        return hmac.digest(self.key, person_id.bytes, "sha256").hex()


class LimitScope(StrEnum):
    """Who shares a limit."""

    ALL = "in all"
    ROOM = "for this room"
    PERSON = "for this person"


@dataclass(frozen=True, slots=True)
class Limit:
    """A daily limit (days in UTC) in dollars or tokens, and the setting that defines it."""

    setting: str
    scope: LimitScope
    is_money: bool
    maximum: float

    def amount_of(self, usage: CostUsage) -> float:
        """Return the part of a usage that counts against this limit."""
        return usage.cost if self.is_money else usage.tokens

    def __str__(self) -> str:
        amount = f"${self.maximum:g}" if self.is_money else f"{self.maximum:,.0f} tokens"
        return f"{amount} a day {self.scope}"


class DegradeStep(StrEnum):
    """What answers are like while little is left of a limit, from the first step to the last."""

    HISTORY = "history"  # prompts show a shorter conversation and less of what was told before
    SMALL = "small"  # the small model writes, from such a prompt
    OFFLINE = "offline"  # phrases without a model
    SILENT = "silent"


DEGRADE_NOTES = MappingProxyType(
    {
        DegradeStep.HISTORY: "a shorter history",
        DegradeStep.SMALL: "the small model and a shorter history",
        DegradeStep.OFFLINE: "phrases without a model",
        DegradeStep.SILENT: "no answer",
    }
)


@dataclass(frozen=True, slots=True)
class Degradation:
    """A step that is in effect, and the limit of which `share` is used, 1 for all of it.

    With `is_unpaid` the step is in effect because what was left did not pay for a call.
    """

    step: DegradeStep
    setting: str
    share: float
    is_unpaid: bool = False

    @property
    def is_evaluated(self) -> bool:
        """Whether evaluators still run, and posts are still written."""
        return self.step is DegradeStep.HISTORY

    def __str__(self) -> str:
        rest = ", and the rest did not pay for more" if self.is_unpaid else ""
        return f"{int(self.share * 100 + 1e-6)} % of {self.setting} used{rest}: {DEGRADE_NOTES[self.step]}"


@dataclass(frozen=True, slots=True)
class CostHold:
    """What one process wants to hold of a day's limits, beside what is spent and what other processes hold.

    The limits are those of a scope, with the id of its room or person. `running` is reserved for calls that run,
    `wanted` for one more call, and `ahead` is asked for so that later calls need not ask.
    """

    scope: LimitScope
    key: UUID | None
    running: CostUsage
    wanted: CostUsage | None = None
    ahead: CostUsage = field(default_factory=CostUsage)
    max_cost: float = inf
    max_tokens: float = inf


@dataclass(frozen=True, slots=True)
class HeldCosts:
    """What is spent of the limits of a `CostHold`, what other processes hold, and what this one holds now."""

    spent: CostUsage
    others: CostUsage
    held: CostUsage


def sum_costs(entries: Iterable[CostEntry], key: Callable[[CostEntry], K]) -> dict[K, CostEntry]:
    """Sum the entries that have the same key; in a sum only that key and the figures have a meaning."""
    totals: dict[K, CostEntry] = {}
    for entry in entries:
        total = totals.get(key(entry))
        totals[key(entry)] = entry if total is None else total.plus(entry)
    return totals


def sort_sums(entries: Iterable[CostEntry], by: Collection[CostDimension]) -> list[CostEntry]:
    """Return the sums by these dimensions, the highest cost first; by days, these in order."""
    sums = sum_costs(entries, lambda entry: tuple(getattr(entry, dimension) for dimension in by)).values()
    ordered = sorted(sums, key=lambda entry: (-entry.cost, -entry.tokens))
    return sorted(ordered, key=lambda entry: entry.day) if CostDimension.DAY in by else ordered
