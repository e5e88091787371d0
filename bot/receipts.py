"""The sentence that tells the outcome of a message, and the checks that led to it; made from its receipt alone.

What a turn notes while it runs, for the receipt: its steps, its prompts, the memories it used.

A running turn only appends tuples; they become JSON once it has ended, and steps and sections when they are read.
Times are on the monotonic clock, in seconds.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from bot.domain.environment import ChannelType
from bot.domain.ledger import ModelCall, Outcome, ProviderResult, Receipt, Rule, Step, StepState
from bot.user_texts import user_text

# The texts of rules, below `receipt` in the catalogue. The reason of any other rule is told in its own words,
# unless a model wrote it or it is that of a failure: those may quote other people or name what is private.
CAUSES: Mapping[Outcome, Mapping[str, str]] = MappingProxyType(
    {
        Outcome.ANSWERED: {
            Rule.MENTION: "mention",
            Rule.REPLY: "reply",
            Rule.NAME_CALLED: "name_called",
            Rule.FOLLOWED: "followed",
            Rule.BYPASS_TYPES: "room_type",
            Rule.BYPASS_SOURCES: "source",
            Rule.DECIDED_RESPOND: "decided_respond",
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
DIRECT_RULES = frozenset(f"room type {kind}" for kind in ChannelType)
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
    if receipt.rule in DIRECT_RULES:
        return user_text("receipt.cause.direct")
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
    """Return the daily limit that a reason names, dollars with cents; empty if it names none."""
    match = AMOUNT.search(reason)
    if match is None:
        return ""
    dollars, tokens = match.groups()
    return f"${float(dollars):,.2f}" if dollars else str(tokens)


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
    ("age", {Rule.MATURE_CONTENT: "mature"}),
    ("sending", {Rule.CANNOT_SEND: "waits"}),
    ("budget", dict.fromkeys(BUDGETS, "spent")),
    ("limits", dict.fromkeys(LIMITS, "exceeded")),
    ("room_type", {Rule.BYPASS_TYPES: "listed", **dict.fromkeys(DIRECT_RULES, "direct")}),
    ("source", {Rule.BYPASS_SOURCES: "listed"}),
    ("addressed", {Rule.MENTION: "mentioned", Rule.REPLY: "replied", Rule.NAME_CALLED: "called"}),
    ("followed", {Rule.FOLLOWED: "yes"}),
    ("talk", {Rule.ADDRESSED: "meant", Rule.NOT_ADDRESSED: "not_meant"}),
    (
        "model",
        {
            Rule.DECIDED_RESPOND: "respond",
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


Composed = tuple[Sequence[str], Sequence[ProviderResult], str]  # names and results of providers, their joined text
NOT_COMPOSED: Composed = ((), (), "")
text_of: Callable[[ProviderResult], str] = attrgetter("text")


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

    A span is kind, name, start, end and note.
    """

    started: float = 0.0
    started_at: datetime | None = None
    gate_rule: str = ""
    earlier_calls: int = 0
    composed: Composed = NOT_COMPOSED
    spans: list[tuple[str, str, float, float, str]] = field(default_factory=list)
    calls: list[TracedCall] = field(default_factory=list)

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
    ) -> Step:
        """Return the step to store. `subject_ids` are the room and the people whose words it holds."""
        noted = list(zip(self.calls, calls, strict=False))
        body = {**self.to_body(calls), "prompts": _prompts_to_json(noted), "memories": _used_memories(results)}
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
