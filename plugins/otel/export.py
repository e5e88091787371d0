"""Sends notes to a collector over OTLP: traces, metrics and logs. It is called from a thread, and may block it."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, set_span_in_context

from bot import Agent, Outcome, Receipt
from bot.models import ModelCall
from plugins.otel.config import OtelSettings, read_pairs
from plugins.otel.recording import CallNote, DeliveryNote, LogNote, Note, TurnNote
from plugins.otel.spans import SpanBuilder, describe_call, operation_of

SCOPE = "greenroom"
OWN_LOGGERS = frozenset({"bot", "adapters", "plugins"})  # the templates of their lines hold no words of people
SEVERITIES = {
    "DEBUG": SeverityNumber.DEBUG,
    "INFO": SeverityNumber.INFO,
    "WARNING": SeverityNumber.WARN,
    "ERROR": SeverityNumber.ERROR,
    "CRITICAL": SeverityNumber.FATAL,
}
LIBRARY_LOGGER = "opentelemetry"


class TelemetryExporter:
    """Turns the notes of one agent into telemetry and sends it; used by one thread at a time."""

    def __init__(self, settings: OtelSettings, agent: Agent) -> None:
        self._agent = agent
        self._captures_content = settings.otel_instrumentation_genai_capture_message_content
        attributes = {"service.name": settings.otel_service_name, "service.instance.id": str(uuid4())}
        self._resource = Resource.create({**read_pairs(settings.otel_resource_attributes), **attributes})
        self._scope = InstrumentationScope(SCOPE)
        self._builder = SpanBuilder(
            str(agent.id),
            agent.name,
            self._resource,
            self._scope,
            TraceIdRatioBased(settings.otel_traces_sampler_arg),
            self._captures_content,
            RandomIdGenerator(),
        )
        endpoint, headers = f"{settings.otel_exporter_otlp_endpoint}/v1", dict(settings.headers)
        traces, logs, metrics = None, None, None
        if settings.otel_traces_exporter != "none":
            traces = OTLPSpanExporter(endpoint=f"{endpoint}/traces", headers=headers)
        if settings.otel_logs_exporter != "none":
            logs = OTLPLogExporter(endpoint=f"{endpoint}/logs", headers=headers)
        if settings.otel_metrics_exporter != "none":
            exporter = OTLPMetricExporter(endpoint=f"{endpoint}/metrics", headers=headers)
            metrics = _Metrics(self._resource, exporter, agent.name, settings.otel_metric_export_interval)
        self._traces, self._logs, self._metrics = traces, logs, metrics

    def send(self, notes: Sequence[Note], *, includes_metrics: bool = False) -> str:
        """Send what notes say; return what the collector did not take, empty if it took all."""
        providers = {status.model: status.provider for status in self._agent.models.statuses() if status.model}
        refused = []
        with _without_library_logs():
            if self._traces is not None:
                spans = [span for note in notes for span in self._builder.build(note, providers)]
                if spans and self._traces.export(spans) is not SpanExportResult.SUCCESS:
                    refused.append("traces")
            if self._logs is not None:
                lines = [self._build_log(note) for note in notes if isinstance(note, LogNote)]
                if lines and self._logs.export(lines) is not LogRecordExportResult.SUCCESS:
                    refused.append("logs")
            if self._metrics is not None:
                self._metrics.record(notes, providers)
                if includes_metrics and not self._metrics.flush():
                    refused.append("metrics")
        return " and ".join(refused)

    def shutdown(self) -> None:
        """Close the connections to the collector."""
        with _without_library_logs():
            for exporter in (self._traces, self._logs, self._metrics):
                if exporter is not None:
                    exporter.shutdown()

    def _build_log(self, note: LogNote) -> ReadableLogRecord:
        line, at = note.line, round(note.line.at.timestamp() * 1e6) * 1000
        context = Context()
        if note.turn_id is not None:
            context = set_span_in_context(NonRecordingSpan(self._builder.context_of(note.turn_id)), context)
        attributes = {"logger.name": line.logger}
        if self._captures_content:
            body = line.text
            attributes |= {"exception.stacktrace": line.error} if line.error else {}
        else:
            body = line.template if line.logger.partition(".")[0] in OWN_LOGGERS else ""
        record = LogRecord(
            timestamp=at,
            observed_timestamp=at,
            context=context,
            severity_text=line.level,
            severity_number=SEVERITIES.get(line.level, SeverityNumber.UNSPECIFIED),
            body=body,
            attributes=attributes,
        )
        return ReadableLogRecord(record, self._resource, self._scope)


class _Metrics:
    """The instruments; the SDK sums up and sends them at its interval."""

    def __init__(self, resource: Resource, exporter: OTLPMetricExporter, agent_name: str, interval_ms: int) -> None:
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=interval_ms)
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._provider.get_meter(SCOPE)
        self._agent = {"gen_ai.agent.name": agent_name}
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

    def record(self, notes: Sequence[Note], providers: dict[str, str]) -> None:
        """Count what notes say."""
        for note in notes:
            if isinstance(note, Receipt):
                place = {**self._agent, "messaging.system": note.key.platform}
                self._messages.add(1, {**place, "greenroom.outcome": note.outcome.value, "greenroom.rule": note.rule})
                if note.outcome is Outcome.ANSWERED and note.closed_at is not None:
                    self._answers.record(max(0.0, (note.closed_at - note.received_at).total_seconds()), place)
            elif isinstance(note, DeliveryNote):
                part = note.delivery
                state = {"messaging.system": part.platform, "greenroom.delivery.state": part.state.value}
                self._parts.add(1, {**self._agent, **state})
            else:
                for call in _calls_of(note):
                    self._record_call(call, providers.get(call.model, ""))

    def _record_call(self, call: ModelCall, provider: str) -> None:
        attributes = {**self._agent, **describe_call(operation_of(call), call.model, provider)}
        failure = {"error.type": "_OTHER"} if call.error else {}
        self._durations.record(call.seconds, {**attributes, **failure})
        if call.is_counted:
            self._tokens.record(call.tokens_in, {**attributes, "gen_ai.token.type": "input"})
            self._tokens.record(call.tokens_out, {**attributes, "gen_ai.token.type": "output"})
            self._costs.add(call.cost or 0.0, attributes)

    def flush(self) -> bool:
        """Send the sums now; return whether the collector took them."""
        return self._provider.force_flush()

    def shutdown(self) -> None:
        """Send no more."""
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
