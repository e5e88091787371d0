"""The figures in the text format of Prometheus; imports its client library, an extra, so it is loaded by a scrape."""

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from adapters.web.metrics.api import AgentFigures, Figures, Histogram, StoredFigures
from bot.platform import ConnectionState
from bot.store import Backlog

QUEUES = ("turns", "waiting", "held", "failed", "parked")
PREFIX = "greenroom_"
Labels = tuple[str, ...]
Samples = Mapping[tuple[str, ...], float]


class FigureCollector(Collector):
    """Yields the figures of one scrape as metrics."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._names = {agent.id: agent.name for agent in figures.agents}

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
        yield _counter(
            "child_processor_seconds",
            "Processor time of child processes that have ended, such as those that read documents.",
            (),
            {(): times.children_user + times.children_system},
        )
        yield from self._messages()
        yield from self._models()
        yield from self._agents()
        yield from self._platforms()

    def _messages(self) -> Iterator[Metric]:
        counters, names = self._figures.counters, self._names
        yield _counter(
            "messages_received",
            "Messages that came in and were stored.",
            ("agent", "platform"),
            {(names[agent], platform): count for (agent, platform), count in counters.received.items()},
        )
        yield _counter(
            "messages",
            "Messages by their outcome and the rule that decided.",
            ("agent", "platform", "outcome", "rule"),
            {(names[agent], *others): count for (agent, *others), count in counters.outcomes.items()},
        )
        yield _histogram(
            "answer_seconds",
            "From a message's arrival to the end of the work on its answer.",
            ("agent", "platform"),
            {(names[agent], platform): item for (agent, platform), item in counters.answer_seconds.items()},
        )
        yield _counter(
            "deliveries",
            "Parts of replies by what became of them.",
            ("agent", "platform", "state"),
            {(names[agent], *others): count for (agent, *others), count in counters.deliveries.items()},
        )
        yield _counter(
            "markup_removed",
            "Replies from which markup of the model was removed just before they were sent; the reader had missed it.",
            ("agent", "dialect"),
            {(names[agent], dialect): count for (agent, dialect), count in counters.markup.items()},
        )
        yield _counter(
            "human_claims_replaced",
            "Claims to be human that were replaced in replies just before they were sent.",
            ("agent",),
            {(names[agent],): count for agent, count in counters.human_claims.items()},
        )
        yield _counter(
            "degraded_answers",
            "Messages that were answered by a step of DEGRADE, because little was left of a budget.",
            ("agent", "step"),
            {(names[agent], step): count for (agent, step), count in counters.degraded.items()},
        )
        yield _counter(
            "texts_filtered",
            "Messages that came in and replies that were to go out, by the filter that replaced, held or stopped them.",
            ("agent", "filter", "direction", "outcome"),
            {(names[agent], *others): count for (agent, *others), count in counters.filtered.items()},
        )
        yield _counter(
            "task_runs",
            "Runs of scheduled tasks.",
            ("agent", "result"),
            {(names[agent], result): count for (agent, result), count in counters.task_runs.items()},
        )

    def _models(self) -> Iterator[Metric]:
        labels, names = ("agent", "model", "purpose"), self._names
        sums = {(names[agent], *others): item for (agent, *others), item in self._figures.counters.models.items()}
        for name, text, field in (
            ("model_calls", "Calls of models.", "calls"),
            ("model_failed_calls", "Calls of models that failed.", "failed"),
            ("model_unpriced_calls", "Calls of models whose price is not known.", "unpriced"),
            ("model_cost_dollars", "What the calls of models have cost, in US dollars.", "cost"),
        ):
            yield _counter(name, text, labels, {key: getattr(item, field) for key, item in sums.items()})
        kinds = {"input": "input_tokens", "cached": "cached_tokens", "output": "output_tokens"}
        yield _counter(
            "model_tokens",
            "Tokens of models; cached ones are counted as input too.",
            (*labels, "kind"),
            {(*key, kind): getattr(item, field) for key, item in sums.items() for kind, field in kinds.items()},
        )
        yield _histogram(
            "model_call_seconds", "Durations of model calls.", labels, {key: item.seconds for key, item in sums.items()}
        )

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


def encode(figures: Figures, accept: str) -> tuple[bytes, str]:
    """Return the figures with those of the process, and their content type, in a format that `accept` names."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(FigureCollector(figures))
    build, content_type = choose_encoder(accept)
    return build(registry), content_type


def _gauge(name: str, text: str, labels: Labels, samples: Samples) -> Metric:
    return _fill(GaugeMetricFamily(f"{PREFIX}{name}", text, labels=labels), samples)


def _counter(name: str, text: str, labels: Labels, samples: Samples) -> Metric:
    return _fill(CounterMetricFamily(f"{PREFIX}{name}", text, labels=labels), samples)


def _fill(metric: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    for labels, value in samples.items():
        metric.add_metric(labels, float(value))
    return metric


def _histogram(name: str, text: str, labels: Labels, histograms: Mapping[tuple[str, ...], Histogram]) -> Metric:
    metric = HistogramMetricFamily(f"{PREFIX}{name}", text, labels=labels)
    for values, histogram in histograms.items():
        metric.add_metric(values, histogram.cumulative(), histogram.sum)
    return metric


def _count_queues(stored: StoredFigures) -> Samples:
    return {(name,): _queue(stored, name).count for name in QUEUES}


def _queue(stored: StoredFigures, name: str) -> Backlog:
    queue: Backlog = getattr(stored.items, name)
    return queue


def _age(backlog: Backlog, now: datetime) -> float:
    return 0.0 if backlog.oldest_at is None else max(0.0, (now - backlog.oldest_at).total_seconds())
