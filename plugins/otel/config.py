"""The settings of the otel plugin: the standard variables of OpenTelemetry."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Literal
from urllib.parse import unquote

from pydantic import AfterValidator, Field, SecretStr

from bot import CommaList, Secret, Settings, SettingsModel
from bot.models import host_label
from bot.platform import BaseUrl, install_command

LIBRARIES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
Exporter = Literal["otlp", "none"]


def _check_pairs(secret: SecretStr) -> SecretStr:
    read_pairs(secret.get_secret_value().split(","))
    return secret


class OtelSettings(SettingsModel):
    """Where traces, metrics and logs are sent. Only the operator sets it."""

    CHARACTER_SETTINGS = frozenset()

    otel_exporter_otlp_endpoint: BaseUrl | None = Field(
        None,
        description="The address of a collector of OpenTelemetry that takes OTLP over HTTP, such as "
        "http://127.0.0.1:4318; traces, metrics and logs are sent to it. See docs/observe.md.",
    )
    otel_exporter_otlp_headers: Annotated[Secret, AfterValidator(_check_pairs)] | None = Field(
        None, description="Headers of every request to the collector: name=value,name=value."
    )
    otel_service_name: str = Field("greenroom", description="The name of this service in traces, metrics and logs.")
    otel_resource_attributes: CommaList = Field(
        (), description="Further attributes of everything that is sent: name=value,name=value."
    )
    otel_traces_exporter: Exporter = Field("otlp", description="Whether traces are sent: otlp or none.")
    otel_metrics_exporter: Exporter = Field("otlp", description="Whether metrics are sent: otlp or none.")
    otel_logs_exporter: Exporter = Field("otlp", description="Whether logs are sent: otlp or none.")
    otel_traces_sampler_arg: float = Field(
        1.0, ge=0, le=1, description="The share of messages of which traces are sent, from 0 to 1."
    )
    otel_bsp_schedule_delay: int = Field(
        5000, ge=100, le=600_000, description="After how many milliseconds what was noted is sent."
    )
    otel_metric_export_interval: int = Field(
        60_000, ge=1000, le=3_600_000, description="After how many milliseconds metrics are sent."
    )
    otel_instrumentation_genai_capture_message_content: bool = Field(
        False,
        description="Whether prompts, replies, reasons and the texts of log lines are sent too. They contain what "
        "people write.",
    )
    otel_sdk_disabled: bool = Field(False, description="Whether nothing is sent at all.")

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of requests to the collector."""
        secret = self.otel_exporter_otlp_headers
        return {} if secret is None else read_pairs(secret.get_secret_value().split(","))


def read_pairs(items: CommaList | list[str]) -> dict[str, str]:
    """Return the pairs of texts such as `name=value`; values may be percent-encoded. Raises ValueError."""
    pairs = {}
    for item in filter(None, (item.strip() for item in items)):
        name, separator, value = item.partition("=")
        if not (name.strip() and separator):
            raise ValueError("it must be name=value,name=value")
        pairs[name.strip()] = unquote(value.strip())
    return pairs


def missing_settings(settings: Settings) -> str:
    """Return why nothing can be sent; empty if it can."""
    loaded = settings.load(OtelSettings)
    if loaded.otel_exporter_otlp_endpoint is None:
        return f"{ENDPOINT_VARIABLE} is not set"
    if loaded.otel_sdk_disabled:
        return "OTEL_SDK_DISABLED is set"
    if not _is_installed():
        return f"{ENDPOINT_VARIABLE} is set, but the SDK of OpenTelemetry is not installed: {install_command('otel')}"
    return ""


def _is_installed() -> bool:
    try:
        return all(find_spec(name) is not None for name in LIBRARIES)
    except ModuleNotFoundError:  # of the package that contains it
        return False


def privacy_statement(settings: Settings) -> str:
    """Return what is sent where; empty where it holds no words of people."""
    loaded = settings.load(OtelSettings)
    if not loaded.otel_instrumentation_genai_capture_message_content:
        return ""
    host = host_label(loaded.otel_exporter_otlp_endpoint or "")
    return f"The operator's monitoring at {host} receives your messages and my replies."
