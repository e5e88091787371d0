"""Sends notes to a collector over OTLP: traces, metrics and logs. It is called from a thread, and may block it."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from http.client import HTTPException
from time import monotonic
from urllib.request import HTTPRedirectHandler, Request, build_opener
from uuid import uuid4

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.sdk.resources import Resource

from bot import Agent
from plugins.otel.config import OtelSettings, read_pairs
from plugins.otel.encoding import Attributes, build_attributes, encode_line, encode_line_fields, encode_request
from plugins.otel.metrics import Metrics
from plugins.otel.recording import LogNote, Note
from plugins.otel.spans import SpanBuilder, ids_of

SCOPE = "greenroom"
LOGGER_NAME = "logger.name"
TIMEOUT_SECONDS = 10.0
OWN_LOGGERS = frozenset({"bot", "adapters", "plugins"})  # the templates of their lines hold no words of people
SEVERITIES = {
    "DEBUG": SeverityNumber.SEVERITY_NUMBER_DEBUG,
    "INFO": SeverityNumber.SEVERITY_NUMBER_INFO,
    "WARNING": SeverityNumber.SEVERITY_NUMBER_WARN,
    "ERROR": SeverityNumber.SEVERITY_NUMBER_ERROR,
    "CRITICAL": SeverityNumber.SEVERITY_NUMBER_FATAL,
}


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
        self._metrics = Metrics() if settings.otel_metrics_exporter != "none" else None
        self._metrics_sent_at = monotonic()

    def send(self, notes: Sequence[Note], *, includes_metrics: bool = False) -> str:
        """Send what notes say, and the metrics at their interval or with `includes_metrics`.

        Return what the collector did not take, empty if it took all.
        """
        providers = {status.model: status.provider for status in self._agent.models.statuses() if status.model}
        refused = []
        if self._settings.otel_traces_exporter != "none" and not self._send_traces(notes, providers):
            refused.append("traces")
        if not self._send_logs([note for note in notes if isinstance(note, LogNote)]):
            refused.append("logs")
        if self._metrics is not None:
            self._metrics.record(notes, providers)
            if not self._send_metrics(self._metrics, is_due=includes_metrics):
                refused.append("metrics")
        return " and ".join(refused)

    def _send_traces(self, notes: Sequence[Note], providers: Mapping[str, str]) -> bool:
        spans = [span for note in notes for span in self._builder.build(note, providers)]
        return not spans or self._post("traces", encode_request(self._resource, self._scope, spans))

    def _send_metrics(self, metrics: Metrics, *, is_due: bool) -> bool:
        now = monotonic()
        if not is_due and now - self._metrics_sent_at < self._settings.otel_metric_export_interval / 1000:
            return True
        self._metrics_sent_at = now
        scoped = ScopeMetrics(scope=self._scope, metrics=metrics.build())
        grouped = ResourceMetrics(resource=self._resource, scope_metrics=[scoped])
        request = ExportMetricsServiceRequest(resource_metrics=[grouped])
        return not scoped.metrics or self._post("metrics", request.SerializeToString())

    def _send_logs(self, notes: Sequence[LogNote]) -> bool:
        lines = map(self._encode_line, notes)
        return not notes or self._post("logs", encode_request(self._resource, self._scope, lines))

    def _post(self, signal: str, body: bytes) -> bool:
        """Return whether the collector took a request."""
        headers = {**self._headers, "Content-Type": "application/x-protobuf"}
        request = Request(f"{self._endpoint}/{signal}", body, headers)
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                return 200 <= int(response.status) < 300
        except (OSError, HTTPException):  # refused, unreachable, or an answer that is not HTTP
            return False

    def _encode_line(self, note: LogNote) -> bytes:
        line = note.line
        if self._captures_content:
            attributes = {LOGGER_NAME: line.logger} | ({"exception.stacktrace": line.error} if line.error else {})
            fields = encode_line_fields(SEVERITIES.get(line.level, 0), line.level, line.text, attributes)
        else:
            fields = _template_fields(line.level, line.logger, line.template)
        ids = None if note.turn_id is None else ids_of(note.turn_id)
        return encode_line(round(line.at.timestamp() * 1e6) * 1000, ids, fields)


@lru_cache(maxsize=1024)
def _template_fields(level: str, logger: str, template: str) -> bytes:
    body = template if logger.partition(".")[0] in OWN_LOGGERS else ""
    return encode_line_fields(SEVERITIES.get(level, 0), level, body, {LOGGER_NAME: logger})
