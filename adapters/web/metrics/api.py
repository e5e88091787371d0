"""`GET /metrics`: the handler, and what counts between two scrapes.

The figures of a process at one moment: what was counted, and what the store and the connections say.

What is counted while the bot runs: outcomes, parts, model calls, runs of tasks.
"""

import asyncio
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from itertools import accumulate
from typing import TypeVar
from uuid import UUID

from aiohttp import web

from adapters.web.auth import Access
from adapters.web.json_io import HttpProblem
from adapters.web.openapi import METRICS_PATH, operation, package_version
from adapters.web.queries import AgentDirectory
from bot import Outcome, events, system_clock
from bot.models import ModelStatus
from bot.platform import AgentHandle, Arrivals, ConnectionStatus, DeliveryState, LazyImport, Spending, install_command
from bot.store import OpenItems, StoreUnavailable, TaskBacklog

K = TypeVar("K")
BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)  # seconds
MAX_LABEL_VALUES = 100
MAX_LABEL_LENGTH = 80
OTHER = "other"


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
        self.human_claims: Counter[UUID] = Counter()
        self.degraded: Counter[tuple[UUID, str]] = Counter()
        self.filtered: Counter[tuple[UUID, str, str, str]] = Counter()
        self._rules, self._models = LabelValues(), LabelValues()

    def subscribe(self, handles: Iterable[AgentHandle]) -> None:
        """Count the events of these agents for as long as they run."""
        for handle in handles:
            handle.subscribe(events.MessageReceived, self._on_received)
            handle.subscribe(events.MessageClosed, self._on_closed)
            handle.subscribe(events.DeliveryFinished, self._on_delivery)
            handle.subscribe(events.ModelUsed, self._on_model)
            handle.subscribe(events.TaskEnded, self._on_task)
            handle.subscribe(events.MarkupRemoved, self._on_markup)
            handle.subscribe(events.HumanClaimsReplaced, self._on_claims)
            handle.subscribe(events.AnswerDegraded, self._on_degraded)
            handle.subscribe(events.TextFiltered, self._on_filtered)

    def _on_degraded(self, event: events.AnswerDegraded) -> None:
        self.degraded[event.agent_id, event.degradation.step] += 1

    def _on_claims(self, event: events.HumanClaimsReplaced) -> None:
        self.human_claims[event.agent_id] += event.count

    def _on_filtered(self, event: events.TextFiltered) -> None:
        self.filtered[event.agent_id, event.filter, event.direction, event.outcome] += 1

    def _on_markup(self, event: events.MarkupRemoved) -> None:
        for dialect in event.dialects:
            self.markup[event.agent_id, dialect] += 1

    def _on_received(self, event: events.MessageReceived) -> None:
        self.received[event.agent_id, event.room.platform] += 1

    def _on_closed(self, event: events.MessageClosed) -> None:
        receipt = event.receipt
        platform = receipt.key.platform
        self.outcomes[event.agent_id, platform, receipt.outcome, self._rules.find(receipt.rule)] += 1
        if receipt.outcome is Outcome.ANSWERED and receipt.seconds is not None:
            self.answer_seconds[event.agent_id, platform].observe(max(0.0, receipt.seconds))

    def _on_delivery(self, event: events.DeliveryFinished) -> None:
        part = event.delivery
        state = "held" if part.state is DeliveryState.UNKNOWN else part.state.value
        self.deliveries[event.agent_id, part.platform, state] += 1

    def _on_model(self, event: events.ModelUsed) -> None:
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

    def _on_task(self, event: events.TaskEnded) -> None:
        self.task_runs[event.agent_id, "failed" if event.error else "done"] += 1


@dataclass(frozen=True, slots=True)
class StoredFigures:
    """What the store says of one agent."""

    items: OpenItems
    tasks: TaskBacklog
    spending: Spending
    arrivals: Mapping[str, Arrivals]
    last_sent: Mapping[str, datetime]
    referrals: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AgentFigures:
    """One agent; `stored` is None while the store cannot be read."""

    name: str
    id: UUID
    is_storing: bool
    started_at: datetime
    models: Sequence[ModelStatus]
    stored: StoredFigures | None


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures; `lag` is that of the event loop, in seconds."""

    version: str
    now: datetime
    lag: float
    agents: Sequence[AgentFigures]
    connections: Sequence[ConnectionStatus]
    counters: EventCounters


async def read_agent(handle: AgentHandle) -> AgentFigures:
    """Return the figures of an agent, also while its store cannot be read."""
    try:
        stored = await _read_store(handle)
    except StoreUnavailable:  # that is what the scrape is to show
        stored = None
    return AgentFigures(
        name=handle.character.name,
        id=handle.agent_id,
        is_storing=handle.problem is None and stored is not None,
        started_at=handle.activity.started_at,
        models=handle.activity.model_statuses(),
        stored=stored,
    )


async def _read_store(handle: AgentHandle) -> StoredFigures:
    activity = handle.activity
    items, tasks, spending, arrivals, last_sent, care_counts = await asyncio.gather(
        activity.open_items(),
        activity.task_backlog(),
        activity.spending(),
        activity.arrivals(),
        activity.last_sent(),
        activity.care_counts(),
    )
    referrals = {item.category: item.count for item in care_counts}
    return StoredFigures(items, tasks, spending, arrivals, dict(last_sent), referrals)


LIBRARY, EXTRA = "prometheus_client", "metrics"
encode: Callable[[Figures, str], tuple[bytes, str]] = LazyImport("adapters.web.metrics.exposition:encode")


class PrometheusApi:
    """Serves the figures for Prometheus. Counts nothing unless its client library is installed."""

    def __init__(self, directory: AgentDirectory) -> None:
        self._directory = directory
        self._counters = EventCounters()
        self._is_installed = find_spec(LIBRARY) is not None

    def start(self) -> None:
        """Begin to count."""
        if self._is_installed:
            self._counters.subscribe(self._directory)

    @operation("GET", METRICS_PATH, "prometheus", Access.METRICS, (404,), content_type="text/plain")
    async def show_figures(self, request: web.Request) -> web.StreamResponse:
        """Return the figures of the process in the text format of Prometheus, or in OpenMetrics where that is asked."""
        if not self._is_installed:
            raise HttpProblem(404, "not_found", f"{LIBRARY} is not installed: {install_command(EXTRA)}")
        first = self._directory.find_agent(None)
        monitor = first.process_monitor
        figures = Figures(
            version=package_version(),
            now=system_clock(),
            lag=monitor.read().longest_lag_seconds if monitor is not None else 0.0,
            agents=await asyncio.gather(*(read_agent(handle) for handle in self._directory)),
            connections=first.connections(),
            counters=self._counters,
        )
        body, content_type = encode(figures, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})
