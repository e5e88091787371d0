"""What the exported metrics count: sums and distributions since the start."""

import asyncio

import pytest

from bot import new_id, system_clock
from bot.models import ModelCall
from plugins.otel.metrics import MAX_LABELS, SECONDS, Metrics
from plugins.otel.recording import CallNote
from plugins.otel.service import Telemetry
from tests.plugins.otel.test_otel import Collector, collector, observed  # noqa: F401  # a fixture


def call_note(*, model: str = "m", seconds: float = 1.0, tokens: int = 10) -> CallNote:
    """Return the note of a call."""
    call = ModelCall("TEXT_LARGE", "reply", model, tokens_in=tokens, tokens_out=1, seconds=seconds, cost=0.5)
    return CallNote(new_id(), call, system_clock())


def test_a_distribution_holds_count_sum_extremes_and_the_bounds_of_the_conventions() -> None:
    metrics = Metrics()
    metrics.record([call_note(seconds=seconds) for seconds in (0.01, 0.011, 3.0, 1000.0)], {})
    [durations] = [item for item in metrics.build() if item.name == "gen_ai.client.operation.duration"]
    [point] = durations.histogram.data_points
    assert (point.count, point.sum, point.min, point.max) == (4, pytest.approx(1003.021), 0.01, 1000.0)
    assert list(point.explicit_bounds) == list(SECONDS)
    assert SECONDS[-1] == pytest.approx(81.92)
    filled = {index: count for index, count in enumerate(point.bucket_counts) if count}
    assert filled == {0: 1, 1: 1, 9: 1, 14: 1}  # an upper bound belongs to its interval


def test_labels_beyond_the_limit_are_counted_without_labels() -> None:
    metrics = Metrics()
    metrics.record([call_note(model=f"m{number}") for number in range(MAX_LABELS + 5)], {})
    found = {item.name: item for item in metrics.build()}
    counts = [len(point.attributes) for point in found["greenroom.model.cost"].sum.data_points]
    assert (len(counts), counts.count(0)) == (MAX_LABELS + 1, 1)
    [rest] = [p for p in found["gen_ai.client.operation.duration"].histogram.data_points if not p.attributes]
    assert rest.count == 5


async def test_metrics_are_sent_at_their_interval_and_go_on_after_an_outage(
    collector: Collector,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("plugins.otel.export.monotonic", lambda: now)
    async with observed(collector, settings={"OTEL_METRIC_EXPORT_INTERVAL": "60000"}) as harness:
        telemetry = harness.agent.services[Telemetry]
        await harness.send("Hello")
        await asyncio.to_thread(telemetry._send)
        assert not collector.metrics
        now, collector.status = 60.0, 503
        await asyncio.to_thread(telemetry._send)
        now, collector.status = 120.0, 200
        await asyncio.to_thread(telemetry._send)
        [point] = collector.metrics["greenroom.messages"].sum.data_points
        assert point.as_int == 1
        assert point.start_time_unix_nano < point.time_unix_nano
