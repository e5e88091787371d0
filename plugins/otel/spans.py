"""Notes as spans. The spans of a message have ids that follow from those of its turn, which is stored with it.

So what several processes, before and after a restart, export of a message is one trace, and nothing has to be
handed on.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any
from uuid import UUID

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from bot import Outcome, Receipt
from bot.models import ModelCall
from bot.platform import DeliveryState, TraceStep, read_steps
from plugins.otel.recording import CallNote, DeliveryNote, Note, PromptText, TurnNote

Attributes = dict[str, str | int | float | bool]
MIN_PROVIDER_MS = 1.0  # a provider that took less has no span of its own
OPERATIONS = {"TEXT_SMALL": "chat", "TEXT_LARGE": "chat", "TEXT_EMBEDDING": "embeddings"}
OTHER_OPERATION = "generate_content"
# Names of the semantic conventions for providers that are called differently here.
PROVIDERS = {"google": "gcp.gemini"}
STEP_NAMES = {"store": "inbox", "gate": "gate", "wait": "wait", "commit": "commit"}
OK, FAILED = Status(StatusCode.UNSET), Status(StatusCode.ERROR)
SAMPLED, DROPPED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)


def trace_id_of(turn_id: UUID) -> int:
    """Return the id of the trace of a turn; a hash, because a share of traces is chosen by it."""
    return int.from_bytes(blake2b(turn_id.bytes, digest_size=16).digest())


def span_id_of(key: UUID) -> int:
    """Return the id of the span of a turn, or of a message that another turn took over."""
    return int.from_bytes(blake2b(key.bytes, digest_size=8).digest())


def operation_of(call: ModelCall) -> str:
    """Return what a call does, in the words of the semantic conventions."""
    return OPERATIONS.get(call.type, OTHER_OPERATION)


@dataclass(frozen=True, slots=True)
class SpanBuilder:
    """Builds the spans of one agent; `providers` are those of its models, by model."""

    agent_id: str
    agent_name: str
    resource: Resource
    scope: InstrumentationScope
    sampler: TraceIdRatioBased
    captures_content: bool
    ids: RandomIdGenerator

    def build(self, note: Note, providers: Mapping[str, str]) -> Iterator[ReadableSpan]:
        """Yield the spans of a note whose trace is sampled."""
        if isinstance(note, Receipt):
            spans = self._build_message(note)
        elif isinstance(note, TurnNote):
            spans = self._build_turn(note, providers)
        elif isinstance(note, DeliveryNote):
            spans = self._build_delivery(note)
        elif isinstance(note, CallNote):
            spans = self._build_call(note, providers)
        else:
            return
        yield from spans

    def context_of(self, turn_id: UUID, span_id: int | None = None) -> SpanContext:
        """Return the context of the span of a turn, or of another span in its trace."""
        return self._context(trace_id_of(turn_id), span_id_of(turn_id) if span_id is None else span_id)

    def _context(self, trace_id: int, span_id: int | None = None) -> SpanContext:
        is_sampled = self.sampler.should_sample(None, trace_id, "").decision is not Decision.DROP
        span_id = self.ids.generate_span_id() if span_id is None else span_id
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=SAMPLED if is_sampled else DROPPED)

    def _span(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        times: tuple[int, int],
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        status: Status = OK,
    ) -> Iterator[ReadableSpan]:
        # Not by a tracer: what is over already needs no clock, lock and limits, which cost as much as the work on it.
        if context.trace_flags.sampled:
            yield ReadableSpan(
                name,
                context,
                parent,
                self.resource,
                attributes,
                kind=kind,
                status=status,
                start_time=times[0],
                end_time=max(times),
                instrumentation_scope=self.scope,
            )

    def _build_message(self, receipt: Receipt) -> Iterator[ReadableSpan]:
        """Yield the span of a message: the root of its trace, unless another turn took the message over."""
        turn_id = receipt.turn_id or receipt.id
        root = self.context_of(turn_id)
        is_superseded = receipt.superseded_by is not None
        context = self.context_of(turn_id, span_id_of(receipt.id)) if is_superseded else root
        platform = receipt.key.platform
        attributes: Attributes = {
            "messaging.system": platform,
            "messaging.operation.type": "process",
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.id": self.agent_id,
            "gen_ai.agent.name": self.agent_name,
            "gen_ai.conversation.id": str(receipt.room_id),
            "greenroom.turn.id": str(turn_id),
            "greenroom.receipt.id": str(receipt.id),
            "greenroom.outcome": receipt.outcome.value,
            "greenroom.rule": receipt.rule,
            "greenroom.attempts": receipt.attempts,
        }
        if self.captures_content:
            attributes["greenroom.reason"] = receipt.reason
        return self._span(
            f"process {platform}",
            context,
            root if is_superseded else None,
            (_ns(receipt.received_at), _ns(receipt.closed_at or receipt.received_at)),
            attributes,
            kind=SpanKind.CONSUMER,
            status=FAILED if receipt.outcome is Outcome.FAILED else OK,
        )

    def _build_turn(self, note: TurnNote, providers: Mapping[str, str]) -> Iterator[ReadableSpan]:
        key = note.receipt.id if note.is_superseded else note.turn_id
        parent, received = self.context_of(note.turn_id, span_id_of(key)), _ns(note.receipt.received_at)
        steps = read_steps(note.steps, note.receipt.received_at)
        inner = {step.parent for step in steps}
        contexts: list[SpanContext] = []
        for number, step in enumerate(steps):
            above = parent if step.parent is None else contexts[step.parent]
            if step.kind == "provider" and step.parent is not None and number not in inner and _is_short(step):
                contexts.append(above)
                continue
            context = self._context(parent.trace_id)
            contexts.append(context)
            times = (received + round(step.start_ms * 1e6), received + round(step.end_ms * 1e6))
            call_number = None if step.call is None else step.call - int(note.steps["earlier_calls"])
            if call_number is not None:
                prompt = note.prompts[call_number] if call_number < len(note.prompts) else None
                yield from self._model_span(note.calls[call_number], context, above, times, providers, prompt)
            else:
                yield from self._step_span(step, context, above, times)

    def _step_span(
        self, step: TraceStep, context: SpanContext, parent: SpanContext, times: tuple[int, int]
    ) -> Iterator[ReadableSpan]:
        name, attributes = STEP_NAMES.get(step.kind, f"{step.kind} {step.name}"), Attributes()
        if step.kind == "action":
            name = f"execute_tool {step.name}"
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": step.name}
        return self._span(name, context, parent, times, attributes, status=self._status(step.note))

    def _status(self, problem: str) -> Status:
        if not problem:
            return OK
        return Status(StatusCode.ERROR, problem) if self.captures_content else FAILED

    def _build_delivery(self, note: DeliveryNote) -> Iterator[ReadableSpan]:
        part = note.delivery
        root = self.context_of(part.turn_id)
        queued, finished = self._context(root.trace_id), _ns(note.finished_at)
        attributes: Attributes = {
            "messaging.system": part.platform,
            "greenroom.delivery.state": part.state.value,
            "greenroom.delivery.part": part.part,
        }
        status = self._status(part.cause or "failed") if part.state is DeliveryState.FAILED else OK
        times = (_ns(part.created_at), finished)
        yield from self._span("outbox", queued, root, times, attributes, status=status)
        if part.first_attempt_at is None:
            return
        attributes = attributes | {"messaging.operation.type": "send", "greenroom.delivery.attempts": part.attempts}
        if self.captures_content:
            attributes["greenroom.delivery.text"] = part.content.text
        times = (_ns(part.first_attempt_at), finished)
        sending = self._context(root.trace_id)
        kind = SpanKind.PRODUCER
        yield from self._span(f"send {part.platform}", sending, queued, times, attributes, kind=kind, status=status)

    def _build_call(self, note: CallNote, providers: Mapping[str, str]) -> Iterator[ReadableSpan]:
        started_at = note.ended_at - timedelta(seconds=note.call.seconds)
        context = self._context(self.ids.generate_trace_id())
        return self._model_span(note.call, context, None, (_ns(started_at), _ns(note.ended_at)), providers, None)

    def _model_span(
        self,
        call: ModelCall,
        context: SpanContext,
        parent: SpanContext | None,
        times: tuple[int, int],
        providers: Mapping[str, str],
        prompt: PromptText | None,
    ) -> Iterator[ReadableSpan]:
        attributes: Attributes = {
            **describe_call(operation_of(call), call.model, providers.get(call.model, "")),
            "gen_ai.response.model": call.model,
            "gen_ai.usage.input_tokens": call.tokens_in,
            "gen_ai.usage.output_tokens": call.tokens_out,
            "gen_ai.usage.cache_read.input_tokens": call.tokens_cached,
            "greenroom.model.purpose": call.purpose,
        }
        if call.cost is not None:
            attributes["greenroom.model.cost_dollars"] = call.cost
        if call.error:
            attributes["error.type"] = "_OTHER"
        if prompt is not None:
            attributes["gen_ai.system_instructions"] = _to_json([_text_part(prompt.system)])
            attributes["gen_ai.input.messages"] = _to_json([{"role": "user", "parts": [_text_part(prompt.prompt)]}])
        name = f"{attributes['gen_ai.operation.name']} {call.model}"
        kind, status = SpanKind.CLIENT, self._status(call.error)
        return self._span(name, context, parent, times, attributes, kind=kind, status=status)


def _provider_name(provider: str) -> str:
    return PROVIDERS.get(provider, provider) or "_OTHER"


def describe_call(operation: str, model: str, provider: str) -> Attributes:
    """Return the attributes that name a call, of spans and of metrics."""
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _provider_name(provider),
        "gen_ai.request.model": model,
    }


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _is_short(step: TraceStep) -> bool:
    return step.end_ms - step.start_ms < MIN_PROVIDER_MS and step.state != "failed"


def _ns(at: datetime) -> int:
    return round(at.timestamp() * 1e6) * 1000
