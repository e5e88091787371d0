"""Spans and lines of the log in the wire format of OTLP (opentelemetry-proto 1), put together from parts encoded once.

The library's message objects cost many times as much CPU time.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from struct import Struct

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

Value = str | int | float | bool
Attributes = dict[str, Value]
Ids = tuple[bytes, bytes]
# A field begins with its number and type, in one byte; a length follows where it has none of its own.
SPAN_HEAD, ROOT_HEAD = Struct("<2s16s2s8s2s8scQcQ"), Struct("<2s16s2s8scQcQ")
TRACE_ID, SPAN_ID, PARENT, START, END, ATTRIBUTE = b"\x0a\x10", b"\x12\x08", b"\x22\x08", b"\x39", b"\x41", b"\x4a"
LINE_TIMES, LINE_IDS = Struct("<cQcQ"), Struct("<2s16s2s8s")
LINE_AT, LINE_OBSERVED, LINE_TRACE_ID, LINE_SPAN_ID = b"\x09", b"\x59", b"\x4a\x10", b"\x52\x08"
LEVEL_NUMBER, LEVEL_TEXT, LINE_BODY, LINE_ATTRIBUTE = b"\x10", b"\x1a", b"\x2a", b"\x32"
ITEM_OF_SCOPE, SCOPE_OF_RESOURCE, RESOURCE_OF_REQUEST = b"\x12", b"\x12", b"\x0a"
KEY, VALUE = b"\x0a", b"\x12"
TEXT, TRUE, FALSE, WHOLE, FRACTION = b"\x0a", b"\x10\x01", b"\x10\x00", b"\x18", Struct("<cd")
WHOLE_BITS = 2**64 - 1


def build_attributes(attributes: Mapping[str, Value]) -> list[KeyValue]:
    """Return attributes as the library has them."""
    return [KeyValue(key=key, value=AnyValue.FromString(_encode_value(value))) for key, value in attributes.items()]


def encode_span(trace_id: bytes, span_id: bytes, parent_id: bytes, start: int, end: int, fields: bytes) -> bytes:
    """Return a span as a field of its scope; `start` and `end` in nanoseconds.

    A trace has an id of 16 bytes, a span one of 8; that of the span above is empty for the first one. `fields` are
    all others, encoded.
    """
    if end < start:
        end = start
    if parent_id:
        head = SPAN_HEAD.pack(TRACE_ID, trace_id, SPAN_ID, span_id, PARENT, parent_id, START, start, END, end)
    else:
        head = ROOT_HEAD.pack(TRACE_ID, trace_id, SPAN_ID, span_id, START, start, END, end)
    return b"".join((ITEM_OF_SCOPE, _encode_number(len(head) + len(fields)), head, fields))


def encode_span_fields(name: str, attributes: Mapping[str, Value], kind: int = Span.SPAN_KIND_INTERNAL) -> bytes:
    """Return what spans of one sort have in common; worth keeping."""
    encoded = [encode_attribute(key, value) for key, value in attributes.items()]
    return bytes(Span(name=_encodable(name), kind=Span.SpanKind.ValueType(kind)).SerializeToString()) + b"".join(
        encoded
    )


def encode_attribute(key: str, value: Value) -> bytes:
    """Return an attribute as a field of a span."""
    return _encode_field(ATTRIBUTE, _encode_pair(key, value))


@lru_cache(maxsize=4096)
def encode_count(key: str, count: int) -> bytes:
    """Return an attribute with a number that is likely to come again as a field of a span."""
    return encode_attribute(key, count)


def encode_failure(message: str = "") -> bytes:
    """Return the status of what failed as a field of a span."""
    status = Status(code=Status.STATUS_CODE_ERROR, message=_encodable(message))
    return bytes(Span(status=status).SerializeToString())


def encode_event(at: int, name: str, attributes: Mapping[str, Value]) -> bytes:
    """Return an event as a field of a span."""
    event = Span.Event(time_unix_nano=at, name=name, attributes=build_attributes(attributes))
    return bytes(Span(events=[event]).SerializeToString())


def encode_line(at: int, ids: Ids | None, fields: bytes) -> bytes:
    """Return a line of the log as a field of its scope; `ids` are those of its trace and span, `at` in nanoseconds."""
    head = LINE_TIMES.pack(LINE_AT, at, LINE_OBSERVED, at)
    found = b"" if ids is None else LINE_IDS.pack(LINE_TRACE_ID, ids[0], LINE_SPAN_ID, ids[1])
    return _encode_field(ITEM_OF_SCOPE, head + fields + found)


def encode_line_fields(number: int, level: str, body: str, attributes: Mapping[str, Value]) -> bytes:
    """Return what a line of the log says, without when and where; `number` is that of the level in the protocol."""
    fields = [LEVEL_NUMBER, _encode_number(number), _encode_field(LEVEL_TEXT, _encode_text(level))]
    fields.append(_encode_field(LINE_BODY, _encode_value(body)))
    fields += [_encode_field(LINE_ATTRIBUTE, _encode_pair(key, value)) for key, value in attributes.items()]
    return b"".join(fields)


def encode_request(resource: Resource, scope: InstrumentationScope, items: Iterable[bytes]) -> bytes:
    """Return the request that exports spans or lines of one scope; both kinds of request have the same fields."""
    scoped = ScopeSpans(scope=scope).SerializeToString() + b"".join(items)
    grouped = ResourceSpans(resource=resource).SerializeToString() + _encode_field(SCOPE_OF_RESOURCE, scoped)
    return _encode_field(RESOURCE_OF_REQUEST, grouped)


def _encode_pair(key: str, value: Value) -> bytes:
    return _encode_key(key) + _encode_field(VALUE, _encode_value(value))


@lru_cache(maxsize=1024)
def _encode_key(key: str) -> bytes:
    return _encode_field(KEY, _encode_text(key))


def _encode_value(value: Value) -> bytes:
    if isinstance(value, str):
        return _encode_field(TEXT, _encode_text(value))
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int):
        return WHOLE + _encode_number(value & WHOLE_BITS)
    return FRACTION.pack(b"\x21", value)


def _encode_field(tag: bytes, payload: bytes) -> bytes:
    """Return a field of variable length."""
    return tag + _encode_number(len(payload)) + payload


@lru_cache(maxsize=4096)
def _encode_number(number: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first."""
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _encode_text(text: str) -> bytes:
    """Return a text as the protocol can hold it: halves of characters are replaced."""
    return text.encode("utf-8", "replace")


def _encodable(text: str) -> str:
    return _encode_text(text).decode("utf-8")
