"""The sentence that tells the outcome of a message, and the checks that led to it; made from its receipt alone.

What a turn notes while it runs, for the receipt: its steps, its prompts, the memories it used.

A running turn only appends tuples; they become JSON once it has ended, and steps and sections when they are read.
Times are on the monotonic clock, in seconds.
"""

import logging
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from hashlib import blake2b
from operator import attrgetter
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from pydantic import TypeAdapter

from bot.domain.character import ActionSpec, Effect
from bot.domain.content import Content
from bot.domain.environment import ChannelType, Entity, ParticipantState, Room, World
from bot.domain.filters import FILTER_KEY, FilterDecision
from bot.domain.ledger import (
    ActionResult,
    Degradation,
    ModelCall,
    Outcome,
    ProviderResult,
    Receipt,
    Rule,
    Step,
    StepState,
)
from bot.domain.memory import Memory
from bot.user_texts import format_dollars, user_text

logger = logging.getLogger(__name__)

# The texts of rules, below `receipt` in the catalogue. The reason of any other rule is told in its own words,
# unless a model wrote it or it is that of a failure: those may quote other people or name what is private.
CAUSES: Mapping[Outcome, Mapping[str, str]] = MappingProxyType(
    {
        Outcome.ANSWERED: {
            Rule.MENTION: "mention",
            Rule.REPLY: "reply",
            Rule.NAME_CALLED: "name_called",
            Rule.FOLLOWED: "followed",
            Rule.ROOM_ANSWER: "room_answer",
            Rule.BYPASS_TYPES: "room_type",
            Rule.BYPASS_SOURCES: "source",
            Rule.DECIDED_RESPOND: "decided_respond",
            Rule.DECIDED_REACT: "decided_react",
            Rule.RESTART: "resumed",
            Rule.REGENERATED: "regenerated",
        },
        Outcome.IGNORED: {
            Rule.OWN_MESSAGE: "own_message",
            Rule.NOT_READ: "not_read",
            Rule.EMPTY_MESSAGE: "empty",
            Rule.EDITED: "unchanged_edit",
            Rule.RESPOND_TO_BOTS: "bot",
            Rule.MUTED: "muted",
            Rule.ROOM_ANSWER: "room_silent",
            Rule.ROOM_BUDGET: "room_budget",
            Rule.PERSON_MUTED: "person_muted",
            Rule.MATURE_CONTENT: "mature_content",
            Rule.CANNOT_SEND: "cannot_send",
            Rule.DECIDED_IGNORE: "decided_ignore",
            Rule.DECIDED_NONE: "decided_ignore",
            Rule.DECIDED_STOP: "decided_stop",
            Rule.DECISION_UNREADABLE: "decision_unreadable",
            Rule.CHOSE_SILENCE: "chose_silence",
            Rule.REPETITION: "repetition",
            "MESSAGES_PER_PERSON": "limit_person",
            "MESSAGES_PER_ROOM": "limit_room",
            "MESSAGES_PER_WORLD": "limit_world",
        },
        Outcome.FAILED: {
            Rule.RESPONSE_TIMEOUT: "timeout",
            Rule.DECISION_FAILED: "no_decision",
            Rule.RESTART: "deaths",
            Rule.INTERNAL_ERROR: "internal_error",
            "ModelUnavailable": "no_model",
            "ModelBusy": "no_model",
            "ModelRefused": "refused",
            "PromptTooLong": "too_long",
            "NoAnswer": "no_answer",
        },
        Outcome.CANCELLED: {Rule.REMOVED: "removed", Rule.ERASED: "erased", Rule.EDITED: "edited"},
        Outcome.EXPIRED: {Rule.RESTART: "too_old", Rule.BACKFILL: "was_offline", Rule.EDITED: "old_edit"},
        Outcome.PARKED: {"restore": "parked", Rule.DRAFT: "draft"},
    }
)
STOPPED_RULE = "stopped"
COMMAND_RULE = "a command"  # of a message that a command has answered already
# The rules of kinds of room in which every message is answered, and what a message there was.
ROOM_CAUSES: Mapping[str, str] = MappingProxyType(
    {f"room type {kind}": {"API": "api", "SELF": "self"}.get(kind.value, "direct") for kind in ChannelType}
)
BUDGETS = frozenset(f"BUDGET_{unit}{scope}" for unit in ("USD", "TOKENS") for scope in ("", "_PER_ROOM", "_PER_PERSON"))
AMOUNT = re.compile(r"(?:\$([0-9.]+(?:e[+-]?[0-9]+)?)|([0-9,]+ tokens)) a day")  # as a limit writes itself
LIMITS = frozenset({"MESSAGES_PER_PERSON", "MESSAGES_PER_ROOM", "MESSAGES_PER_WORLD"})
COMMAND_SENTENCES: Mapping[tuple[Outcome, str], str] = MappingProxyType(
    {
        (Outcome.ANSWERED, Rule.COMMAND): "answered",
        (Outcome.IGNORED, Rule.COMMAND): "ignored",
        (Outcome.FAILED, Rule.COMMAND): "failed",
        (Outcome.FAILED, Rule.COMMAND_INTERRUPTED): "interrupted",
    }
)
# Sentences that do not begin as others of their outcome do.
SENTENCES: Mapping[tuple[Outcome, str], str] = MappingProxyType(
    {
        (Outcome.SUPERSEDED, Rule.EDITED): "replaced",
        (Outcome.CANCELLED, STOPPED_RULE): "stopped",
        (Outcome.IGNORED, COMMAND_RULE): "command",
    }
)


def describe_receipt(receipt: Receipt, agent_name: str) -> str:
    """Return one sentence about the outcome of a message, without a full stop; it may be shown in its room."""
    if (name := COMMAND_SENTENCES.get((receipt.outcome, receipt.rule))) is not None:
        return user_text(f"receipt.command.{name}", command=receipt.reason)
    sentence = SENTENCES.get((receipt.outcome, receipt.rule))
    if sentence is not None:
        return user_text(f"receipt.sentence.{sentence}")
    opening = user_text(f"receipt.opening.{receipt.outcome}")
    cause = _describe_cause(receipt, agent_name)
    return f"{opening}: {cause}" if cause else opening


def _describe_cause(receipt: Receipt, agent_name: str) -> str:
    if receipt.outcome is Outcome.SUPERSEDED or not receipt.outcome.is_final:
        return ""
    if (cause := ROOM_CAUSES.get(receipt.rule)) is not None:
        return user_text(f"receipt.cause.{cause}", name=agent_name)
    if receipt.rule in BUDGETS and (amount := _spent_amount(receipt.reason)):
        return user_text("receipt.cause.budget", amount=amount)
    key = CAUSES.get(receipt.outcome, {}).get(receipt.rule)
    if key is not None:
        return user_text(f"receipt.cause.{key}", name=agent_name)
    if receipt.outcome is Outcome.FAILED:
        return user_text("receipt.cause.failure")
    if receipt.is_reason_generated:
        return user_text("receipt.cause.model_decision")
    return receipt.reason.rstrip(".")


def _spent_amount(reason: str) -> str:
    """Return the daily limit that a reason names; empty if it names none."""
    match = AMOUNT.search(reason)
    if match is None:
        return ""
    dollars, tokens = match.groups()
    return format_dollars(float(dollars)) if dollars else str(tokens)


@dataclass(frozen=True, slots=True)
class GateCheck:
    """One check of whether to answer: what it looks at, what it found, and whether it decided."""

    check: str
    result: str
    is_deciding: bool = False


PLATFORM_CHECK = "platform"
# In the order in which `should_respond` makes them: the name of each check, and the rules that it decides by, each
# with the name of its result below `receipt.result` in the catalogue.
CHECKS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("own_message", {Rule.OWN_MESSAGE: "yes"}),
    ("not_read", {Rule.NOT_READ: "yes"}),
    ("late_edit", {Rule.ON_EDIT: "yes"}),
    (PLATFORM_CHECK, {}),
    ("empty", {Rule.EMPTY_MESSAGE: "yes"}),
    ("bot", {Rule.RESPOND_TO_BOTS: "yes"}),
    ("muted", {Rule.MUTED: "muted", Rule.PERSON_MUTED: "person", Rule.TAKEN_OVER: "taken_over"}),
    ("room_answer", {Rule.ROOM_ANSWER: "room_answer"}),
    ("age", {Rule.MATURE_CONTENT: "mature"}),
    ("sending", {Rule.CANNOT_SEND: "waits"}),
    ("budget", dict.fromkeys((*BUDGETS, Rule.ROOM_BUDGET), "spent")),
    ("limits", dict.fromkeys(LIMITS, "exceeded")),
    ("room_type", {Rule.BYPASS_TYPES: "listed", **ROOM_CAUSES}),
    ("source", {Rule.BYPASS_SOURCES: "listed"}),
    ("addressed", {Rule.MENTION: "mentioned", Rule.REPLY: "replied", Rule.NAME_CALLED: "called"}),
    ("followed", {Rule.FOLLOWED: "yes"}),
    ("talk", {Rule.ADDRESSED: "meant", Rule.NOT_ADDRESSED: "not_meant"}),
    (
        "model",
        {
            Rule.DECIDED_RESPOND: "respond",
            Rule.DECIDED_REACT: "react",
            Rule.DECIDED_IGNORE: "ignore",
            Rule.DECIDED_NONE: "ignore",
            Rule.DECIDED_STOP: "stop",
            Rule.DECISION_UNREADABLE: "unreadable",
            Rule.DECISION_FAILED: "no_answer",
        },
    ),
)
PASSED = MappingProxyType({"budget": "within", "limits": "within", "talk": "unclear"})  # all others pass as "no"
GATE_RULES: Mapping[str, str] = MappingProxyType({rule: name for name, rules in CHECKS for rule in rules})
# Rules of silence that apply once it was decided to answer.
LATER_RULES = frozenset({Rule.CHOSE_SILENCE, Rule.REPETITION, Rule.EDITED})


def list_checks(receipt: Receipt, agent_name: str, gate_rule: str = "") -> list[GateCheck]:
    """Return the checks of whether to answer a message in their order, up to the one that decided.

    `gate_rule` is the rule that decided whether to answer, where the turn recorded it: the receipt's own may be that
    of something later. Empty where it is not known, or no check was made.
    """
    rule = gate_rule or receipt.rule
    deciding = GATE_RULES.get(rule, "")
    if not deciding and receipt.outcome is Outcome.IGNORED and rule not in LATER_RULES:
        deciding = PLATFORM_CHECK  # its rules have the names that the adapter chose
    if not deciding:
        return []
    checks = []
    for name, rules in CHECKS:
        label = user_text(f"receipt.check.{name}", name=agent_name)
        if name == deciding:
            result = user_text(f"receipt.result.{rules[rule]}") if rule in rules else rule
            checks.append(GateCheck(label, result, is_deciding=True))
            break
        checks.append(GateCheck(label, user_text(f"receipt.result.{PASSED.get(name, 'no')}")))
    return checks


TRACE_KEY = "trace"  # of the step in which it is stored
REPLAY_KEY = "replay"  # in that step: the replay record, compressed
MEMORIES_KEY = "memories"  # in the data of a provider: pairs of a memory's id and its score or None
ALL_PROVIDERS = "Providers"  # the step of all providers that are composed together
SEPARATOR = "\n\n"  # between the texts of providers
MAX_PROMPT_LENGTH = 100_000  # characters
MAX_PROMPTS = 20
MAX_SPANS = 200
MAX_MEMORIES = 100


class SentTool(Protocol):
    """A function that a model was offered."""

    @property
    def name(self) -> str:
        """Its name."""


class SentPrompt(Protocol):
    """A text request as it was sent."""

    @property
    def system(self) -> str:
        """The system prompt."""

    @property
    def prompt(self) -> str:
        """The prompt."""

    @property
    def tools(self) -> Sequence[SentTool]:
        """The functions."""

    @property
    def purpose(self) -> str:
        """What the answer is for."""

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON schema of the answer; None for text."""


Composed = tuple[Sequence[str], Sequence[ProviderResult], str]  # names and results of providers, their joined text
NOT_COMPOSED: Composed = ((), (), "")
text_of: Callable[[ProviderResult], str] = attrgetter("text")


class ToolRequest(Protocol):
    """A function that a model wants to call."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments."""


class GivenText(Protocol):
    """A text that a model gave."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def tool_calls(self) -> Sequence[ToolRequest]:
        """The functions that it calls."""

    @property
    def is_truncated(self) -> bool:
        """Whether the length limit ended it."""

    @property
    def has_cut_call(self) -> bool:
        """Whether the limit ended it within a call."""


class NotedAnswer(NamedTuple):
    """What a model answered to the pipeline, after all attempts, and what the prompt was made of.

    The outcome of a call that was under way when its turn was ended from outside is a CancelledError.
    """

    request: SentPrompt
    composed: Composed
    is_shortened: bool
    max_message_length: int
    outcome: GivenText | BaseException


class NotedAction(NamedTuple):
    """A call of an action: its number in the turn, the parameters that the model gave, and what became of it."""

    number: int
    spec: ActionSpec
    parameters: Mapping[str, Any]
    result: ActionResult
    replies: Sequence[Memory]


@dataclass(frozen=True, slots=True)
class RecordedText:
    """The text and the values of a provider."""

    text: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """An answer of a model as it is stored: see `NotedAnswer`.

    `digest` is that of the prompt, whose text is in the trace; `providers` are indexes of texts, by name. Of an
    answer that failed there is the class of the error, with its text, and for a budget its setting.
    """

    purpose: str
    digest: str
    tools: tuple[str, ...] = ()
    is_json: bool = False
    providers: Mapping[str, int] = field(default_factory=dict)
    is_shortened: bool = False
    max_message_length: int = 32_768
    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    is_truncated: bool = False
    has_cut_call: bool = False
    error: str = ""
    setting: str = ""


@dataclass(frozen=True, slots=True)
class RecordedAction:
    """A call of an action as it is stored: see `NotedAction`; `replies` are without the bytes of their files."""

    number: int
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    success: bool = True
    text: str = ""
    error: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    replies: tuple[Content, ...] = ()
    effect: Effect = Effect.PURE
    is_critical: bool = False


@dataclass(frozen=True, slots=True)
class RecordedVerdict:
    """What a filter decided about a text, and what failed, of the filters that a replay does not run."""

    name: str
    direction: str
    decision: FilterDecision
    problem: str


@dataclass(frozen=True, slots=True)
class RecordedInput:
    """A message of a turn: its receipt without calls and notes, the message as it was read, and its author."""

    receipt: Receipt
    message: Memory
    author: Entity
    distress: str = ""


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """Whether a turn was to be answered, and why.

    `judged` is the choice of the room's talk and its words; `covered` is how many messages the model's decision
    covered besides. `reaction` is the emoji that it set in place of an answer.
    """

    should_answer: bool = True
    reason: str = ""
    rule: str = ""
    notice_template: str = ""
    judged: tuple[str, str] = ("", "")
    covered: int = 0
    reaction: str = ""


@dataclass(frozen=True, slots=True)
class ReplayRecord:
    """All that one turn has read and received that its code does not determine, as `bot replay` uses it.

    `versions` are those of the program, its prompts and the character. `message` is the newest one as it came,
    `inputs` are as they were answered; the last one's receipt has the outcome. `replies` are what was sent. `has_minor`
    says whether an author was marked as a minor, None where the turn did not ask for it.
    """

    versions: Mapping[str, str]
    started_at: datetime
    is_fresh: bool
    room: Room
    world: World
    message: Memory
    inputs: tuple[RecordedInput, ...]
    participant_state: ParticipantState
    decision: RecordedDecision
    offered: tuple[str, ...]
    replies: tuple[str, ...] = ()
    replaces: Memory | None = None
    degradation: Degradation | None = None
    hold_reason: str = ""
    is_plain: bool = False
    is_confirmed: bool = False
    has_minor: bool | None = None
    texts: tuple[RecordedText, ...] = ()
    answers: tuple[RecordedAnswer, ...] = ()
    actions: tuple[RecordedAction, ...] = ()
    verdicts: tuple[RecordedVerdict, ...] = ()

    def encode(self) -> str:
        """Return the record as compressed JSON in ASCII, without what has its default."""
        body = _record_type().dump_json(self, exclude_defaults=True, fallback=str, warnings=False)
        return b64encode(zlib.compress(body, level=zlib.Z_BEST_SPEED)).decode()

    @classmethod
    def decode(cls, encoded: str) -> "ReplayRecord":
        """Return a record that was encoded. Raises ValueError for one that another version wrote."""
        return _record_type().validate_json(zlib.decompress(b64decode(encoded)))


@cache
def _record_type() -> TypeAdapter[ReplayRecord]:
    """Return the schema of records; it is built in 10 ms when the first one is stored or read."""
    return TypeAdapter(ReplayRecord)


def digest_prompt(system: str, prompt: str) -> str:
    """Return the digest by which a prompt is recognised."""
    return blake2b(f"{system}\0{prompt}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def describe_content(content: Content) -> str:
    """Return the text of a message, and a line for each file and choice; the spoken form of a text is left out."""
    files = (f"[{item.kind} {item.name or item.content_type}]" for item in content.attachments if not item.is_speech)
    choices = (f"[choice {choice.label}: {choice.value}]" for choice in content.choices)
    return "\n".join((content.text, *files, *choices))


class TracedCall(NamedTuple):
    """A model call: when it began and ended, the text that was requested and its result, and the providers then."""

    started: float
    ended: float
    request: SentPrompt | None
    result: object
    composed: Composed


@dataclass(slots=True, eq=False)
class TurnTrace:
    """What one turn notes; `gate_rule` decided whether to answer, `composed` are the providers composed last.

    A span is kind, name, start, end and note. `answers`, `actions` and `verdicts` are for the replay record, as
    `decision` is.
    """

    started: float = 0.0
    started_at: datetime | None = None
    gate_rule: str = ""
    earlier_calls: int = 0
    composed: Composed = NOT_COMPOSED
    spans: list[tuple[str, str, float, float, str]] = field(default_factory=list)
    calls: list[TracedCall] = field(default_factory=list)
    answers: list[NotedAnswer] = field(default_factory=list)
    actions: list[NotedAction] = field(default_factory=list)
    verdicts: list[RecordedVerdict] = field(default_factory=list)
    judged: tuple[str, str] = ("", "")
    covered: int = 0
    decision: RecordedDecision | None = None
    is_plain: bool = False
    is_confirmed: bool = False
    has_minor: bool | None = None

    def note(self, kind: str, name: str, started: float, failure: str = "") -> None:
        """Note a step that has ended now."""
        self.spans.append((kind, name, started, monotonic(), failure))

    def to_body(self, calls: Sequence[ModelCall]) -> dict[str, Any]:
        """Return the steps as `read_steps` takes them; `calls` are the model calls of the turn."""
        return {
            "at": self.started_at.isoformat() if self.started_at else None,
            "started": self.started,
            "gate": self.gate_rule,
            "earlier_calls": self.earlier_calls,
            "spans": self.spans[:MAX_SPANS],
            "calls": [
                (traced.started, traced.ended, call.purpose, call.model, call.error)
                for traced, call in zip(self.calls, calls, strict=False)
            ],
        }

    def to_step(
        self,
        turn_id: UUID,
        calls: Sequence[ModelCall],
        results: Iterable[ProviderResult],
        subject_ids: Iterable[UUID],
        now: datetime,
        record: ReplayRecord | None = None,
        replies: Iterable[Memory] = (),
    ) -> Step:
        """Return the step to store. `subject_ids` are the room and the people whose words it holds.

        The replay `record`, if there is one, is stored with the `replies` and what this trace has noted for it.
        """
        noted = list(zip(self.calls, calls, strict=False))
        body = {**self.to_body(calls), "prompts": _prompts_to_json(noted), "memories": _used_memories(results)}
        if record is not None:
            texts, answers = _record_answers(self.answers)
            actions = tuple(map(_record_action, self.actions))
            sent = tuple(describe_content(reply.content) for reply in replies)
            is_filtered = FILTER_KEY in record.message.metadata  # so the filters of messages do not run again
            verdicts = tuple(item for item in self.verdicts if item.direction == "out" or not is_filtered)
            record = replace(record, replies=sent, texts=texts, answers=answers, actions=actions, verdicts=verdicts)
            try:
                body[REPLAY_KEY] = record.encode()
            except Exception:  # the str() of a plugin's value may raise anything
                logger.debug("turn %s cannot be replayed: it has a value that is no JSON", turn_id, exc_info=True)
        return Step(turn_id, TRACE_KEY, TRACE_KEY, StepState.DONE, "", body, now, frozenset(subject_ids))


def _prompts_to_json(noted: Iterable[tuple[TracedCall, ModelCall]]) -> list[dict[str, Any]]:
    prompts: list[dict[str, Any]] = []
    previous: SentPrompt | None = None
    for number, (traced, call) in enumerate(noted):
        request, (names, results, joined) = traced.request, traced.composed
        if request is None or request is previous or len(prompts) == MAX_PROMPTS:  # the same may be sent again
            continue
        previous, text = request, request.prompt
        prompts.append(
            {
                "call": number,
                "purpose": call.purpose,
                "bytes": call.prompt_bytes,
                "system": request.system[:MAX_PROMPT_LENGTH],
                "prompt": text[:MAX_PROMPT_LENGTH],
                "tools": [tool.name for tool in request.tools] if request.tools else (),
                "start": text.find(joined),
                "names": names,
                "lengths": list(map(len, map(text_of, results))),
            }
        )
    return prompts


def _record_answers(noted: Iterable[NotedAnswer]) -> tuple[tuple[RecordedText, ...], tuple[RecordedAnswer, ...]]:
    """Return the texts of providers, each once, and the answers."""
    indexes: dict[int, int] = {}
    texts: list[RecordedText] = []
    answers: list[RecordedAnswer] = []
    for request, (names, results, _), is_shortened, max_length, outcome in noted:
        for result in results:
            if indexes.setdefault(id(result), len(texts)) == len(texts):
                texts.append(RecordedText(result.text, result.values))
        answer = RecordedAnswer(
            request.purpose,
            digest_prompt(request.system, request.prompt),
            tuple(tool.name for tool in request.tools),
            request.schema is not None,
            {name: indexes[id(result)] for name, result in zip(names, results, strict=True)},
            is_shortened,
            max_length,
        )
        if isinstance(outcome, BaseException):
            kind, setting = type(outcome).__name__, getattr(outcome, "setting", "")
            answers.append(replace(answer, text=str(outcome), error=kind, setting=setting))
        else:
            calls = tuple((call.name, call.arguments) for call in outcome.tool_calls)
            is_truncated, has_cut_call = outcome.is_truncated, outcome.has_cut_call
            given = replace(
                answer, text=outcome.text, calls=calls, is_truncated=is_truncated, has_cut_call=has_cut_call
            )
            answers.append(given)
    return tuple(texts), tuple(answers)


def _record_action(noted: NotedAction) -> RecordedAction:
    number, spec, parameters, result, replies = noted
    return RecordedAction(
        number,
        spec.name,
        parameters,
        result.success,
        result.text,
        result.error,
        result.values,
        tuple(_without_bytes(reply.content) for reply in replies),
        spec.effect,
        spec.is_critical,
    )


def _without_bytes(content: Content) -> Content:
    files = tuple(replace(item, data=None) for item in content.attachments if not item.is_speech)
    return replace(content, attachments=files)


def _used_memories(results: Iterable[ProviderResult]) -> list[tuple[str, float | None]]:
    pairs = [pair for result in results if MEMORIES_KEY in result.data for pair in result.data[MEMORIES_KEY]]
    return [(str(memory_id), score) for memory_id, score in pairs[:MAX_MEMORIES]]


current_trace: ContextVar[TurnTrace | None] = ContextVar("current_trace", default=None)


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of a turn: milliseconds since the message came in; `call` is the index of a model call.

    `parent` is the index of the step that contains it; `is_after` is set for what ran after the answer.
    """

    name: str
    kind: str
    start_ms: float
    end_ms: float
    parent: int | None = None
    state: str = "done"
    note: str = ""
    call: int | None = None
    is_after: bool = False


@dataclass(frozen=True, slots=True)
class SentSection:
    """A part of a prompt as it was sent: the system prompt, the text of a provider, or what is between."""

    name: str
    text: str


def read_steps(body: Mapping[str, Any], received_at: datetime) -> list[TraceStep]:
    """Return the steps of a stored trace in the order of their begin, each with the one that contains it."""

    def place(monotonic: float) -> float:
        return offset + (monotonic - float(body["started"])) * 1000

    offset = _offset(body, received_at)
    found = [TraceStep("Stored", "store", 0.0, max(0.0, offset))]
    found += [
        TraceStep(name, kind, place(start), place(end), state="failed" if note else "done", note=note)
        for kind, name, start, end, note in body["spans"]
    ]
    for number, (start, end, purpose, _, error) in enumerate(body["calls"], int(body["earlier_calls"])):
        state = "failed" if error else "done"
        found.append(TraceStep(purpose, "model", place(start), place(end), state=state, note=error, call=number))
    committed = next((step.end_ms for step in found if step.kind == "commit"), None)
    found.sort(key=lambda step: (step.start_ms, -step.end_ms))
    return [_place(step, found[:number], committed) for number, step in enumerate(found)]


def _place(step: TraceStep, earlier: Sequence[TraceStep], committed: float | None) -> TraceStep:
    parents = [number for number, other in enumerate(earlier) if _contains(other, step)]
    is_after = committed is not None and step.start_ms >= committed and step.kind != "commit"
    return TraceStep(
        step.name,
        step.kind,
        round(step.start_ms, 1),
        round(step.end_ms, 1),
        parents[-1] if parents else None,
        step.state,
        step.note,
        step.call,
        is_after,
    )


def _contains(outer: TraceStep, inner: TraceStep) -> bool:
    if inner.kind == outer.kind and outer.name != ALL_PROVIDERS:  # they run at the same time, not in each other
        return False
    is_within = outer.start_ms <= inner.start_ms and inner.end_ms <= outer.end_ms
    return is_within and outer.kind in ("gate", "provider", "action", "evaluator") and outer.end_ms > outer.start_ms


def _offset(body: Mapping[str, Any], received_at: datetime) -> float:
    at = body.get("at")
    return (datetime.fromisoformat(at) - received_at).total_seconds() * 1000 if at else 0.0


def read_sections(prompt: Mapping[str, Any]) -> list[SentSection]:
    """Return the sections of a stored prompt in the order in which they were sent."""
    text = str(prompt["prompt"])
    sections = [SentSection("System", str(prompt["system"]))] if prompt["system"] else []
    position, start = 0, int(prompt["start"])
    for name, length in zip(prompt["names"], prompt["lengths"], strict=True):
        if start < 0 or not length:  # the template shows them apart, or not at all
            continue
        sections += [SentSection("Instructions", text[position:start]), SentSection(name, text[start : start + length])]
        position = start + length
        start = position + len(SEPARATOR)
    sections.append(SentSection("Instructions", text[position:]))
    if prompt["tools"]:
        sections.append(SentSection("Functions", "\n".join(prompt["tools"])))
    return [section for section in sections if section.text.strip()]
