"""The figures in the text format of Prometheus, by its client library, which is an extra."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bot import Outcome, events
from bot.models import ModelStatus
from bot.platform import AgentHandle, Arrivals, ConnectionState, ConnectionStatus, DeliveryState, Spending
from bot.store import Backlog, OpenItems, StoreUnavailable, TaskBacklog

BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)  # seconds
MAX_LABEL_VALUES = 100
MAX_LABEL_LENGTH = 80
OTHER = "other"
QUEUES = ("turns", "waiting", "held", "failed", "parked")
PREFIX = "greenroom_"
Labels = tuple[str, ...]
Samples = Mapping[tuple[str, ...], float]


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


class EventCounters:
    """What is counted while the bot runs: outcomes, parts, model calls, runs of tasks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # times of creation would double the lines

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{PREFIX}{name}", text, ("agent", *labels), registry=registry)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"{PREFIX}{name}", text, ("agent", *labels), registry=registry, buckets=BUCKETS)

        self._received = counter("messages_received", "Messages that came in and were stored.", "platform")
        text = "Messages by their outcome and the rule that decided."
        self._outcomes = counter("messages", text, "platform", "outcome", "rule")
        text = "From a message's arrival to the end of the work on its answer."
        self._answer_seconds = histogram("answer_seconds", text, "platform")
        self._deliveries = counter("deliveries", "Parts of replies by what became of them.", "platform", "state")
        self._markup = counter(
            "markup_removed",
            "Replies from which markup of the model was removed just before they were sent; the reader had missed it.",
            "dialect",
        )
        text = "Claims to be human that were replaced in replies just before they were sent."
        self._human_claims = counter("human_claims_replaced", text)
        text = "Messages that were answered by a step of DEGRADE, because little was left of a budget."
        self._degraded = counter("degraded_answers", text, "step")
        self._filtered = counter(
            "texts_filtered",
            "Messages that came in and replies that were to go out, by the filter that replaced, held or stopped them.",
            *("filter", "direction", "outcome"),
        )
        self._task_runs = counter("task_runs", "Runs of scheduled tasks.", "result")
        model = ("model", "purpose")
        self._calls = counter("model_calls", "Calls of models.", *model)
        self._failed = counter("model_failed_calls", "Calls of models that failed.", *model)
        self._unpriced = counter("model_unpriced_calls", "Calls of models whose price is not known.", *model)
        self._cost = counter("model_cost_dollars", "What the calls of models have cost, in US dollars.", *model)
        text = "Tokens of models; cached ones are counted as input too."
        self._tokens = counter("model_tokens", text, *model, "kind")
        self._seconds = histogram("model_call_seconds", "Durations of model calls.", *model)
        self._rules, self._models = LabelValues(), LabelValues()

    def subscribe(self, handles: Iterable[AgentHandle]) -> None:
        """Count the events of these agents for as long as they run."""
        listeners: Mapping[type[events.Event], Callable[[AgentHandle, Any], None]] = {
            events.MessageReceived: self._on_received,
            events.MessageClosed: self._on_closed,
            events.DeliveryFinished: self._on_delivery,
            events.ModelUsed: self._on_model,
            events.TaskEnded: self._on_task,
            events.MarkupRemoved: self._on_markup,
            events.HumanClaimsReplaced: self._on_claims,
            events.AnswerDegraded: self._on_degraded,
            events.TextFiltered: self._on_filtered,
        }
        for handle in handles:
            for kind, listen in listeners.items():
                handle.subscribe(kind, partial(listen, handle))

    def _on_degraded(self, handle: AgentHandle, event: events.AnswerDegraded) -> None:
        self._degraded.labels(handle.character.name, event.degradation.step).inc()

    def _on_claims(self, handle: AgentHandle, event: events.HumanClaimsReplaced) -> None:
        self._human_claims.labels(handle.character.name).inc(event.count)

    def _on_filtered(self, handle: AgentHandle, event: events.TextFiltered) -> None:
        self._filtered.labels(handle.character.name, event.filter, event.direction, event.outcome).inc()

    def _on_markup(self, handle: AgentHandle, event: events.MarkupRemoved) -> None:
        for dialect in event.dialects:
            self._markup.labels(handle.character.name, dialect).inc()

    def _on_received(self, handle: AgentHandle, event: events.MessageReceived) -> None:
        self._received.labels(handle.character.name, event.room.platform).inc()

    def _on_closed(self, handle: AgentHandle, event: events.MessageClosed) -> None:
        receipt, name = event.receipt, handle.character.name
        platform = receipt.key.platform
        self._outcomes.labels(name, platform, receipt.outcome, self._rules.find(receipt.rule)).inc()
        if receipt.outcome is Outcome.ANSWERED and receipt.seconds is not None:
            self._answer_seconds.labels(name, platform).observe(max(0.0, receipt.seconds))

    def _on_delivery(self, handle: AgentHandle, event: events.DeliveryFinished) -> None:
        part = event.delivery
        state = "held" if part.state is DeliveryState.UNKNOWN else part.state.value
        self._deliveries.labels(handle.character.name, part.platform, state).inc()

    def _on_model(self, handle: AgentHandle, event: events.ModelUsed) -> None:
        call = event.call
        labels = (handle.character.name, self._models.find(call.model), call.purpose)
        self._calls.labels(*labels).inc()
        self._failed.labels(*labels).inc(call.has_failed)
        self._seconds.labels(*labels).observe(call.seconds)
        self._cost.labels(*labels).inc(call.cost or 0.0 if call.is_counted else 0.0)
        self._unpriced.labels(*labels).inc(call.is_counted and call.cost is None)
        tokens = {"input": call.tokens_in, "cached": call.tokens_cached, "output": call.tokens_out}
        for kind, count in tokens.items():
            self._tokens.labels(*labels, kind).inc(count if call.is_counted else 0)

    def _on_task(self, handle: AgentHandle, event: events.TaskEnded) -> None:
        self._task_runs.labels(handle.character.name, "failed" if event.error else "done").inc()


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


class FigureCollector(Collector):
    """Yields the figures of one scrape as metrics."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its samples."""
        yield InfoMetricFamily("greenroom", "The version of the program.", value={"version": self._figures.version})
        yield _gauge(
            "event_loop_lag_seconds",
            "The longest delay of the event loop in the last minute.",
            (),
            {(): self._figures.lag},
        )
        times = os.times()
        seconds = CounterMetricFamily(
            f"{PREFIX}child_processor_seconds",
            "Processor time of child processes that have ended, such as those that read documents.",
        )
        seconds.add_metric((), times.children_user + times.children_system)
        yield seconds
        yield from self._agents()
        yield from self._platforms()

    def _agents(self) -> Iterator[Metric]:
        now = self._figures.now
        yield self._gauge("store_up", "1 while messages can be stored.", lambda agent: {(): agent.is_storing})
        yield self._gauge(
            "started_timestamp_seconds", "When the agent was started.", lambda agent: {(): agent.started_at.timestamp()}
        )
        yield self._gauge(
            "model_resting_seconds",
            "For how long a model that failed repeatedly is not called; 0 while it is.",
            lambda agent: {(model.provider, model.type): model.rest_seconds for model in agent.models},
            ("provider", "type"),
        )
        yield self._stored_gauge("queue_items", "Items that wait.", _count_queues, ("queue",))
        yield self._stored_gauge(
            "queue_oldest_seconds",
            "The age of the oldest item that waits; 0 without any.",
            lambda stored: {(name,): _age(_queue(stored, name), now) for name in QUEUES},
            ("queue",),
        )
        yield self._stored_gauge(
            "tasks_late", "Tasks that are late by more than a minute.", lambda stored: {(): stored.tasks.late.count}
        )
        yield self._stored_gauge(
            "tasks_late_seconds",
            "How late the latest task is; 0 where none is late.",
            lambda stored: {(): _age(stored.tasks.late, now)},
        )
        yield self._stored_gauge(
            "spent_today_dollars",
            "What models have cost since midnight UTC, in US dollars.",
            lambda stored: {(): stored.spending.total},
        )
        yield self._stored_gauge(
            "budget_dollars", "The limit of a day; 0 for none.", lambda stored: {(): stored.spending.limit}
        )
        yield self._stored_gauge(
            "referrals_today",
            "People in distress who were referred to help since midnight UTC.",
            lambda stored: {(category,): count for category, count in stored.referrals.items()},
            ("category",),
        )
        yield self._stored_gauge(
            "last_received_timestamp_seconds",
            "When a platform last brought a message, within seven days.",
            lambda stored: {(name,): at.timestamp() for name, item in stored.arrivals.items() if (at := item.last_at)},
            ("platform",),
        )
        yield self._stored_gauge(
            "last_sent_timestamp_seconds",
            "When a part last left to a platform.",
            lambda stored: {(name,): at.timestamp() for name, at in stored.last_sent.items()},
            ("platform",),
        )

    def _platforms(self) -> Iterator[Metric]:
        states, overdue = dict[Labels, float](), dict[Labels, float]()
        for connection in self._figures.connections:
            snapshot = connection.snapshot
            agent = next((item for item in self._figures.agents if item.id == connection.agent_id), None)
            labels = ("" if agent is None else agent.name, connection.platform)
            for state in ConnectionState:
                states[*labels, state] = float(snapshot.state is state)
            if agent is None or agent.stored is None:  # a page to which people come by themselves is never late
                continue
            late_since = None
            if snapshot.state is ConnectionState.CONNECTED and connection.platform in agent.stored.arrivals:
                late_since = agent.stored.arrivals[connection.platform].late_since(snapshot.since, self._figures.now)
            overdue[labels] = 0.0 if late_since is None else (self._figures.now - late_since).total_seconds()
        yield _gauge(
            "platform_state",
            "1 for the state in which the account of an agent on a platform is; no agent for one that all share.",
            ("agent", "platform", "state"),
            states,
        )
        yield _gauge(
            "platform_overdue_seconds",
            "For how long a message is overdue on a connected account, by what is usual at this hour; 0 if it is not.",
            ("agent", "platform"),
            overdue,
        )

    def _gauge(self, name: str, text: str, read: Callable[[AgentFigures], Samples], labels: Labels = ()) -> Metric:
        samples = {(agent.name, *key): value for agent in self._figures.agents for key, value in read(agent).items()}
        return _gauge(name, text, ("agent", *labels), samples)

    def _stored_gauge(
        self, name: str, text: str, read: Callable[[StoredFigures], Samples], labels: Labels = ()
    ) -> Metric:
        return self._gauge(name, text, lambda agent: read(agent.stored) if agent.stored is not None else {}, labels)


def _gauge(name: str, text: str, labels: Labels, samples: Samples) -> Metric:
    metric = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=labels)
    for values, value in samples.items():
        metric.add_metric(values, float(value))
    return metric


def _count_queues(stored: StoredFigures) -> Samples:
    return {(name,): _queue(stored, name).count for name in QUEUES}


def _queue(stored: StoredFigures, name: str) -> Backlog:
    queue: Backlog = getattr(stored.items, name)
    return queue


def _age(backlog: Backlog, now: datetime) -> float:
    return 0.0 if backlog.oldest_at is None else max(0.0, (now - backlog.oldest_at).total_seconds())


class Exposition:
    """Counts the events of agents from its beginning on, and describes the process for a scrape."""

    def __init__(self, handles: Sequence[AgentHandle]) -> None:
        self._handles = handles
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        EventCounters(self._registry).subscribe(handles)

    async def encode(self, version: str, now: datetime, accept: str) -> tuple[bytes, str]:
        """Return the figures with those of the process, and their content type, in a format that `accept` names."""
        first = self._handles[0]
        monitor = first.process_monitor
        figures = Figures(
            version=version,
            now=now,
            lag=monitor.read().longest_lag_seconds if monitor is not None else 0.0,
            agents=await asyncio.gather(*map(read_agent, self._handles)),
            connections=first.connections(),
        )
        collector = FigureCollector(figures)
        self._registry.register(collector)
        try:
            build, content_type = choose_encoder(accept)
            return build(self._registry), content_type
        finally:
            self._registry.unregister(collector)
