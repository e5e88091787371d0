"""`GET /metrics`: the figures of the process for Prometheus."""

from adapters.web.metrics.api import PrometheusApi

__all__ = ["PrometheusApi"]
