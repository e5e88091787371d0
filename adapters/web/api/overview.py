"""HTTP handlers of the state of the whole process: health, overview, figures over time, models."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Literal
from uuid import UUID

from aiohttp import web
from pydantic import Field

from adapters.web.auth import Access
from adapters.web.json_io import JsonResponder, validate_model
from adapters.web.openapi import HEALTH_PATH, Operation
from adapters.web.problems import (
    CAUSE_TEXTS,
    AccountBody,
    HalfHour,
    HeadlineBody,
    ModelBody,
    ProblemBody,
    Situation,
    build_headline,
    find_problems,
)
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import AgentQuery, HealthResponse, PlatformHealth, ResponseModel
from bot import Outcome, system_clock
from bot.models import ModelStatus, ModelUnavailable
from bot.platform import (
    ActivityRange,
    AgentHandle,
    Arrivals,
    ConnectionSnapshot,
    ConnectionState,
    ConnectionStatus,
    Spending,
)
from bot.store import ActivityBucket, CostEntry, OpenItems, ReceiptQuery, TaskBacklog

WORST_FIRST = (ConnectionState.OFF, ConnectionState.DEGRADED, ConnectionState.CONNECTING, ConnectionState.CONNECTED)
DAY, SPENDING_STEP = timedelta(days=1), timedelta(minutes=10)
MIN_FORECAST_TIME = timedelta(hours=1)  # of a day, before which its end cannot be estimated
NO_ARRIVALS = Arrivals()
UNANSWERED_RULE = ModelUnavailable.__name__


class MetricsQuery(AgentQuery):
    """Selection of a range of time, and of a platform."""

    range: Literal["hour", "day", "month"] = "hour"
    platform: str = Field("", max_length=40)


class BacklogBody(ResponseModel):
    """How many items wait, and since when the oldest does."""

    count: int
    oldest_at: datetime | None


class OpenBody(ResponseModel):
    """The messages that are being worked on, and the parts of replies that wait, are held, or have failed.

    `parked` messages came in before a backup was made that was restored; they are not answered.
    """

    turns: BacklogBody
    waiting: BacklogBody
    held: BacklogBody
    failed: BacklogBody
    parked: BacklogBody


class TasksBody(ResponseModel):
    """The tasks that are late by more than a minute, and when the next one is due."""

    late: BacklogBody
    next_at: datetime | None


class SpentBody(ResponseModel):
    """What models have cost today (in UTC) and the limit for a day; calls of the last ten seconds may be missing."""

    usd: float
    unpriced_calls: int
    limit: float | None


class OverviewResponse(ResponseModel):
    """The state of the bot: is all well, what needs attention (worst first), accounts, open work."""

    at: datetime
    started_at: datetime
    headline: HeadlineBody
    problems: list[ProblemBody]
    accounts: list[AccountBody]
    open: OpenBody
    tasks: TasksBody
    spent: SpentBody


class SpendingColumn(ResponseModel):
    """What was spent today (in UTC) until the end of each step, in dollars; null before the bot was started and for
    what is to come. `expected` is the estimate for the end of the day, null in its first hour.
    """

    step_s: int
    start: datetime = Field(serialization_alias="from")
    usd: list[float | None]
    expected: float | None
    limit: float | None


class MetricsResponse(ResponseModel):
    """Messages over time, in columns: those that came in within each step, and how many of them were answered.

    `p50_ms` and `p95_ms` are milliseconds from a message to the end of its answer, null where none was answered; of
    several agents the mean of their medians by replies, and the worst of their p95. `failures` has the number of
    failed messages by rule.
    """

    step_s: int
    start: datetime = Field(serialization_alias="from")
    received: list[int] = Field(serialization_alias="in")
    replies: list[int]
    p50_ms: list[int | None]
    p95_ms: list[int | None]
    failures: dict[str, list[int]]
    spent: SpendingColumn


class ModelsResponse(ResponseModel):
    """The models, those that work first; calls, failures and times are counted since `since`."""

    since: datetime
    models: list[ModelBody]


@dataclass(frozen=True, slots=True)
class OverviewApi:
    """Handlers for the state of the process: whether messages are accepted and platforms connected."""

    _directory: AgentDirectory
    _responder: JsonResponder

    async def show_health(self, request: web.Request) -> web.StreamResponse:
        """Return whether messages are accepted, and the connection of each platform; needs no token.

        So the response contains no private information. It is a 503 only if no message is accepted: because
        of a disconnected platform a probe must not end the process.
        """
        problem = next((item for handle in self._directory if (item := handle.problem)), None)
        states = worst_states(self._directory.find_agent(None).connections())
        platforms = {name: PlatformHealth.build(item, cause=item.cause) for name, item in states.items()}
        held = sum(handle.undelivered.held_count for handle in self._directory)
        health = HealthResponse(platforms=platforms, held=held)
        if problem is not None:
            details = {"status": "unavailable", "cause": problem.cause, "since": problem.since}
            return self._responder.respond(health.model_copy(update=details), status=503)
        if held or any(item.is_problem for item in states.values()):
            health = health.model_copy(update={"status": "degraded"})
        return self._responder.respond(health)

    async def show_overview(self, request: web.Request) -> web.StreamResponse:
        """Return whether all is well, what needs attention, the accounts and the open work."""
        handles = self._directory.select_agents(validate_model(AgentQuery, dict(request.query)).agent)
        now = system_clock()
        accounts = await _list_accounts(handles, now)
        items, tasks, spending = await asyncio.gather(
            asyncio.gather(*(handle.activity.open_items() for handle in handles)),
            asyncio.gather(*(handle.activity.task_backlog() for handle in handles)),
            asyncio.gather(*(handle.activity.spending() for handle in handles)),
        )
        models = _list_models(handles, spending, now)
        is_resting = any(model.rests_until is not None for model in models)
        situation = Situation(
            now=now,
            store_problem=next((item for handle in handles if (item := handle.problem)), None),
            accounts=accounts,
            items=reduce(OpenItems.plus, items),
            tasks=reduce(TaskBacklog.plus, tasks),
            models=models,
            spent=sum(item.total for item in spending),
            limit=_limit_of(spending),
            budgets={
                item.character.name: (sums.total, sums.limit) for item, sums in zip(handles, spending, strict=True)
            },
            plugins={name: cause for handle in handles for name, cause in _list_inactive_plugins(handle).items()},
            example_id=await _find_unanswered(handles, now) if is_resting else None,
        )
        problems = find_problems(situation)
        body = OverviewResponse(
            at=now,
            started_at=min(handle.activity.started_at for handle in handles),
            headline=build_headline(situation, problems),
            problems=problems,
            accounts=accounts,
            open=OpenBody.model_validate(situation.items, from_attributes=True),
            tasks=TasksBody.model_validate(situation.tasks, from_attributes=True),
            spent=SpentBody(
                usd=situation.spent,
                unpriced_calls=sum(entry.unpriced_calls for item in spending for entry in item.by_model.values()),
                limit=situation.limit or None,
            ),
        )
        return self._responder.respond(body)

    async def show_metrics(self, request: web.Request) -> web.StreamResponse:
        """Return messages, replies, times, failures and costs over an hour, a day or a month."""
        query = validate_model(MetricsQuery, dict(request.query))
        handles = self._directory.select_agents(query.agent)
        spending = await asyncio.gather(*(handle.activity.spending() for handle in handles))
        time_range = ActivityRange(query.range)
        series = await asyncio.gather(*(handle.activity.buckets(time_range, query.platform) for handle in handles))
        causes = sorted({cause for buckets in series for bucket in buckets for cause in bucket.failures})
        steps = list(zip(*series, strict=True))
        body = MetricsResponse(
            step_s=int(time_range.step.total_seconds()),
            start=series[0][0].start,
            received=[sum(bucket.received for bucket in step) for step in steps],
            replies=[sum(bucket.answered for bucket in step) for step in steps],
            p50_ms=[_mean_median(step) for step in steps],
            p95_ms=[max((item.p95_ms for item in step if item.p95_ms is not None), default=None) for step in steps],
            failures={cause: [sum(item.failures.get(cause, 0) for item in step) for step in steps] for cause in causes},
            spent=_build_spending(spending, system_clock()),
        )
        return self._responder.respond(body)

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        """List the models: what they are used for, which of them rest and why, their calls and costs."""
        handles = self._directory.select_agents(validate_model(AgentQuery, dict(request.query)).agent)
        spending = await asyncio.gather(*(handle.activity.spending() for handle in handles))
        since = min(handle.activity.started_at for handle in handles)
        return self._responder.respond(
            ModelsResponse(since=since, models=_list_models(handles, spending, system_clock()))
        )

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        read = Access.READ
        return [
            Operation("health", self.show_health, HEALTH_PATH, Access.PUBLIC, HealthResponse, problem_statuses=(503,)),
            Operation("overview", self.show_overview, "/api/overview", read, OverviewResponse, AgentQuery),
            Operation("metrics", self.show_metrics, "/api/metrics", read, MetricsResponse, MetricsQuery),
            Operation("models", self.list_models, "/api/models", read, ModelsResponse, AgentQuery),
        ]


def worst_states(links: Iterable[ConnectionStatus]) -> dict[str, ConnectionSnapshot]:
    """Return the state of each platform: the worst one of its accounts."""
    states_by_platform: dict[str, list[ConnectionSnapshot]] = {}
    for link in links:
        states_by_platform.setdefault(link.platform, []).append(link.snapshot)
    return {
        name: min(states, key=lambda state: WORST_FIRST.index(state.state))
        for name, states in sorted(states_by_platform.items())
    }


async def _list_accounts(handles: Sequence[AgentHandle], now: datetime) -> list[AccountBody]:
    """Return the accounts of these agents, and those that all agents share."""
    all_arrivals = await asyncio.gather(*(handle.activity.arrivals() for handle in handles))
    all_sent = await asyncio.gather(*(handle.activity.last_sent() for handle in handles))
    agent_ids = [handle.agent_id for handle in handles]
    accounts = []
    for connection in handles[0].connections():
        if connection.agent_id is not None and connection.agent_id not in agent_ids:
            continue
        owners = [number for number, agent_id in enumerate(agent_ids) if connection.agent_id in (None, agent_id)]
        arrivals = [all_arrivals[number].get(connection.platform, NO_ARRIVALS) for number in owners]
        sent = [at for number in owners if (at := all_sent[number].get(connection.platform))]
        accounts.append(_build_account(connection, arrivals, max(sent, default=None), now))
    return accounts


def _build_account(
    connection: ConnectionStatus, arrivals: Sequence[Arrivals], last_out_at: datetime | None, now: datetime
) -> AccountBody:
    snapshot, late_since, gap = connection.snapshot, None, None
    if connection.agent_id is not None:  # a page to which people come by themselves is never late
        gap = arrivals[0].usual_gap
        if snapshot.state is ConnectionState.CONNECTED:
            late_since = arrivals[0].late_since(snapshot.since, now)
    return AccountBody(
        platform=connection.platform,
        name=connection.label,
        account=connection.account,
        agent_id=connection.agent_id,
        state=snapshot.state,
        cause=snapshot.cause,
        why=CAUSE_TEXTS[snapshot.cause] if snapshot.cause else "",
        since=snapshot.since,
        last_in_at=max((item.last_at for item in arrivals if item.last_at), default=None),
        last_out_at=last_out_at,
        late_since=late_since,
        usual_gap_s=gap.total_seconds() if gap is not None else None,
        history=[
            HalfHour(state="unknown") if item is None else HalfHour(state=item.state.value, cause=item.cause)
            for item in connection.history()
        ],
    )


def _list_inactive_plugins(handle: AgentHandle) -> Mapping[str, str]:
    return handle.operator_tools.program.inactive_plugins() if handle.operator_tools is not None else {}


async def _find_unanswered(handles: Sequence[AgentHandle], now: datetime) -> UUID | None:
    """Return the last receipt of a day that says that no model answered."""
    wanted = ReceiptQuery(outcomes=[Outcome.FAILED], rules=[UNANSWERED_RULE], since=now - DAY)
    for handle in handles:
        for found in await handle.conversations.search_receipts(wanted, limit=1):
            return found.receipt.id
    return None


def _list_models(handles: Sequence[AgentHandle], spending: Sequence[Spending], now: datetime) -> list[ModelBody]:
    """Return the models of these agents; one that serves several types or agents is one entry."""
    costs: dict[str, CostEntry] = {}
    for name, entry in (pair for item in spending for pair in item.by_model.items()):
        costs[name] = costs[name].plus(entry) if name in costs else entry
    groups: dict[tuple[str, str, str], list[tuple[ModelStatus, str, str]]] = {}
    for handle in handles:
        statuses = handle.activity.model_statuses()
        for status in statuses:
            # A model that has not answered yet has no name: what fails for different causes is told apart.
            key = (status.provider, status.model, "" if status.model else status.cause)
            groups.setdefault(key, []).append((status, _replacement(status, statuses), handle.character.name))
    models = [_build_model(group, costs, now) for group in groups.values()]
    return sorted(models, key=lambda model: (model.state == "unused", -model.calls, model.name))


def _replacement(status: ModelStatus, statuses: Iterable[ModelStatus]) -> str:
    others = (item for item in statuses if item.type is status.type and item is not status and not item.cause)
    return next((item.model or item.provider for item in others), "")


def _build_model(
    group: Sequence[tuple[ModelStatus, str, str]], costs: Mapping[str, CostEntry], now: datetime
) -> ModelBody:
    statuses = [status for status, _, _ in group]
    first = statuses[0]
    resting, replaced_by, _ = max(group, key=lambda item: (item[0].rest_seconds, bool(item[0].cause)))
    medians = [status.median_seconds for status in statuses if status.median_seconds is not None]
    entry = costs.get(first.model)
    is_priced = entry is None or entry.unpriced_calls < entry.calls
    return ModelBody(
        name=first.model or first.provider,
        provider=first.provider,
        agents=sorted({name for _, _, name in group}),
        work=sorted({status.type.value for status in statuses}),
        state=_model_state(resting),
        rests_until=now + timedelta(seconds=resting.rest_seconds) if resting.rest_seconds else None,
        why=resting.cause,
        replaced_by=replaced_by if resting.cause else "",
        calls=sum(status.calls for status in statuses),
        failed=sum(status.failed for status in statuses),
        p50_ms=round(1000 * max(medians)) if medians else None,
        usd=(entry.cost if entry else 0.0) if is_priced else None,
    )


def _model_state(status: ModelStatus) -> Literal["answers", "rests", "fails", "unused"]:
    if status.rest_seconds:
        return "rests"
    return "fails" if status.cause else "answers" if status.model else "unused"


def _mean_median(step: Sequence[ActivityBucket]) -> int | None:
    known = [(item.p50_ms, item.answered) for item in step if item.p50_ms is not None]
    return round(sum(p50 * count for p50, count in known) / sum(count for _, count in known)) if known else None


def _limit_of(spending: Sequence[Spending]) -> float:
    """Return the limit of all agents together; 0 where one of them has none."""
    return sum(item.limit for item in spending) if all(item.limit for item in spending) else 0.0


def _build_spending(spending: Sequence[Spending], now: datetime) -> SpendingColumn:
    """Return the sums of today by subtracting from the total what was spent after each step."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    total, known_since = sum(item.total for item in spending), max(next(iter(item.recent)) for item in spending)
    amounts = [pair for item in spending for pair in item.recent.items()]
    usd: list[float | None] = []
    for number in range(DAY // SPENDING_STEP):
        end = midnight + SPENDING_STEP * (number + 1)
        is_known = known_since < end <= now + SPENDING_STEP
        later = sum(cost for at, cost in amounts if at >= end)
        usd.append(max(0.0, round(total - later, 9)) if is_known else None)
    elapsed = now - midnight
    return SpendingColumn(
        step_s=int(SPENDING_STEP.total_seconds()),
        start=midnight,
        usd=usd,
        expected=total * (DAY / elapsed) if elapsed >= MIN_FORECAST_TIME else None,
        limit=_limit_of(spending) or None,
    )
