"""The signals of one agent, traces, metrics and logs: the SDK's providers, and its exporters over OTLP."""

import logging
import ssl
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import requests
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from requests.adapters import HTTPAdapter

from bot import Agent, Outcome
from bot.events import DeliveryFinished, MessageClosed, ModelUsed, TurnEnded
from bot.models import ModelCall
from bot.platform import LogLine, current_run, find_log_buffer
from plugins.otel.config import OtelSettings, read_pairs
from plugins.otel.traces import SCOPE, Traces, build_context, build_ids, encodable, label_call, to_ns

logger = logging.getLogger(__name__)
LISTENER_NAME = "otel"  # the lines of the log are those of the whole process: only the first agent sends them
OWN_LOGGERS = frozenset({"bot", "adapters", "plugins"})  # the templates of their lines hold no words of people
EXPORTING_LOGGERS = ("opentelemetry", "urllib3")  # a line about sending would be one more to send
SEVERITIES = {
    "DEBUG": SeverityNumber.DEBUG,
    "INFO": SeverityNumber.INFO,
    "WARNING": SeverityNumber.WARN,
    "ERROR": SeverityNumber.ERROR,
    "CRITICAL": SeverityNumber.FATAL,
}
# The bounds are those that the semantic conventions name for the two metrics of model calls.
SECONDS = tuple(0.01 * 2**power for power in range(14))
TOKENS = tuple(float(4**power) for power in range(14))


class _ReportsOutages:
    """Mixed into an exporter: logs once that data are dropped, and once that the collector takes them again."""

    signal: str
    _is_failing = False

    def export(self, *args: Any, **kwargs: Any) -> Any:
        """Return whether the collector took the data, after the retries of the SDK."""
        result = super().export(*args, **kwargs)  # type: ignore[misc]  # that of the exporter
        if result.name != "SUCCESS" and not self._is_failing:
            logger.warning(
                "the collector of OpenTelemetry does not take %s: what cannot be sent is dropped", self.signal
            )
        elif result.name == "SUCCESS" and self._is_failing:
            logger.warning("the collector of OpenTelemetry takes %s again", self.signal)
        self._is_failing = result.name != "SUCCESS"
        return result


class _SpanExporter(_ReportsOutages, OTLPSpanExporter):
    signal = "traces"


class _MetricExporter(_ReportsOutages, OTLPMetricExporter):
    signal = "metrics"


class _LogExporter(_ReportsOutages, OTLPLogExporter):
    signal = "logs"


class Metrics:
    """Counts messages, parts of replies and model calls; sums and distributions are those since the start."""

    def __init__(self, agent: Agent, provider: MeterProvider) -> None:
        self._agent = agent
        self.provider = provider
        meter = provider.get_meter(SCOPE)
        self._messages = meter.create_counter("greenroom.messages", "{message}", "Messages by outcome and rule.")
        self._parts = meter.create_counter("greenroom.deliveries", "{part}", "Parts of replies by state.")
        self._costs = meter.create_counter("greenroom.model.cost", "USD", "What the calls of models have cost.")
        self._answers = meter.create_histogram(
            "greenroom.answer.duration",
            "s",
            "From a message's arrival to the end of the work on its answer.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._durations = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Durations of the calls of models.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of the calls of models.",
            explicit_bucket_boundaries_advisory=TOKENS,
        )

    def subscribe(self, agent: Agent) -> list[Callable[[], None]]:
        """Count from now on; return what ends it."""
        subscribe = agent.events.subscribe
        return [
            subscribe(MessageClosed, self._on_closed, at_once=True),
            subscribe(TurnEnded, self._on_turn, at_once=True),
            subscribe(DeliveryFinished, self._on_delivery, at_once=True),
            subscribe(ModelUsed, self._on_model, at_once=True),
        ]

    def _on_closed(self, event: MessageClosed) -> None:
        receipt = event.receipt
        system = {"messaging.system": receipt.key.platform}
        outcome = {"greenroom.outcome": receipt.outcome.value, "greenroom.rule": receipt.rule}
        self._messages.add(1, system | {key: value for key, value in outcome.items() if value})
        if receipt.outcome is Outcome.ANSWERED and receipt.seconds is not None:
            self._answers.record(max(0.0, receipt.seconds), system)

    def _on_delivery(self, event: DeliveryFinished) -> None:
        delivery = event.delivery
        self._parts.add(1, {"messaging.system": delivery.platform, "greenroom.delivery.state": delivery.state.value})

    def _on_turn(self, event: TurnEnded) -> None:
        for call in event.turn.inputs[-1].calls:
            self._count_call(call)

    def _on_model(self, event: ModelUsed) -> None:
        if event.run_id is None:  # else its turn counts it
            self._count_call(event.call)

    def _count_call(self, call: ModelCall) -> None:
        labels = label_call(self._agent, call)
        self._durations.record(call.seconds, labels | ({"error.type": "_OTHER"} if call.error else {}))
        if call.is_counted:
            self._tokens.record(call.tokens_in, labels | {"gen_ai.token.type": "input"})
            self._tokens.record(call.tokens_out, labels | {"gen_ai.token.type": "output"})
            self._costs.add(call.cost or 0.0, labels)


class Logs:
    """Exports the lines of the log: of the bot's own without their values, of libraries without their text.

    With content they are whole, without the bot's secrets.
    """

    def __init__(self, provider: LoggerProvider, *, captures_content: bool) -> None:
        self.provider = provider
        self._captures_content = captures_content
        self._logger = provider.get_logger(SCOPE)

    def subscribe(self, agent: Agent) -> list[Callable[[], None]]:
        """Export the lines from now on; return what ends it."""
        buffer = find_log_buffer()
        return [] if buffer is None else [buffer.subscribe(self._on_line, name=LISTENER_NAME)]

    def _on_line(self, line: LogLine) -> None:
        if line.logger.startswith(EXPORTING_LOGGERS):
            return
        attributes, run = {"logger.name": line.logger}, current_run.get()
        if self._captures_content:
            body = encodable(line.text)
            attributes |= {"exception.stacktrace": encodable(line.error)} if line.error else {}
        else:
            body = line.template if line.logger.partition(".")[0] in OWN_LOGGERS else ""
        self._logger.emit(
            LogRecord(
                timestamp=to_ns(line.at),
                observed_timestamp=to_ns(line.at),
                context=None if run is None else build_context(build_ids(run.id, run.id)),
                severity_text=line.level,
                severity_number=SEVERITIES.get(line.level, SeverityNumber.UNSPECIFIED),
                body=body,
                attributes=attributes,
            )
        )


def build_signals(settings: OtelSettings, agent: Agent) -> list[Traces | Metrics | Logs]:
    """Return the signals that are sent; their threads run until `provider.shutdown()`.

    What the settings do not name is that of the SDK's variables, such as OTEL_EXPORTER_OTLP_COMPRESSION.
    """
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)  # they log each failure: _ReportsOutages
    attributes = {
        "service.name": settings.otel_service_name,
        "service.instance.id": str(uuid4()),
        "gen_ai.agent.id": str(agent.id),
        "gen_ai.agent.name": agent.name,
    }
    resource = Resource.create({**read_pairs(settings.otel_resource_attributes), **attributes})
    captures_content = settings.otel_instrumentation_genai_capture_message_content
    delay = settings.otel_bsp_schedule_delay
    signals: list[Traces | Metrics | Logs] = []
    if settings.otel_traces_exporter != "none":
        spans = _SpanExporter(**_connect(settings, "traces"))
        signals.append(
            Traces(
                agent,
                resource,
                BatchSpanProcessor(spans, schedule_delay_millis=delay),
                share=settings.otel_traces_sampler_arg,
                captures_content=captures_content,
            )
        )
    if settings.otel_metrics_exporter != "none":
        reader = PeriodicExportingMetricReader(
            _MetricExporter(**_connect(settings, "metrics")), settings.otel_metric_export_interval
        )
        signals.append(Metrics(agent, MeterProvider([reader], resource, shutdown_on_exit=False)))
    if settings.otel_logs_exporter != "none":
        provider = LoggerProvider(resource, shutdown_on_exit=False)
        records = _LogExporter(**_connect(settings, "logs"))
        provider.add_log_record_processor(BatchLogRecordProcessor(records, schedule_delay_millis=delay))
        signals.append(Logs(provider, captures_content=captures_content))
    return signals


class _CollectorAdapter(HTTPAdapter):
    """Verifies with SSL_CERT_FILE, else with the system's certificates, like the bot's other connections.

    A redirect is an error: the headers may hold a key, and the data have not arrived.
    """

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Return the answer to a request. Raises requests.RequestException."""
        paths = ssl.get_default_verify_paths()
        verify = paths.cafile or paths.capath or True
        response = super().send(request, *args, **{**kwargs, "verify": verify})
        if 300 <= response.status_code < 400:
            response.close()
            raise requests.TooManyRedirects("the collector redirects to another address", response=response)
        return response


def _connect(settings: OtelSettings, signal: str) -> dict[str, Any]:
    """Return where and how an exporter sends."""
    session = requests.Session()
    session.auth = _keep_headers
    session.mount("http://", _CollectorAdapter())
    session.mount("https://", _CollectorAdapter())
    endpoint = f"{settings.otel_exporter_otlp_endpoint}/v1/{signal}"
    return {"endpoint": endpoint, "headers": settings.headers, "session": session}


def _keep_headers(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Return the request as it is; without this the headers would be overwritten from ~/.netrc."""
    return request
