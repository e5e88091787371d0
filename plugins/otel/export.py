"""Sends notes to a collector over OTLP: traces, metrics and logs. It is called from a thread, and may block it."""

import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from urllib.request import HTTPRedirectHandler, Request, build_opener
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from bot import Agent, Outcome, Receipt
from bot.models import ModelCall
from plugins.otel.config import OtelSettings, read_pairs
from plugins.otel.encoding import Attributes, build_attributes, encodable, encode_request
from plugins.otel.recording import CallNote, DeliveryNote, LogNote, Note, TurnNote
from plugins.otel.spans import SpanBuilder, describe_call, operation_of, span_id_of, trace_id_of

SCOPE = "greenroom"
TIMEOUT_SECONDS = 10.0
OWN_LOGGERS = frozenset({"bot", "adapters", "plugins"})  # the templates of their lines hold no words of people
SEVERITIES = {
    "DEBUG": SeverityNumber.SEVERITY_NUMBER_DEBUG,
    "INFO": SeverityNumber.SEVERITY_NUMBER_INFO,
    "WARNING": SeverityNumber.SEVERITY_NUMBER_WARN,
    "ERROR": SeverityNumber.SEVERITY_NUMBER_ERROR,
    "CRITICAL": SeverityNumber.SEVERITY_NUMBER_FATAL,
}
LIBRARY_LOGGER = "opentelemetry"


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: the headers may hold a key."""

    def redirect_request(self, *args: object) -> None:
        """Refuse it."""


class TelemetryExporter:
    """Turns the notes of one agent into telemetry and sends it; used by one thread at a time."""

    def __init__(self, settings: OtelSettings, agent: Agent) -> None:
        self._agent = agent
        self._settings = settings
        self._captures_content = settings.otel_instrumentation_genai_capture_message_content
        self._endpoint, self._headers = f"{settings.otel_exporter_otlp_endpoint}/v1", dict(settings.headers)
        attributes = {
            "service.name": settings.otel_service_name,
            "service.instance.id": str(uuid4()),
            "gen_ai.agent.id": str(agent.id),
            "gen_ai.agent.name": agent.name,
        }
        resource = Resource.create({**read_pairs(settings.otel_resource_attributes), **attributes})
        texts: Attributes = {key: str(value) for key, value in resource.attributes.items()}
        self._resource = ResourceMessage(attributes=build_attributes(texts))
        self._scope = InstrumentationScope(name=SCOPE)
        self._opener = build_opener(_NoRedirects())
        self._builder = SpanBuilder(agent.name, settings.otel_traces_sampler_arg, self._captures_content)
        self._metrics: _Metrics | None = None
        if settings.otel_metrics_exporter != "none":
            exporter = OTLPMetricExporter(
                endpoint=f"{self._endpoint}/metrics",
                headers=self._headers,
                certificate_file=os.environ.get("SSL_CERT_FILE"),  # which the others use too
            )
            self._metrics = _Metrics(resource, exporter, settings.otel_metric_export_interval)

    def send(self, notes: Sequence[Note], *, includes_metrics: bool = False) -> str:
        """Send what notes say; return what the collector did not take, empty if it took all."""
        providers = {status.model: status.provider for status in self._agent.models.statuses() if status.model}
        refused = []
        if self._settings.otel_traces_exporter != "none" and not self._send_traces(notes, providers):
            refused.append("traces")
        if not self._send_logs([note for note in notes if isinstance(note, LogNote)]):
            refused.append("logs")
        if self._metrics is not None:
            self._metrics.record(notes, providers)
            if includes_metrics and not self._metrics.flush():
                refused.append("metrics")
        return " and ".join(refused)

    def shutdown(self) -> None:
        """Send no more metrics."""
        if self._metrics is not None:
            self._metrics.shutdown()

    def _send_traces(self, notes: Sequence[Note], providers: Mapping[str, str]) -> bool:
        spans = [span for note in notes for span in self._builder.build(note, providers)]
        return not spans or self._post("traces", encode_request(self._resource, self._scope, spans))

    def _send_logs(self, notes: Sequence[LogNote]) -> bool:
        scoped = ScopeLogs(scope=self._scope, log_records=map(self._build_log, notes))
        grouped = ResourceLogs(resource=self._resource, scope_logs=[scoped])
        return not notes or self._post("logs", ExportLogsServiceRequest(resource_logs=[grouped]).SerializeToString())

    def _post(self, signal: str, body: bytes) -> bool:
        """Return whether the collector took a request."""
        headers = {**self._headers, "Content-Type": "application/x-protobuf"}
        request = Request(f"{self._endpoint}/{signal}", body, headers)
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                return 200 <= int(response.status) < 300
        except (OSError, HTTPException):  # refused, unreachable, or an answer that is not HTTP
            return False

    def _build_log(self, note: LogNote) -> LogRecord:
        line, at = note.line, round(note.line.at.timestamp() * 1e6) * 1000
        attributes: Attributes = {"logger.name": line.logger}
        if self._captures_content:
            body = line.text
            attributes |= {"exception.stacktrace": line.error} if line.error else {}
        else:
            body = line.template if line.logger.partition(".")[0] in OWN_LOGGERS else ""
        return LogRecord(
            time_unix_nano=at,
            observed_time_unix_nano=at,
            trace_id=trace_id_of(note.turn_id) if note.turn_id is not None else b"",
            span_id=span_id_of(note.turn_id) if note.turn_id is not None else b"",
            severity_text=line.level,
            severity_number=SEVERITIES.get(line.level, SeverityNumber.SEVERITY_NUMBER_UNSPECIFIED),
            body=AnyValue(string_value=encodable(body)),
            attributes=build_attributes(attributes),
        )


class _Metrics:
    """The instruments; the SDK sums up and sends them at its interval."""

    def __init__(self, resource: Resource, exporter: OTLPMetricExporter, interval_ms: int) -> None:
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=interval_ms)
        self._provider = MeterProvider(
            [reader], resource, exemplar_filter=AlwaysOffExemplarFilter(), shutdown_on_exit=False
        )
        meter = self._provider.get_meter(SCOPE)
        self._messages = meter.create_counter("greenroom.messages", "{message}", "Messages by outcome and rule.")
        self._answers = meter.create_histogram(
            "greenroom.answer.duration", "s", "From a message's arrival to the end of the work on its answer."
        )
        self._parts = meter.create_counter("greenroom.deliveries", "{part}", "Parts of replies by state.")
        self._costs = meter.create_counter("greenroom.model.cost", "USD", "What the calls of models have cost.")
        self._durations = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "Durations of the calls of models."
        )
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of the calls of models.")

    def record(self, notes: Sequence[Note], providers: Mapping[str, str]) -> None:
        """Count what notes say."""
        messages, parts = Counter[tuple[str, str, str]](), Counter[tuple[str, str]]()
        for note in notes:
            if isinstance(note, Receipt):
                platform = note.key.platform
                messages[platform, note.outcome.value, note.rule] += 1
                if note.outcome is Outcome.ANSWERED and note.closed_at is not None:
                    seconds = max(0.0, (note.closed_at - note.received_at).total_seconds())
                    self._answers.record(seconds, {"messaging.system": platform})
            elif isinstance(note, DeliveryNote):
                parts[note.delivery.platform, note.delivery.state.value] += 1
            else:
                for call in _calls_of(note):
                    self._record_call(call, providers.get(call.model, ""))
        for (platform, outcome, rule), count in messages.items():
            reason = {"greenroom.outcome": outcome, "greenroom.rule": rule}
            self._messages.add(count, {"messaging.system": platform, **reason})
        for (platform, state), count in parts.items():
            self._parts.add(count, {"messaging.system": platform, "greenroom.delivery.state": state})

    def _record_call(self, call: ModelCall, provider: str) -> None:
        attributes = describe_call(operation_of(call), call.model, provider)
        failure: Attributes = {"error.type": "_OTHER"} if call.error else {}
        self._durations.record(call.seconds, attributes | failure)
        if call.is_counted:
            self._tokens.record(call.tokens_in, {**attributes, "gen_ai.token.type": "input"})
            self._tokens.record(call.tokens_out, {**attributes, "gen_ai.token.type": "output"})
            self._costs.add(call.cost or 0.0, attributes)

    def flush(self) -> bool:
        """Send the sums now; return whether the collector took them."""
        with _without_library_logs():
            return self._provider.force_flush()

    def shutdown(self) -> None:
        """Send no more."""
        with _without_library_logs():
            self._provider.shutdown()


def _calls_of(note: Note) -> Sequence[ModelCall]:
    if isinstance(note, TurnNote):
        return note.calls
    return (note.call,) if isinstance(note, CallNote) else ()


@contextmanager
def _without_library_logs() -> Iterator[None]:
    """Silence the SDK's own lines for the block: an outage of the collector is logged once, by the service."""
    library = logging.getLogger(LIBRARY_LOGGER)
    level = library.level
    library.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        library.setLevel(level)
