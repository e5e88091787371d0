"""Spans are encoded as the library of the protocol would encode them."""

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from plugins.otel.encoding import Attributes, build_attributes, encode_request, encode_span

TRACE, ID, PARENT = bytes(range(16)), bytes(range(8)), bytes(range(8, 16))
FAILED = Status(code=Status.STATUS_CODE_ERROR, message="why")
VALUES: list[Attributes] = [
    {},
    {"text": "Ahoy", "empty": "", "yes": True, "no": False, "count": 0, "negative": -1, "ratio": 0.5},
    {"text": "a" * 127},
    {"text": "b" * 128, "half": "\ud800"},
    {"text": "ü" * 20_000, "greenroom.turn.id": "1"},
]


@pytest.mark.parametrize("attributes", VALUES)
@pytest.mark.parametrize("parent", [b"", PARENT])
@pytest.mark.parametrize("status", [None, FAILED])
def test_an_encoded_request_is_that_of_the_library(
    attributes: Attributes, parent: bytes, status: Status | None
) -> None:
    resource, scope = Resource(attributes=build_attributes({"service.name": "bot"})), InstrumentationScope(name="scope")
    kind = Span.SPAN_KIND_CLIENT
    encoded = encode_span("chat m", TRACE, (ID, parent), (5, 3), attributes, kind=kind, status=status)
    span = Span(
        trace_id=TRACE,
        span_id=ID,
        parent_span_id=parent,
        name="chat m",
        kind=kind,
        start_time_unix_nano=5,
        end_time_unix_nano=5,
        attributes=build_attributes(attributes),
        status=status,
    )
    scoped = ScopeSpans(scope=scope, spans=[span, span])
    request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scoped])])
    assert encode_request(resource, scope, [encoded, encoded]) == request.SerializeToString()
