"""Traces, metrics and logs for a collector of OpenTelemetry, over OTLP."""

from bot import Plugin
from plugins.otel.config import OtelSettings, missing_settings, privacy_statement
from plugins.otel.service import Telemetry

plugin = Plugin(
    "otel",
    "Traces, metrics and logs for the collector of OpenTelemetry at OTEL_EXPORTER_OTLP_ENDPOINT.",
    services=[Telemetry],
    settings=OtelSettings,
    missing_settings=missing_settings,
    privacy_statement=privacy_statement,
)
