"""The metrics: sums and distributions since the start, of which each export sends the state.

They are kept here, because the SDK's instruments cost more CPU time a message than its spans.
"""

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)

from bot import Outcome, Receipt
from bot.models import ModelCall
from plugins.otel.encoding import build_attributes
from plugins.otel.recording import CallNote, DeliveryNote, Note, TurnNote
from plugins.otel.spans import operation_of, provider_name

Labels = tuple[str, ...]  # the values of labels, in the order of their names; empty ones are left out
# The bounds are those that the semantic conventions name for the two metrics of model calls.
SECONDS = tuple(0.01 * 2**power for power in range(14))
TOKENS = tuple(float(4**power) for power in range(14))
MAX_LABELS = 2_000  # combinations of labels of one metric; what is new beyond them is counted without labels


@dataclass(slots=True)
class _Distribution:
    """Values by the intervals between bounds, as counts, and their sum."""

    counts: list[int]
    total: float = 0.0
    least: float = float("inf")
    most: float = float("-inf")


@dataclass(slots=True)
class _Counter:
    """A metric that is summed up."""

    name: str
    unit: str
    description: str
    label_names: Sequence[str]
    sums: dict[Labels, float] = field(default_factory=dict)

    def add(self, amount: float, labels: Labels) -> None:
        total = self.sums.get(labels)
        if total is None:
            labels = labels if len(self.sums) < MAX_LABELS else ()
            total = self.sums.get(labels, 0)
        self.sums[labels] = total + amount

    def build(self, start: int, now: int) -> Metric:
        points = [
            NumberDataPoint(
                attributes=_build_labels(self.label_names, labels),
                start_time_unix_nano=start,
                time_unix_nano=now,
                **{"as_int" if isinstance(total, int) else "as_double": total},  # type: ignore[arg-type]  # as its name
            )
            for labels, total in self.sums.items()
        ]
        data = Sum(data_points=points, aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE, is_monotonic=True)
        return Metric(name=self.name, unit=self.unit, description=self.description, sum=data)


@dataclass(slots=True)
class _Histogram:
    """A metric of which the distribution is kept."""

    name: str
    unit: str
    description: str
    label_names: Sequence[str]
    bounds: Sequence[float]
    distributions: dict[Labels, _Distribution] = field(default_factory=dict)

    def record(self, values: Mapping[Labels, list[float]]) -> None:
        """Add values by their labels; the lists are sorted in place."""
        for labels, group in values.items():
            found = self.distributions.get(labels)
            if found is None:
                labels = labels if len(self.distributions) < MAX_LABELS else ()
                found = self.distributions.setdefault(labels, _Distribution([0] * (len(self.bounds) + 1)))
            group.sort()
            ends = [bisect_right(group, bound) for bound in self.bounds]
            for place, (begin, end) in enumerate(pairwise((0, *ends, len(group)))):
                found.counts[place] += end - begin
            found.total += sum(group)
            found.least, found.most = min(found.least, group[0]), max(found.most, group[-1])

    def build(self, start: int, now: int) -> Metric:
        points = [
            HistogramDataPoint(
                attributes=_build_labels(self.label_names, labels),
                start_time_unix_nano=start,
                time_unix_nano=now,
                count=sum(item.counts),
                sum=item.total,
                bucket_counts=item.counts,
                explicit_bounds=self.bounds,
                min=item.least,
                max=item.most,
            )
            for labels, item in self.distributions.items()
        ]
        data = Histogram(data_points=points, aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE)
        return Metric(name=self.name, unit=self.unit, description=self.description, histogram=data)


def _build_labels(names: Sequence[str], labels: Labels) -> list[KeyValue]:
    return build_attributes({name: value for name, value in zip(names, labels, strict=False) if value})


class Metrics:
    """What the notes of one agent count up to."""

    def __init__(self) -> None:
        self._started_at = time.time_ns()
        messages = ("messaging.system", "greenroom.outcome", "greenroom.rule")
        parts = ("messaging.system", "greenroom.delivery.state")
        calls = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
        self._messages = _Counter("greenroom.messages", "{message}", "Messages by outcome and rule.", messages)
        self._parts = _Counter("greenroom.deliveries", "{part}", "Parts of replies by state.", parts)
        self._costs = _Counter("greenroom.model.cost", "USD", "What the calls of models have cost.", calls)
        self._answers = _Histogram(
            "greenroom.answer.duration",
            "s",
            "From a message's arrival to the end of the work on its answer.",
            ("messaging.system",),
            SECONDS,
        )
        self._durations = _Histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Durations of the calls of models.",
            (*calls, "error.type"),
            SECONDS,
        )
        self._tokens = _Histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of the calls of models.",
            (*calls, "gen_ai.token.type"),
            TOKENS,
        )

    def record(self, notes: Sequence[Note], providers: Mapping[str, str]) -> None:
        """Count what notes say; `providers` are those of the models, by model."""
        answers, durations, tokens = (defaultdict[Labels, list[float]](list) for _ in range(3))
        calls: list[ModelCall] = []
        for note in notes:
            if isinstance(note, Receipt):
                platform = note.key.platform
                self._messages.add(1, (platform, note.outcome.value, note.rule))
                if note.outcome is Outcome.ANSWERED and note.closed_at is not None:
                    answers[(platform,)].append(max(0.0, (note.closed_at - note.received_at).total_seconds()))
            elif isinstance(note, DeliveryNote):
                self._parts.add(1, (note.delivery.platform, note.delivery.state.value))
            elif isinstance(note, TurnNote):
                calls += note.calls
            elif isinstance(note, CallNote):
                calls.append(note.call)
        for call in calls:
            labels = (operation_of(call), provider_name(providers.get(call.model, "")), call.model)
            durations[(*labels, "_OTHER" if call.error else "")].append(call.seconds)
            if call.is_counted:
                tokens[(*labels, "input")].append(call.tokens_in)
                tokens[(*labels, "output")].append(call.tokens_out)
                self._costs.add(call.cost or 0.0, labels)
        self._answers.record(answers)
        self._durations.record(durations)
        self._tokens.record(tokens)

    def build(self) -> list[Metric]:
        """Return the state of all metrics as messages of the protocol; those without data are left out."""
        now = time.time_ns()
        counters, histograms = (
            (self._messages, self._parts, self._costs),
            (self._answers, self._durations, self._tokens),
        )
        return [
            *(item.build(self._started_at, now) for item in counters if item.sums),
            *(item.build(self._started_at, now) for item in histograms if item.distributions),
        ]
