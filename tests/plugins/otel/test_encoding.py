"""Spans and lines of the log are encoded as the library of the protocol would encode them."""

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from plugins.otel.encoding import (
    Attributes,
    build_attributes,
    encode_event,
    encode_failure,
    encode_line,
    encode_line_fields,
    encode_request,
    encode_span,
    encode_span_fields,
)

TRACE, ID, PARENT = bytes(range(16)), bytes(range(8)), bytes(range(8, 16))
FAILED = Status(code=Status.STATUS_CODE_ERROR, message="why")
VALUES: list[Attributes] = [
    {},
    {"text": "Ahoy", "empty": "", "yes": True, "no": False, "count": 0, "negative": -1, "large": 2**62, "ratio": 0.5},
    {"text": "a" * 127},
    {"text": "b" * 128, "half": "\ud800"},
    {"text": "ü" * 20_000, "greenroom.turn.id": "1"},
]
RESOURCE, SCOPE = Resource(attributes=build_attributes({"service.name": "bot"})), InstrumentationScope(name="scope")


def expected_attributes(attributes: Attributes) -> list[KeyValue]:
    """Return attributes built by the library alone."""
    fields = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
    return [
        KeyValue(key=key, value=AnyValue(**{fields[type(value)]: "?" if value == "\ud800" else value}))  # type: ignore[arg-type]  # as its type
        for key, value in attributes.items()
    ]


@pytest.mark.parametrize("attributes", VALUES)
@pytest.mark.parametrize("parent", [b"", PARENT])
@pytest.mark.parametrize("status", [None, FAILED])
def test_an_encoded_request_of_spans_is_that_of_the_library(
    attributes: Attributes, parent: bytes, status: Status | None
) -> None:
    event = Span.Event(time_unix_nano=4, name="event", attributes=expected_attributes(attributes))
    fields = encode_span_fields("chat m", attributes, Span.SPAN_KIND_CLIENT) + encode_event(4, "event", attributes)
    if status is not None:
        fields += encode_failure(status.message)
    encoded = encode_span(TRACE, ID, parent, 5, 3, fields)
    span = Span(
        trace_id=TRACE,
        span_id=ID,
        parent_span_id=parent,
        name="chat m",
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=5,
        end_time_unix_nano=5,
        attributes=expected_attributes(attributes),
        events=[event],
        status=status,
    )
    scoped = ScopeSpans(scope=SCOPE, spans=[span, span])
    request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=RESOURCE, scope_spans=[scoped])])
    assert ExportTraceServiceRequest.FromString(encode_request(RESOURCE, SCOPE, [encoded, encoded])) == request


@pytest.mark.parametrize("attributes", VALUES)
@pytest.mark.parametrize("ids", [None, (TRACE, ID)])
def test_an_encoded_request_of_lines_is_that_of_the_library(
    attributes: Attributes, ids: tuple[bytes, bytes] | None
) -> None:
    fields = encode_line_fields(SeverityNumber.SEVERITY_NUMBER_INFO, "INFO", "message %s: ü", attributes)
    encoded = encode_line(7, ids, fields)
    line = LogRecord(
        time_unix_nano=7,
        observed_time_unix_nano=7,
        trace_id=ids[0] if ids else b"",
        span_id=ids[1] if ids else b"",
        severity_text="INFO",
        severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
        body=AnyValue(string_value="message %s: ü"),
        attributes=expected_attributes(attributes),
    )
    scoped = ScopeLogs(scope=SCOPE, log_records=[line, line])
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(resource=RESOURCE, scope_logs=[scoped])])
    assert ExportLogsServiceRequest.FromString(encode_request(RESOURCE, SCOPE, [encoded, encoded])) == request


@pytest.mark.parametrize("attributes", VALUES)
def test_attributes_of_resources_and_metrics_are_those_of_the_library(attributes: Attributes) -> None:
    assert build_attributes(attributes) == expected_attributes(attributes)
