"""What a turn notes while it runs, for the receipt: its steps, its prompts, the memories it used.

A running turn only appends tuples; they become JSON once it has ended, and steps and sections when they are read.
Times are on the monotonic clock, in seconds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from time import monotonic
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from bot.domain.ledger import ModelCall, Step, StepState
from bot.domain.results import ProviderResult

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
        marks: Iterable[UUID],
        now: datetime,
    ) -> Step:
        """Return the step to store. `marks` are the room and the people whose words it holds: it goes with them."""
        noted = list(zip(self.calls, calls, strict=False))
        body = {**self.to_body(calls), "prompts": _prompts_to_json(noted), "memories": _used_memories(results)}
        return Step(turn_id, TRACE_KEY, TRACE_KEY, StepState.DONE, " ".join([mark.hex for mark in marks]), body, now)


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
