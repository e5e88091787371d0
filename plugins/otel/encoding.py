"""Spans in the wire format of OTLP (opentelemetry-proto 1, `trace.proto`), put together from parts encoded once.

The library's message objects cost four times as much CPU time a span.
"""

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

Value = str | int | float | bool
Attributes = dict[str, Value]
UNIQUE = frozenset({"greenroom.turn.id", "greenroom.receipt.id", "greenroom.model.cost_dollars"})
MAX_KEPT_LENGTH = 100
# A field begins with its number and type, in one byte; a length follows where it has none of its own.
TRACE_ID, SPAN_ID, PARENT = b"\x0a\x10", b"\x12\x08", b"\x22\x08"
START, END = b"\x39", b"\x41"
TIMES = Struct("<cQcQ")
SPANS_OF_SCOPE, SCOPES_OF_RESOURCE, RESOURCES_OF_REQUEST = b"\x12", b"\x12", b"\x0a"


def build_attributes(attributes: Mapping[str, Value]) -> list[KeyValue]:
    """Return attributes as the protocol has them."""
    return [_build_pair(key, value) for key, value in attributes.items()]


def encodable(text: str) -> str:
    """Return a text that the protocol can hold: halves of characters are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


def encode_span(
    name: str,
    trace_id: bytes,
    ids: tuple[bytes, bytes],
    times: tuple[int, int],
    attributes: Attributes,
    *,
    kind: Span.SpanKind.ValueType = Span.SPAN_KIND_INTERNAL,
    status: Status | None = None,
    event: Span.Event | None = None,
) -> bytes:
    """Return a span as a field of its scope; `ids` are its own and that of the span above it, `times` in nanoseconds.

    A trace has an id of 16 bytes, a span one of 8; that of the span above is empty for the first one.
    """
    parts = [TRACE_ID, trace_id, SPAN_ID, ids[0]]
    if ids[1]:
        parts += (PARENT, ids[1])
    parts += (_encode_name(name, kind), TIMES.pack(START, times[0], END, max(times)))
    for key, value in attributes.items():
        is_unique = key in UNIQUE or (isinstance(value, str) and len(value) > MAX_KEPT_LENGTH)
        parts.append(_encode_attribute(key, value) if is_unique else _kept_attribute(key, value))
    if status is not None:
        parts.append(Span(status=status).SerializeToString())
    if event is not None:
        parts.append(Span(events=[event]).SerializeToString())
    return _field(SPANS_OF_SCOPE, b"".join(parts))


def encode_request(resource: Resource, scope: InstrumentationScope, spans: list[bytes]) -> bytes:
    """Return the request that exports spans of one scope."""
    scoped = ScopeSpans(scope=scope).SerializeToString() + b"".join(spans)
    grouped = ResourceSpans(resource=resource).SerializeToString() + _field(SCOPES_OF_RESOURCE, scoped)
    return _field(RESOURCES_OF_REQUEST, grouped)


def _build_pair(key: str, value: Value) -> KeyValue:
    if isinstance(value, str):
        any_value = AnyValue(string_value=encodable(value))
    elif isinstance(value, bool):
        any_value = AnyValue(bool_value=value)
    elif isinstance(value, int):
        any_value = AnyValue(int_value=value)
    else:
        any_value = AnyValue(double_value=value)
    return KeyValue(key=key, value=any_value)


def _encode_attribute(key: str, value: Value) -> bytes:
    return bytes(Span(attributes=[_build_pair(key, value)]).SerializeToString())


_kept_attribute = lru_cache(maxsize=4096, typed=True)(_encode_attribute)


@lru_cache(maxsize=1024)
def _encode_name(name: str, kind: Span.SpanKind.ValueType) -> bytes:
    return bytes(Span(name=encodable(name), kind=kind).SerializeToString())


def _field(tag: bytes, payload: bytes) -> bytes:
    """Return a field of variable length: its length comes in groups of seven bits, the lowest first."""
    length, groups = len(payload), bytearray(tag)
    while length > 127:
        groups.append(length & 127 | 128)
        length >>= 7
    groups.append(length)
    return bytes(groups) + payload
