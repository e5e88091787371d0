"""What the exported metrics count: sums and distributions since the start."""

import pytest

from bot import new_id
from bot.events import ModelUsed
from bot.models import ModelCall
from plugins.otel.signals import SECONDS
from tests.plugins.otel.test_otel import Collector, collector, flush, observed  # noqa: F401  # a fixture


def model_used(*, model: str = "m", seconds: float = 1.0) -> ModelUsed:
    """Return a call that belongs to no message."""
    call = ModelCall("TEXT_LARGE", "reply", model, tokens_in=10, tokens_out=1, seconds=seconds, cost=0.5)
    return ModelUsed(new_id(), call)


async def test_a_distribution_holds_count_sum_extremes_and_the_bounds_of_the_conventions(
    collector: Collector,  # noqa: F811
) -> None:
    async with observed(collector) as harness:
        for seconds in (0.01, 0.011, 3.0, 1000.0):
            harness.agent.events.emit(model_used(seconds=seconds))
    [point] = collector.metrics["gen_ai.client.operation.duration"].histogram.data_points
    assert (point.count, point.sum, point.min, point.max) == (4, pytest.approx(1003.021), 0.01, 1000.0)
    assert list(point.explicit_bounds) == list(SECONDS)
    assert SECONDS[-1] == pytest.approx(81.92)
    filled = {index: count for index, count in enumerate(point.bucket_counts) if count}
    assert filled == {0: 1, 1: 1, 9: 1, 14: 1}  # an upper bound belongs to its interval


@pytest.mark.long
async def test_labels_beyond_the_limit_are_counted_together(collector: Collector) -> None:  # noqa: F811
    async with observed(collector, settings={"OTEL_TRACES_EXPORTER": "none"}) as harness:
        for number in range(2_005):
            harness.agent.events.emit(model_used(model=f"m{number}"))
    points = collector.metrics["greenroom.model.cost"].sum.data_points
    assert len(points) <= 2_001
    assert sum(point.as_double for point in points) == 2_005 * 0.5


async def test_metrics_go_on_after_an_outage(collector: Collector) -> None:  # noqa: F811
    async with observed(collector, settings={"OTEL_TRACES_EXPORTER": "none"}) as harness:
        await harness.send("Hello")
        collector.status = 400
        await flush(harness)
        assert not collector.metrics
        collector.status = 200
        await flush(harness)
        [point] = collector.metrics["greenroom.messages"].sum.data_points
        assert point.as_int == 1
        assert point.start_time_unix_nano < point.time_unix_nano
