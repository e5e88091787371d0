"""The traces of one agent. The spans of a message have ids that follow from those of its turn, which is stored with it.

So what several processes, before and after a restart, export of a message is one trace, and nothing has to be
handed on.
"""

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags, set_span_in_context

from bot import Agent, Outcome, Turn
from bot.events import DeliveryFinished, MessageClosed, ModelUsed, TurnEnded
from bot.models import ModelCall, TextRequest, TextResult
from bot.platform import DeliveryState, current_run

SCOPE = "greenroom"
MAX_STEPS = 200  # of one turn
MIN_PROVIDER_SECONDS = 0.001  # a provider that took less has no span of its own
OPERATIONS = {"TEXT_SMALL": "chat", "TEXT_LARGE": "chat", "TEXT_EMBEDDING": "embeddings"}
OTHER_OPERATION = "generate_content"
# Names of the semantic conventions for providers that are called differently here.
PROVIDERS = {"google": "gcp.gemini"}
ALL_PROVIDERS = "Providers"  # the step of all that are composed together
CONTAINERS = frozenset({"gate", "provider", "action", "evaluator"})  # kinds of steps within which others run
STEP_NAMES = {"store": "inbox", "gate": "gate", "wait": "wait", "commit": "commit"}
INTERRUPTED = "interrupted: the process ended"
Attributes = dict[str, str | int | float]


class Step(NamedTuple):
    """A step of a turn, from `start` to `end` in nanoseconds; `call` is the place of a model call."""

    start: int
    end: int
    kind: str
    name: str
    problem: str = ""
    call: int | None = None


class _TurnIds(RandomIdGenerator):
    """Gives the next span the ids that are set here; else random ones."""

    next: SpanContext | None = None

    def generate_trace_id(self) -> int:
        """Return the id of a trace that begins with the next span."""
        return super().generate_trace_id() if self.next is None else self.next.trace_id

    def generate_span_id(self) -> int:
        """Return the id of the next span."""
        ids, self.next = self.next, None
        return super().generate_span_id() if ids is None else ids.span_id


class Traces:
    """Exports the spans of messages, and of model calls that belong to none, once they have ended.

    `share` is that of the traces which are sent: the id decides, so that other processes and services decide alike.
    """

    def __init__(
        self, agent: Agent, resource: Resource, processor: SpanProcessor, *, share: float, captures_content: bool
    ) -> None:
        self._agent = agent
        self._captures_content = captures_content
        self._ids = _TurnIds()
        sampler = TraceIdRatioBased(share)
        self.provider = TracerProvider(sampler, resource, shutdown_on_exit=False, id_generator=self._ids)
        self.provider.add_span_processor(processor)
        self._tracer = self.provider.get_tracer(SCOPE)

    def subscribe(self, agent: Agent) -> list[Callable[[], None]]:
        """Export from now on; return what ends it."""
        subscribe = agent.events.subscribe
        return [
            subscribe(MessageClosed, self._on_closed, at_once=True),
            subscribe(TurnEnded, self._on_turn, at_once=True),
            subscribe(DeliveryFinished, self._on_delivery, at_once=True),
            subscribe(ModelUsed, self._on_model, at_once=True),
        ]

    def _on_closed(self, event: MessageClosed) -> None:
        """Export the span of a message: the root of its trace, unless another turn took the message over."""
        receipt = event.receipt
        turn_id = receipt.turn_id or receipt.id
        root = build_ids(turn_id, turn_id)
        is_root = receipt.superseded_by is None
        attributes: Attributes = {
            "messaging.system": receipt.key.platform,
            "messaging.operation.type": "process",
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": self._agent.name,
            "gen_ai.conversation.id": str(receipt.room_id),
            "greenroom.outcome": receipt.outcome.value,
            "greenroom.rule": receipt.rule,
            "greenroom.turn.id": str(turn_id),
            "greenroom.receipt.id": str(receipt.id),
        }
        events: list[tuple[str, Attributes, int]] = []
        if receipt.attempts > 1:
            attributes["greenroom.attempts"] = receipt.attempts
            if receipt.claimed_at is not None:
                # The receipt has the number of attempts that ended with their process, not when they ended; those that
                # a stop or an outage of the store ended are not counted.
                counts: Attributes = {"greenroom.attempts.interrupted": receipt.attempts - 1}
                events.append((INTERRUPTED, counts, to_ns(receipt.claimed_at)))
        if self._captures_content:
            attributes["greenroom.reason"] = receipt.reason
        self._add(
            f"process {receipt.key.platform}",
            to_ns(receipt.received_at),
            to_ns(receipt.closed_at or receipt.received_at),
            None if is_root else root,
            attributes,
            kind=SpanKind.CONSUMER,
            problem=(receipt.reason or "failed") if receipt.outcome is Outcome.FAILED else "",
            ids=root if is_root else build_ids(turn_id, receipt.id),
            events=events,
        )

    def _on_turn(self, event: TurnEnded) -> None:
        """Export the steps of a turn, each below the innermost that contains it."""
        turn, final = event.turn, _find_final(event.turn)
        root = build_ids(final.id, final.id if final is turn else turn.inputs[-1].receipt.id)
        containers: list[tuple[Step, SpanContext]] = []
        for step in _list_steps(turn):
            around = (ids for container, ids in reversed(containers) if _contains(container, step))
            name = STEP_NAMES.get(step.kind, f"{step.kind} {step.name}")
            attributes, kind = Attributes(), SpanKind.INTERNAL
            if step.kind == "action":
                name = f"execute_tool {step.name}"
                attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": step.name}
            elif step.call is not None:
                call, traced = turn.inputs[-1].calls[step.call], turn.trace.calls[step.call]
                name, kind, attributes = _name_call(call), SpanKind.CLIENT, self._describe_call(call)
                if self._captures_content:
                    attributes |= _describe_content(traced.request, traced.result)
            parent = next(around, root)
            ids = self._add(name, step.start, step.end, parent, attributes, kind=kind, problem=step.problem)
            if step.kind in CONTAINERS and step.start < step.end:
                containers.append((step, ids))

    def _on_delivery(self, event: DeliveryFinished) -> None:
        """Export how long a part of a reply has waited, and how long its send has taken with all attempts."""
        part, now = event.delivery, to_ns(self._agent.clock())
        problem = (part.cause or "failed") if part.state is DeliveryState.FAILED else ""
        attributes: Attributes = {"greenroom.delivery.state": part.state.value, "greenroom.delivery.part": part.part}
        turn = build_ids(part.turn_id, part.turn_id)
        outbox = self._add("outbox", to_ns(part.created_at), now, turn, attributes, problem=problem)
        if part.first_attempt_at is None:
            return
        attributes = {
            "messaging.system": part.platform,
            "messaging.operation.type": "send",
            "greenroom.delivery.attempts": part.attempts,
        }
        if self._captures_content:
            attributes["greenroom.delivery.text"] = part.content.text
        start, kind = to_ns(part.first_attempt_at), SpanKind.PRODUCER
        self._add(f"send {part.platform}", start, now, outbox, attributes, kind=kind, problem=problem)

    def _on_model(self, event: ModelUsed) -> None:
        """Export a model call that no turn will report, as a trace of its own."""
        run = current_run.get()
        if run is not None and run.trace is not None:
            return
        call, now = event.call, self._agent.clock()
        start, end = to_ns(now - timedelta(seconds=call.seconds)), to_ns(now)
        attributes = self._describe_call(call)
        self._add(_name_call(call), start, end, None, attributes, kind=SpanKind.CLIENT, problem=call.error)

    def _describe_call(self, call: ModelCall) -> Attributes:
        attributes: Attributes = {
            **label_call(self._agent, call),
            "gen_ai.response.model": call.model,
            "gen_ai.usage.input_tokens": call.tokens_in,
            "gen_ai.usage.output_tokens": call.tokens_out,
            "greenroom.model.purpose": call.purpose,
        }
        if call.tokens_cached:
            attributes["gen_ai.usage.cache_read.input_tokens"] = call.tokens_cached
        if call.cost is not None:
            attributes["greenroom.model.cost_dollars"] = call.cost
        if call.error:
            attributes["error.type"] = "_OTHER"
        return attributes

    def _add(
        self,
        name: str,
        start: int,
        end: int,
        parent: SpanContext | None,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        problem: str = "",
        ids: SpanContext | None = None,
        events: Iterable[tuple[str, Attributes, int]] = (),
    ) -> SpanContext:
        """Export a span and return its ids, which are random without `ids`. Times are in nanoseconds."""
        self._ids.next = ids
        texts = {key: encodable(value) if isinstance(value, str) else value for key, value in attributes.items()}
        context = Context() if parent is None else build_context(parent)
        span = self._tracer.start_span(encodable(name), context, kind, texts, start_time=start)
        for event in events:
            span.add_event(*event)
        if problem:
            span.set_status(StatusCode.ERROR, encodable(problem) if self._captures_content else None)
        span.end(max(start, end))  # the clocks of two processes may differ
        return span.get_span_context()


def build_ids(turn_id: UUID, key: UUID) -> SpanContext:
    """Return the ids of a turn's trace, and of its span: `key` is the turn, or a message that another turn took over.

    The id of the trace is a hash, because a share of traces is chosen by it.
    """
    trace_id = int.from_bytes(blake2b(turn_id.bytes, digest_size=16).digest())
    span_id = int.from_bytes(blake2b(key.bytes, digest_size=8).digest())
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def build_context(ids: SpanContext) -> Context:
    """Return the context of what belongs to a span."""
    return set_span_in_context(NonRecordingSpan(ids), Context())


def label_call(agent: Agent, call: ModelCall) -> dict[str, str]:
    """Return what a model call does and who answers it, in the words of the semantic conventions."""
    provider = next((status.provider for status in agent.models.statuses() if status.model == call.model), "")
    return {
        "gen_ai.operation.name": _operation(call),
        "gen_ai.provider.name": PROVIDERS.get(provider, provider) or "_OTHER",
        "gen_ai.request.model": call.model,
    }


def encodable(text: str) -> str:
    """Return a text as the protocol can hold it: halves of characters are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


def to_ns(at: datetime) -> int:
    """Return a time in nanoseconds since 1970."""
    return round(at.timestamp() * 1e6) * 1000


def _operation(call: ModelCall) -> str:
    return OPERATIONS.get(call.type, OTHER_OPERATION)


def _name_call(call: ModelCall) -> str:
    return f"{_operation(call)} {call.model}"


def _find_final(turn: Turn) -> Turn:
    """Return the turn that took over the messages of this one, or itself."""
    while turn.superseded_by is not None:
        turn = turn.superseded_by
    return turn


def _contains(container: Step, step: Step) -> bool:
    """Return whether a step runs within another: those of one kind run at the same time, but for all providers."""
    is_other_kind = container.kind != step.kind or container.name == ALL_PROVIDERS
    return container.start <= step.start and step.end <= container.end and is_other_kind


def _list_steps(turn: Turn) -> list[Step]:
    """Return the steps of a turn with what was before it, in the order of their begin; outer ones first."""
    trace, calls = turn.trace, turn.inputs[-1].calls
    if trace.started_at is None:
        return []
    begun, received = to_ns(trace.started_at), to_ns(turn.inputs[-1].receipt.received_at)
    base = begun - round(trace.started * 1e9)  # of the clock by which steps are measured
    steps = [
        Step(base + int(start * 1e9), base + int(end * 1e9), kind, name, problem)
        for kind, name, start, end, problem in trace.spans[:MAX_STEPS]
        if kind != "provider" or name == ALL_PROVIDERS or problem or end - start >= MIN_PROVIDER_SECONDS
    ]
    for number, (traced, call) in enumerate(zip(trace.calls, calls, strict=False)):
        start, end = base + int(traced.started * 1e9), base + int(traced.ended * 1e9)
        steps.append(Step(start, end, "model", call.purpose, call.error, number))
    steps.append(Step(received, max(received, begun), "store", ""))
    return sorted(steps, key=lambda step: (step.start, -step.end))


def _describe_content(request: object, result: object) -> dict[str, str]:
    """Return the texts of a call as the semantic conventions want them: messages in JSON."""
    if not isinstance(request, TextRequest):
        return {}
    attributes = {
        "gen_ai.system_instructions": _to_json([_text_part(request.system)]),
        "gen_ai.input.messages": _to_json([{"role": "user", "parts": [_text_part(request.prompt)]}]),
    }
    if isinstance(result, TextResult):
        parts = [_text_part(result.text)] if result.text else []
        parts += [
            {"type": "tool_call", "name": call.name, "arguments": dict(call.arguments)} for call in result.tool_calls
        ]
        reason = "length" if result.is_truncated else "tool_call" if result.tool_calls else "stop"
        message = {"role": "assistant", "parts": parts, "finish_reason": reason}
        attributes["gen_ai.output.messages"] = _to_json([message])
    return attributes


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
