"""Notes as spans. The spans of a message have ids that follow from those of its turn, which is stored with it.

So what several processes, before and after a restart, export of a message is one trace, and nothing has to be
handed on.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from uuid import UUID

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from bot import Outcome, Receipt
from bot.models import ModelCall
from bot.platform import DeliveryState
from plugins.otel.encoding import (
    Attributes,
    Ids,
    encode_attribute,
    encode_count,
    encode_event,
    encode_failure,
    encode_span,
    encode_span_fields,
)
from plugins.otel.recording import CallContent, CallNote, DeliveryNote, Note, TurnNote

# Begin in ns, its end below zero, its place in the note, kind, name, problem, number of a model call or -1: in this
# order the outer ones of several come first.
Step = tuple[int, int, int, str, str, str, int]
MIN_PROVIDER_SECONDS = 0.001  # a provider that took less has no span of its own
OPERATIONS = {"TEXT_SMALL": "chat", "TEXT_LARGE": "chat", "TEXT_EMBEDDING": "embeddings"}
OTHER_OPERATION = "generate_content"
# Names of the semantic conventions for providers that are called differently here.
PROVIDERS = {"google": "gcp.gemini"}
ALL_PROVIDERS = "Providers"  # the step of all that are composed together
CONTAINERS = frozenset({"gate", "provider", "action", "evaluator"})  # kinds of steps within which others run
STEP_NAMES = {"store": "inbox", "gate": "gate", "wait": "wait", "commit": "commit"}
INTERRUPTED = "interrupted: the process ended"
FAILED = encode_failure()
# Attributes without their values, which all have the same length.
NO_ID = str(UUID(int=0))
TURN_ID, RECEIPT_ID = (
    encode_attribute(f"greenroom.{name}.id", NO_ID).removesuffix(NO_ID.encode()) for name in ("turn", "receipt")
)


def trace_id_of(turn_id: UUID) -> bytes:
    """Return the id of the trace of a turn; a hash, because a share of traces is chosen by it."""
    return blake2b(turn_id.bytes, digest_size=16).digest()


def span_id_of(key: UUID) -> bytes:
    """Return the id of the span of a turn, or of a message that another turn took over."""
    return blake2b(key.bytes, digest_size=8).digest()


@lru_cache(maxsize=1024)
def ids_of(turn_id: UUID) -> Ids:
    """Return the ids of the trace and of the span of a turn."""
    return trace_id_of(turn_id), span_id_of(turn_id)


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

    def build(self, note: Note, providers: Mapping[str, str]) -> Sequence[bytes]:
        """Return the spans of a note whose trace is sent; `providers` are those of the models, by model."""
        if isinstance(note, Receipt):
            turn_id = note.turn_id or note.id
        elif isinstance(note, TurnNote):
            turn_id = note.turn_id
        elif isinstance(note, DeliveryNote):
            turn_id = note.delivery.turn_id
        elif isinstance(note, CallNote):
            turn_id = note.id
        else:
            return ()
        trace_id, root = ids_of(turn_id)
        if not self._is_sent(trace_id):
            return ()
        if isinstance(note, Receipt):
            return (self._build_message(note, turn_id, trace_id, root),)
        if isinstance(note, TurnNote):
            return self._build_turn(note, trace_id, root, providers)
        if isinstance(note, DeliveryNote):
            return self._build_delivery(note, trace_id, root)
        started_at = note.ended_at - timedelta(seconds=note.call.seconds)
        fields = self._describe_call(note.call, providers, None)
        return (encode_span(trace_id, root, b"", _ns(started_at), _ns(note.ended_at), fields),)

    def _is_sent(self, trace_id: bytes) -> bool:
        """Return the decision of the sampler of the conventions, by which other services decide alike."""
        if self.share == 1.0:
            return True
        bound = TraceIdRatioBased.get_bound_for_rate(self.share)
        return int.from_bytes(trace_id) & TraceIdRatioBased.TRACE_ID_LIMIT < bound

    def _build_message(self, receipt: Receipt, turn_id: UUID, trace_id: bytes, root: bytes) -> bytes:
        """Return the span of a message: the root of its trace, unless another turn took the message over."""
        fields = [
            _message_fields(receipt.key.platform, self.agent_name, receipt.outcome.value, receipt.rule),
            _room_attribute(receipt.room_id),
            TURN_ID + str(turn_id).encode(),
            RECEIPT_ID + str(receipt.id).encode(),
        ]
        if receipt.attempts > 1:
            fields += [encode_attribute("greenroom.attempts", receipt.attempts), _encode_interruption(receipt)]
        if self.captures_content:
            fields.append(encode_attribute("greenroom.reason", receipt.reason))
        if receipt.outcome is Outcome.FAILED:
            fields.append(FAILED)
        ids = (root, b"") if receipt.superseded_by is None else (span_id_of(receipt.id), root)
        received_at = receipt.received_at
        return encode_span(trace_id, *ids, _ns(received_at), _ns(receipt.closed_at or received_at), b"".join(fields))

    def _build_turn(self, note: TurnNote, trace_id: bytes, root: bytes, providers: Mapping[str, str]) -> list[bytes]:
        if note.is_superseded:
            root = span_id_of(note.receipt.id)
        spans = []
        containers: list[tuple[int, int, str, bytes]] = []  # begin, end, the kind that it cannot contain, id
        steps = _list_steps(note)
        new_ids = random.randbytes(8 * len(steps))
        for number, (start, negative_end, _, kind, name, problem, index) in enumerate(steps):
            span_id, end = new_ids[8 * number : 8 * number + 8], -negative_end
            parent_id = root
            for begin, last, excluded, container_id in reversed(containers):
                if begin <= start and end <= last and excluded != kind:
                    parent_id = container_id
                    break
            if kind in CONTAINERS and start < end:  # those of one kind run at the same time, not within each other
                containers.append((start, end, "" if name == ALL_PROVIDERS else kind, span_id))
            if index >= 0:
                content = note.contents[index] if index < len(note.contents) else None
                fields = self._describe_call(note.calls[index], providers, content)
            elif problem:
                fields = _step_fields(kind, name) + self._status(problem)
            else:
                fields = _step_fields(kind, name)
            spans.append(encode_span(trace_id, span_id, parent_id, start, end, fields))
        return spans

    def _status(self, problem: str) -> bytes:
        if not problem:
            return b""
        return encode_failure(problem) if self.captures_content else FAILED

    def _build_delivery(self, note: DeliveryNote, trace_id: bytes, root: bytes) -> list[bytes]:
        part = note.delivery
        new_ids, finished = random.randbytes(16), _ns(note.finished_at)
        queued, sent = new_ids[:8], new_ids[8:]
        status = self._status(part.cause or "failed") if part.state is DeliveryState.FAILED else b""
        fields = _outbox_fields(part.state.value, part.part) + status
        outbox = encode_span(trace_id, queued, root, _ns(part.created_at), finished, fields)
        if part.first_attempt_at is None:
            return [outbox]
        fields = _send_fields(part.platform, part.attempts) + status
        if self.captures_content:
            fields += encode_attribute("greenroom.delivery.text", part.content.text)
        return [outbox, encode_span(trace_id, sent, queued, _ns(part.first_attempt_at), finished, fields)]

    def _describe_call(self, call: ModelCall, providers: Mapping[str, str], content: CallContent | None) -> bytes:
        fields = [
            _call_fields(operation_of(call), call.model, providers.get(call.model, ""), call.purpose),
            encode_count("gen_ai.usage.input_tokens", call.tokens_in),
            encode_count("gen_ai.usage.output_tokens", call.tokens_out),
        ]
        if call.tokens_cached:
            fields.append(encode_attribute("gen_ai.usage.cache_read.input_tokens", call.tokens_cached))
        if call.cost is not None:
            fields.append(encode_attribute("greenroom.model.cost_dollars", call.cost))
        if call.error:
            fields += [encode_attribute("error.type", "_OTHER"), self._status(call.error)]
        if content is not None:
            fields += [encode_attribute(key, value) for key, value in _describe_content(content).items()]
        return b"".join(fields)


@lru_cache(maxsize=1024)
def _message_fields(platform: str, agent_name: str, outcome: str, rule: str) -> bytes:
    attributes: Attributes = {
        "messaging.system": platform,
        "messaging.operation.type": "process",
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent_name,
        "greenroom.outcome": outcome,
        "greenroom.rule": rule,
    }
    return encode_span_fields(f"process {platform}", attributes, Span.SPAN_KIND_CONSUMER)


@lru_cache(maxsize=1024)
def _room_attribute(room_id: UUID) -> bytes:
    return encode_attribute("gen_ai.conversation.id", str(room_id))


@lru_cache(maxsize=1024)
def _step_fields(kind: str, name: str) -> bytes:
    attributes = Attributes()
    if kind == "action":
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    return encode_span_fields(
        STEP_NAMES.get(kind) or f"{'execute_tool' if kind == 'action' else kind} {name}", attributes
    )


@lru_cache(maxsize=1024)
def _outbox_fields(state: str, part: int) -> bytes:
    return encode_span_fields("outbox", {"greenroom.delivery.state": state, "greenroom.delivery.part": part})


@lru_cache(maxsize=1024)
def _send_fields(platform: str, attempts: int) -> bytes:
    attributes: Attributes = {
        "messaging.system": platform,
        "messaging.operation.type": "send",
        "greenroom.delivery.attempts": attempts,
    }
    return encode_span_fields(f"send {platform}", attributes, Span.SPAN_KIND_PRODUCER)


@lru_cache(maxsize=1024)
def _call_fields(operation: str, model: str, provider: str, purpose: str) -> bytes:
    attributes: Attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": provider_name(provider),
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "greenroom.model.purpose": purpose,
    }
    return encode_span_fields(f"{operation} {model}", attributes, Span.SPAN_KIND_CLIENT)


def _encode_interruption(receipt: Receipt) -> bytes:
    """Return an event where earlier attempts ended with their process, at the begin of the attempt that came after.

    The receipt has their number, not when the process ended; attempts that a stop or an outage of the store ended are
    not counted.
    """
    if receipt.claimed_at is None:
        return b""
    counts: Attributes = {"greenroom.attempts.interrupted": receipt.attempts - 1}
    return encode_event(_ns(receipt.claimed_at), INTERRUPTED, counts)


def provider_name(provider: str) -> str:
    """Return the name of a provider in the semantic conventions."""
    return PROVIDERS.get(provider, provider) or "_OTHER"


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
    if note.started_at is None:
        return []
    begun = _ns(note.started_at)
    base = begun - round(note.started * 1e9)
    steps: list[Step] = [
        (base + int(start * 1e9), -base - int(end * 1e9), number, kind, name, problem, -1)
        for number, (kind, name, start, end, problem) in enumerate(note.spans)
        if kind != "provider" or name == ALL_PROVIDERS or problem or end - start >= MIN_PROVIDER_SECONDS
    ]
    place = len(note.spans)
    for number, ((start, end), call) in enumerate(zip(note.call_times, note.calls, strict=False)):
        times = base + int(start * 1e9), -base - int(end * 1e9)
        steps.append((*times, place + number, "model", call.purpose, call.error, number))
    received = _ns(note.receipt.received_at)
    steps.append((received, -max(received, begun), place + len(note.calls), "store", "", "", -1))
    steps.sort()
    return steps


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _ns(at: datetime) -> int:
    return round(at.timestamp() * 1e6) * 1000
