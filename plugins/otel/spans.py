"""Notes as spans. The spans of a message have ids that follow from those of its turn, which is stored with it.

So what several processes, before and after a restart, export of a message is one trace, and nothing has to be
handed on.
"""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any
from uuid import UUID

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from bot import Outcome, Receipt
from bot.models import ModelCall
from bot.platform import DeliveryState
from plugins.otel.encoding import Attributes, build_attributes, encodable, encode_span
from plugins.otel.recording import CallContent, CallNote, DeliveryNote, Note, TurnNote

Step = tuple[int, int, str, str, str, int | None]  # begin and end in ns, kind, name, problem, number of a model call
MIN_PROVIDER_NS = 1_000_000  # a provider that took less has no span of its own
OPERATIONS = {"TEXT_SMALL": "chat", "TEXT_LARGE": "chat", "TEXT_EMBEDDING": "embeddings"}
OTHER_OPERATION = "generate_content"
# Names of the semantic conventions for providers that are called differently here.
PROVIDERS = {"google": "gcp.gemini"}
ALL_PROVIDERS = "Providers"  # the step of all that are composed together
CONTAINERS = frozenset({"gate", "provider", "action", "evaluator"})  # kinds of steps within which others run
STEP_NAMES = {"store": "inbox", "gate": "gate", "wait": "wait", "commit": "commit"}
INTERRUPTED = "interrupted: the process ended"
FAILED = Status(code=Status.STATUS_CODE_ERROR)


def trace_id_of(turn_id: UUID) -> bytes:
    """Return the id of the trace of a turn; a hash, because a share of traces is chosen by it."""
    return blake2b(turn_id.bytes, digest_size=16).digest()


def span_id_of(key: UUID) -> bytes:
    """Return the id of the span of a turn, or of a message that another turn took over."""
    return blake2b(key.bytes, digest_size=8).digest()


def operation_of(call: ModelCall) -> str:
    """Return what a call does, in the words of the semantic conventions."""
    return OPERATIONS.get(call.type, OTHER_OPERATION)


@dataclass(frozen=True, slots=True)
class SpanBuilder:
    """Builds the spans of one agent, encoded, without the SDK's objects: these take ten times as long, longer than a
    message itself. `share` is that of the traces which are sent.
    """

    agent_name: str
    share: float
    captures_content: bool

    def build(self, note: Note, providers: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the spans of a note whose trace is sent; `providers` are those of the models, by model."""
        if isinstance(note, Receipt):
            turn_id = note.turn_id or note.id
        elif isinstance(note, TurnNote):
            turn_id = note.turn_id
        elif isinstance(note, DeliveryNote):
            turn_id = note.delivery.turn_id
        elif isinstance(note, CallNote):
            turn_id = note.id
        else:
            return
        trace_id = trace_id_of(turn_id)
        if not self._is_sent(trace_id):
            return
        if isinstance(note, Receipt):
            yield self._build_message(note, turn_id, trace_id)
        elif isinstance(note, TurnNote):
            yield from self._build_turn(note, trace_id, providers)
        elif isinstance(note, DeliveryNote):
            yield from self._build_delivery(note, trace_id)
        else:
            started_at = note.ended_at - timedelta(seconds=note.call.seconds)
            times = (_ns(started_at), _ns(note.ended_at))
            yield self._model_span(note.call, trace_id, (span_id_of(turn_id), b""), times, providers, None)

    def _is_sent(self, trace_id: bytes) -> bool:
        """Return the decision of the sampler of the conventions, by which other services decide alike."""
        if self.share == 1.0:
            return True
        bound = TraceIdRatioBased.get_bound_for_rate(self.share)
        return int.from_bytes(trace_id) & TraceIdRatioBased.TRACE_ID_LIMIT < bound

    def _build_message(self, receipt: Receipt, turn_id: UUID, trace_id: bytes) -> bytes:
        """Return the span of a message: the root of its trace, unless another turn took the message over."""
        root = span_id_of(turn_id)
        is_superseded = receipt.superseded_by is not None
        platform = receipt.key.platform
        attributes: Attributes = {
            "messaging.system": platform,
            "messaging.operation.type": "process",
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": self.agent_name,
            "gen_ai.conversation.id": str(receipt.room_id),
            "greenroom.turn.id": str(turn_id),
            "greenroom.receipt.id": str(receipt.id),
            "greenroom.outcome": receipt.outcome.value,
            "greenroom.rule": receipt.rule,
        }
        if receipt.attempts > 1:
            attributes["greenroom.attempts"] = receipt.attempts
        if self.captures_content:
            attributes["greenroom.reason"] = receipt.reason
        return encode_span(
            f"process {platform}",
            trace_id,
            (span_id_of(receipt.id), root) if is_superseded else (root, b""),
            (_ns(receipt.received_at), _ns(receipt.closed_at or receipt.received_at)),
            attributes,
            kind=Span.SPAN_KIND_CONSUMER,
            status=FAILED if receipt.outcome is Outcome.FAILED else None,
            event=_build_interruption(receipt),
        )

    def _build_turn(self, note: TurnNote, trace_id: bytes, providers: Mapping[str, str]) -> Iterator[bytes]:
        root = span_id_of(note.receipt.id if note.is_superseded else note.turn_id)
        containers: list[tuple[int, int, str, bytes]] = []  # begin, end, the kind that it cannot contain, id
        for start, end, kind, name, problem, index in _list_steps(note):
            fitting = (
                span_id
                for first, last, other, span_id in reversed(containers)
                if first <= start and end <= last and other != kind
            )
            is_part = kind == "provider" and name != ALL_PROVIDERS
            if is_part and end - start < MIN_PROVIDER_NS and not problem:
                continue
            ids = (_new_span_id(), next(fitting, root))
            if kind in CONTAINERS and start < end:  # those of one kind run at the same time, not within each other
                containers.append((start, end, "" if name == ALL_PROVIDERS else kind, ids[0]))
            if index is None:
                yield self._step_span(kind, name, problem, trace_id, ids, (start, end))
                continue
            content = note.contents[index] if index < len(note.contents) else None
            yield self._model_span(note.calls[index], trace_id, ids, (start, end), providers, content)

    def _step_span(
        self, kind: str, name: str, problem: str, trace_id: bytes, ids: tuple[bytes, bytes], times: tuple[int, int]
    ) -> bytes:
        attributes = Attributes()
        if kind == "action":
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        title = STEP_NAMES.get(kind) or f"{'execute_tool' if kind == 'action' else kind} {name}"
        return encode_span(title, trace_id, ids, times, attributes, status=self._status(problem))

    def _status(self, problem: str) -> Status | None:
        if not problem:
            return None
        return Status(code=Status.STATUS_CODE_ERROR, message=encodable(problem)) if self.captures_content else FAILED

    def _build_delivery(self, note: DeliveryNote, trace_id: bytes) -> Iterator[bytes]:
        part = note.delivery
        queued, finished = _new_span_id(), _ns(note.finished_at)
        attributes: Attributes = {"greenroom.delivery.state": part.state.value, "greenroom.delivery.part": part.part}
        status = self._status(part.cause or "failed") if part.state is DeliveryState.FAILED else None
        ids = (queued, span_id_of(part.turn_id))
        yield encode_span("outbox", trace_id, ids, (_ns(part.created_at), finished), attributes, status=status)
        if part.first_attempt_at is None:
            return
        attributes = {
            "messaging.system": part.platform,
            "messaging.operation.type": "send",
            "greenroom.delivery.attempts": part.attempts,
        }
        if self.captures_content:
            attributes["greenroom.delivery.text"] = part.content.text
        ids, times = (_new_span_id(), queued), (_ns(part.first_attempt_at), finished)
        kind = Span.SPAN_KIND_PRODUCER
        yield encode_span(f"send {part.platform}", trace_id, ids, times, attributes, kind=kind, status=status)

    def _model_span(
        self,
        call: ModelCall,
        trace_id: bytes,
        ids: tuple[bytes, bytes],
        times: tuple[int, int],
        providers: Mapping[str, str],
        content: CallContent | None,
    ) -> bytes:
        attributes: Attributes = {
            **describe_call(operation_of(call), call.model, providers.get(call.model, "")),
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
        if content is not None:
            attributes |= _describe_content(content)
        name = f"{attributes['gen_ai.operation.name']} {call.model}"
        kind, status = Span.SPAN_KIND_CLIENT, self._status(call.error)
        return encode_span(name, trace_id, ids, times, attributes, kind=kind, status=status)


def _build_interruption(receipt: Receipt) -> Span.Event | None:
    """Return an event where earlier attempts ended with their process, at the begin of the attempt that came after.

    The receipt has their number, not when the process ended; attempts that a stop or an outage of the store ended are
    not counted.
    """
    if receipt.attempts <= 1 or receipt.claimed_at is None:
        return None
    counts = build_attributes({"greenroom.attempts.interrupted": receipt.attempts - 1})
    return Span.Event(time_unix_nano=_ns(receipt.claimed_at), name=INTERRUPTED, attributes=counts)


def _provider_name(provider: str) -> str:
    return PROVIDERS.get(provider, provider) or "_OTHER"


def describe_call(operation: str, model: str, provider: str) -> Attributes:
    """Return the attributes that name a call, of spans and of metrics."""
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _provider_name(provider),
        "gen_ai.request.model": model,
    }


def _describe_content(content: CallContent) -> Attributes:
    """Return the texts of a call as the semantic conventions want them: messages in JSON."""
    request, result = content.request, content.result
    attributes: Attributes = {
        "gen_ai.system_instructions": _to_json([_text_part(request.system)]),
        "gen_ai.input.messages": _to_json([{"role": "user", "parts": [_text_part(request.prompt)]}]),
    }
    if result is not None:
        parts = [_text_part(result.text)] if result.text else []
        parts += [
            {"type": "tool_call", "name": call.name, "arguments": dict(call.arguments)} for call in result.tool_calls
        ]
        reason = "length" if result.is_truncated else "tool_call" if result.tool_calls else "stop"
        message = {"role": "assistant", "parts": parts, "finish_reason": reason}
        attributes["gen_ai.output.messages"] = _to_json([message])
    return attributes


def _list_steps(note: TurnNote) -> list[Step]:
    """Return the steps of a turn with what was before it, in the order of their begin; outer ones first."""
    body, received = note.steps, _ns(note.receipt.received_at)
    if body["at"] is None:
        return []
    base = _ns(datetime.fromisoformat(body["at"])) - round(body["started"] * 1e9)
    steps: list[Step] = [
        (base + round(start * 1e9), base + round(end * 1e9), kind, name, problem, None)
        for kind, name, start, end, problem in body["spans"]
    ]
    steps += [
        (base + round(start * 1e9), base + round(end * 1e9), "model", purpose, error, number)
        for number, (start, end, purpose, _, error) in enumerate(body["calls"])
    ]
    steps.append((received, max(received, base + round(body["started"] * 1e9)), "store", "", "", None))
    steps.sort(key=lambda step: (step[0], -step[1]))
    return steps


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _new_span_id() -> bytes:
    return random.randbytes(8)


def _ns(at: datetime) -> int:
    return round(at.timestamp() * 1e6) * 1000
