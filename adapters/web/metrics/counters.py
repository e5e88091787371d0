"""What is counted while the bot runs: outcomes, parts, model calls, runs of tasks, and how late the event loop is."""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar
from uuid import UUID

from bot import Outcome
from bot.events import DeliveryFinished, MarkupRemoved, MessageClosed, MessageReceived, ModelUsed, TaskEnded
from bot.platform import AgentHandle, DeliveryState, TimeSource

K = TypeVar("K")
BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)  # seconds
MAX_LABEL_VALUES = 100
MAX_LABEL_LENGTH = 80
OTHER = "other"
LAG_INTERVAL_SECONDS, LAG_SAMPLES = 1.0, 60


class LabelValues:
    """The values of a label whose number nothing else bounds; those beyond the first hundred become "other"."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def find(self, value: str) -> str:
        """Return the value to count under."""
        known = self._known.get(value)
        if known is None:
            if len(self._known) >= MAX_LABEL_VALUES:
                return OTHER
            known = self._known[value] = value[:MAX_LABEL_LENGTH]
        return known


class Histogram:
    """How many durations were at most as long as each of `BUCKETS`, and their sum in seconds."""

    __slots__ = ("_counts", "sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def cumulative(self) -> Sequence[tuple[str, float]]:
        """Return the upper limits as text, the last one infinite, with the number of durations up to each."""
        limits = (*map(str, BUCKETS), "+Inf")
        return list(zip(limits, map(float, accumulate(self._counts)), strict=True))


@dataclass(slots=True)
class ModelSums:
    """The calls of one model for one agent and purpose; `input_tokens` include `cached_tokens`."""

    calls: int = 0
    failed: int = 0
    unpriced: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    seconds: Histogram = field(default_factory=Histogram)


class EventCounters:
    """Counts since the start of the process. An event costs a few additions; texts are made by a scrape."""

    def __init__(self) -> None:
        self.received: Counter[tuple[UUID, str]] = Counter()
        self.outcomes: Counter[tuple[UUID, str, str, str]] = Counter()
        self.answer_seconds: defaultdict[tuple[UUID, str], Histogram] = defaultdict(Histogram)
        self.deliveries: Counter[tuple[UUID, str, str]] = Counter()
        self.models: defaultdict[tuple[UUID, str, str], ModelSums] = defaultdict(ModelSums)
        self.task_runs: Counter[tuple[UUID, str]] = Counter()
        self.markup: Counter[tuple[UUID, str]] = Counter()
        self._rules, self._models = LabelValues(), LabelValues()

    def subscribe(self, handles: Iterable[AgentHandle]) -> None:
        """Count the events of these agents for as long as they run."""
        for handle in handles:
            handle.subscribe(MessageReceived, self._on_received)
            handle.subscribe(MessageClosed, self._on_closed)
            handle.subscribe(DeliveryFinished, self._on_delivery)
            handle.subscribe(ModelUsed, self._on_model)
            handle.subscribe(TaskEnded, self._on_task)
            handle.subscribe(MarkupRemoved, self._on_markup)

    def _on_markup(self, event: MarkupRemoved) -> None:
        for dialect in event.dialects:
            self.markup[event.agent_id, dialect] += 1

    def _on_received(self, event: MessageReceived) -> None:
        self.received[event.agent_id, event.room.platform] += 1

    def _on_closed(self, event: MessageClosed) -> None:
        receipt = event.receipt
        platform = receipt.key.platform
        self.outcomes[event.agent_id, platform, receipt.outcome, self._rules.find(receipt.rule)] += 1
        if receipt.outcome is Outcome.ANSWERED and receipt.closed_at is not None:
            seconds = (receipt.closed_at - receipt.received_at).total_seconds()
            self.answer_seconds[event.agent_id, platform].observe(max(0.0, seconds))

    def _on_delivery(self, event: DeliveryFinished) -> None:
        part = event.delivery
        state = "held" if part.state is DeliveryState.UNKNOWN else part.state.value
        self.deliveries[event.agent_id, part.platform, state] += 1

    def _on_model(self, event: ModelUsed) -> None:
        call = event.call
        sums = self.models[event.agent_id, self._models.find(call.model), call.purpose]
        sums.calls += 1
        sums.failed += call.has_failed
        sums.seconds.observe(call.seconds)
        if call.is_counted:
            sums.input_tokens += call.tokens_in
            sums.cached_tokens += call.tokens_cached
            sums.output_tokens += call.tokens_out
            sums.cost += call.cost or 0.0
            sums.unpriced += call.cost is None

    def _on_task(self, event: TaskEnded) -> None:
        self.task_runs[event.agent_id, "failed" if event.error else "done"] += 1


class LoopLag:
    """Looks once a second how much later than asked the event loop continues; keeps the last minute."""

    def __init__(self, time: TimeSource) -> None:
        self._time = time
        self._samples = deque[float](maxlen=LAG_SAMPLES)

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            started = self._time.monotonic()
            await self._time.sleep(LAG_INTERVAL_SECONDS)
            self._samples.append(max(0.0, self._time.monotonic() - started - LAG_INTERVAL_SECONDS))

    @property
    def longest(self) -> float:
        """The longest lag of the last minute, in seconds; 0 before the first sample."""
        return max(self._samples, default=0.0)
