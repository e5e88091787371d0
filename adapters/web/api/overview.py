"""HTTP handlers of the state of the whole process: health, overview, figures over time, models.

What needs attention, as the page shows it: the sentence that says whether all is well, and the problems.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal
from uuid import UUID

from aiohttp import web
from pydantic import Field

from adapters.web.auth import Access
from adapters.web.json_io import JsonResponder
from adapters.web.openapi import HEALTH_PATH, operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import AgentQuery, HealthResponse, PlatformHealth, ResponseModel
from bot import system_clock
from bot.platform import (
    AccountSituation,
    ActivityRange,
    Condition,
    ConditionKind,
    ConditionLevel,
    ConnectionSnapshot,
    ConnectionState,
    ConnectionStatus,
    DisconnectCause,
    ModelSituation,
    Situation,
    Spending,
    connections_of,
    find_conditions,
    format_dollars,
    limit_of,
    list_models,
    read_situation,
    store_text,
)
from bot.store import ActivityBucket

PAGE_PLATFORM = "web"
SEE_LOG, OPEN_DOCTOR = ("console/logs", "See the log"), ("console/doctor", "Open Doctor")
# Where each can be solved, below the server's base, and what the link to it says.
PLACES = {
    ConditionKind.STORE: OPEN_DOCTOR,
    ConditionKind.DEAF: SEE_LOG,
    ConditionKind.BUDGET: ("console/costs", "See costs"),
    ConditionKind.MODEL: SEE_LOG,
    ConditionKind.PLUGIN: ("console/plugins", "See plugins"),
    ConditionKind.HELD: ("console/deliveries?state=held", "Decide"),
    ConditionKind.FAILED: ("console/deliveries?state=failed", "Look"),
    ConditionKind.POISONED: ("console/receipts?outcome=failed", "See them"),
    ConditionKind.PARKED: ("console/receipts?outcome=parked", "See them"),
    ConditionKind.LATE: OPEN_DOCTOR,
    ConditionKind.TASKS: ("console/tasks", "See tasks"),
    ConditionKind.LAG: SEE_LOG,
    ConditionKind.BACKUP: SEE_LOG,
}
STUCK_PLACES = {"turns": ("console/receipts?outcome=claimed", "See it"), "parts": ("console/deliveries", "Look")}


class HalfHour(ResponseModel):
    """The worst state of an account in half an hour, and its cause; `unknown` before the bot was started."""

    state: Literal["connected", "connecting", "degraded", "off", "unknown"]
    cause: DisconnectCause | None = None


class AccountBody(ResponseModel):
    """An account on a platform, and how it is connected; `agent_id` is null for one that all agents share.

    `account` is its name on the platform, empty until it is known. `why` says what `cause` means. `since` is when the
    state last changed. The next message is late `late_since` a time, at which on each of the last seven days eight
    would have come in since the last one, at least ten minutes after it; `usual_gap_s` is the mean number of seconds
    between two messages at this hour of these days. `history` has the last 48 half hours, the current one last; it is
    known since the start of the bot.
    """

    platform: str
    name: str
    account: str
    agent_id: UUID | None
    state: ConnectionState
    cause: DisconnectCause | None
    why: str
    since: datetime
    last_in_at: datetime | None
    last_out_at: datetime | None
    late_since: datetime | None
    usual_gap_s: float | None
    history: list[HalfHour]


class ModelBody(ModelSituation):
    """A model, as the API names it."""


class ProblemBody(ResponseModel):
    """Something that needs attention; `href` is the page below the server's base where it can be solved.

    `key` tells it from others as long as it lasts.
    """

    key: str
    kind: ConditionKind
    level: Literal["bad", "warn"]
    text: str
    why: str
    since: datetime | None
    count: int
    href: str
    action: str


class HeadlineBody(ResponseModel):
    """Whether all is well, in one sentence, and a second one with figures."""

    level: Literal["good", "warn", "bad"]
    text: str
    summary: str


def build_problem(condition: Condition) -> ProblemBody:
    """Return a condition with the place where it can be solved."""
    href, action = _place_of(condition)
    return ProblemBody.build(condition, href=href, action=action)


def build_headline(situation: Situation, problems: Sequence[object]) -> HeadlineBody:
    """Return the worst of the five headlines."""
    summary = build_summary(situation)
    if situation.store_problem is not None:
        return HeadlineBody(level="bad", text=store_text(situation.store_problem), summary=summary)
    platforms = [account for account in situation.accounts if account.platform != PAGE_PLATFORM]
    if platforms and not any(account.state is ConnectionState.CONNECTED for account in platforms):
        return HeadlineBody(level="bad", text="Not connected to any platform", summary=summary)
    if problems:
        things = "1 thing needs" if len(problems) == 1 else f"{len(problems)} things need"
        return HeadlineBody(level="warn", text=f"Running; {things} attention", summary=summary)
    absent = [account for account in situation.accounts if account.state is not ConnectionState.CONNECTED]
    if absent:  # for moments, at the start: what lasts is a problem
        text = f"Running; {absent[0].label} is {absent[0].state_text}"
        return HeadlineBody(level="warn", text=text, summary=summary)
    return HeadlineBody(level="good", text="All is well", summary=summary)


def build_summary(situation: Situation) -> str:
    """Return the accounts, open work and costs in a sentence each."""
    accounts, items = situation.accounts, situation.items
    connected = sum(account.state is ConnectionState.CONNECTED for account in accounts)
    parts = [f"{connected} of {len(accounts)} account{'' if len(accounts) == 1 else 's'} connected"]
    others = [account for account in accounts if account.state is not ConnectionState.CONNECTED]
    parts += [f"{account.label} is {account.state_text}" for account in others[:2]]
    turns = items.turns.count
    parts.append(f"{turns} open turn{'' if turns == 1 else 's'}" if turns else "no open turn")
    limit = f" of {format_dollars(situation.limit)}" if situation.limit else ""
    return f"{', '.join(parts)}. {format_dollars(situation.spent)}{limit} spent today."


def build_account(account: AccountSituation, history: Sequence[ConnectionSnapshot | None]) -> AccountBody:
    """Return an account as the page shows it, with its state in each of the last half hours."""
    half_hours = [
        HalfHour(state="unknown") if item is None else HalfHour(state=item.state.value, cause=item.cause)
        for item in history
    ]
    gap = account.usual_gap
    return AccountBody.build(account, usual_gap_s=None if gap is None else gap.total_seconds(), history=half_hours)


def _place_of(condition: Condition) -> tuple[str, str]:
    if condition.kind is ConditionKind.ACCOUNT:
        return SEE_LOG if condition.level is ConditionLevel.WARN else OPEN_DOCTOR
    if condition.kind is ConditionKind.STUCK:
        return STUCK_PLACES[condition.subject]
    if condition.kind is ConditionKind.MODEL and condition.example_id is not None:
        return f"console/receipts/{condition.example_id}", "See one"
    return PLACES.get(condition.kind, OPEN_DOCTOR)


WORST_FIRST = (ConnectionState.OFF, ConnectionState.DEGRADED, ConnectionState.CONNECTING, ConnectionState.CONNECTED)
DAY, SPENDING_STEP = timedelta(days=1), timedelta(minutes=10)
MIN_FORECAST_TIME = timedelta(hours=1)  # of a day, before which its end cannot be estimated


class MetricsQuery(AgentQuery):
    """Selection of a range of time, and of a platform."""

    range: Literal["hour", "day", "month"] = "hour"
    platform: str = Field("", max_length=40)


class VotesQuery(AgentQuery):
    """Selection of the last days."""

    days: int = Field(14, ge=1, le=366)


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


class DayVotesBody(ResponseModel):
    """How many people liked replies by a reaction, and how many did not, on a day (UTC)."""

    day: date
    liked: int
    disliked: int


class VotesResponse(ResponseModel):
    """The days that have votes, in order."""

    days: list[DayVotesBody]


class ModelsResponse(ResponseModel):
    """The models, those that work first; calls, failures and times are counted since `since`."""

    since: datetime
    models: list[ModelBody]


@dataclass(frozen=True, slots=True)
class OverviewApi:
    """Handlers for the state of the process: whether messages are accepted and platforms connected."""

    _directory: AgentDirectory
    _responder: JsonResponder

    @operation("GET", HEALTH_PATH, "health", Access.PUBLIC, (503,), response=HealthResponse)
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

    @operation("GET", "/api/overview", "overview", Access.READ)
    async def show_overview(self, request: web.Request, query: AgentQuery) -> OverviewResponse:
        """Return whether all is well, what needs attention, the accounts and the open work."""
        handles = self._directory.select_agents(query.agent)
        now = system_clock()
        spending = await asyncio.gather(*(handle.activity.spending() for handle in handles))
        situation = await read_situation(handles, now, spending)
        conditions = find_conditions(situation)
        links = zip(situation.accounts, connections_of(handles), strict=True)
        return OverviewResponse(
            at=now,
            started_at=min(handle.activity.started_at for handle in handles),
            headline=build_headline(situation, conditions),
            problems=list(map(build_problem, conditions)),
            accounts=[build_account(account, link.history()) for account, link in links],
            open=OpenBody.model_validate(situation.items),
            tasks=TasksBody.model_validate(situation.tasks),
            spent=SpentBody(
                usd=situation.spent,
                unpriced_calls=sum(entry.unpriced_calls for item in spending for entry in item.by_model.values()),
                limit=situation.limit or None,
            ),
        )

    @operation("GET", "/api/metrics", "metrics", Access.READ)
    async def show_metrics(self, request: web.Request, query: MetricsQuery) -> MetricsResponse:
        """Return messages, replies, times, failures and costs over an hour, a day or a month."""
        handles = self._directory.select_agents(query.agent)
        spending = await asyncio.gather(*(handle.activity.spending() for handle in handles))
        time_range = ActivityRange(query.range)
        series = await asyncio.gather(*(handle.activity.buckets(time_range, query.platform) for handle in handles))
        causes = sorted({cause for buckets in series for bucket in buckets for cause in bucket.failures})
        steps = list(zip(*series, strict=True))
        return MetricsResponse(
            step_s=int(time_range.step.total_seconds()),
            start=series[0][0].start,
            received=[sum(bucket.received for bucket in step) for step in steps],
            replies=[sum(bucket.answered for bucket in step) for step in steps],
            p50_ms=[_mean_median(step) for step in steps],
            p95_ms=[max((item.p95_ms for item in step if item.p95_ms is not None), default=None) for step in steps],
            failures={cause: [sum(item.failures.get(cause, 0) for item in step) for step in steps] for cause in causes},
            spent=_build_spending(spending, system_clock()),
        )

    @operation("GET", "/api/votes", "votes", Access.READ)
    async def list_votes(self, request: web.Request, query: VotesQuery) -> VotesResponse:
        """Count the people who liked replies by a reaction and those who did not, by day."""
        sums: dict[date, DayVotesBody] = {}
        for handle in self._directory.select_agents(query.agent):
            for item in await handle.activity.votes(query.days):
                total = sums.setdefault(item.day, DayVotesBody(day=item.day, liked=0, disliked=0))
                added = {"liked": total.liked + item.liked, "disliked": total.disliked + item.disliked}
                sums[item.day] = total.model_copy(update=added)
        return VotesResponse(days=[sums[day] for day in sorted(sums)])

    @operation("GET", "/api/models", "models", Access.READ)
    async def list_models(self, request: web.Request, query: AgentQuery) -> ModelsResponse:
        """List the models: what they are used for, which of them rest and why, their calls and costs."""
        handles = self._directory.select_agents(query.agent)
        spending = await asyncio.gather(*(handle.activity.spending() for handle in handles))
        since = min(handle.activity.started_at for handle in handles)
        models = list_models(handles, spending, system_clock())
        return ModelsResponse.model_validate({"since": since, "models": models})


def worst_states(links: Iterable[ConnectionStatus]) -> dict[str, ConnectionSnapshot]:
    """Return the state of each platform: the worst one of its accounts."""
    states_by_platform: dict[str, list[ConnectionSnapshot]] = {}
    for link in links:
        states_by_platform.setdefault(link.platform, []).append(link.snapshot)
    return {
        name: min(states, key=lambda state: WORST_FIRST.index(state.state))
        for name, states in sorted(states_by_platform.items())
    }


def _mean_median(step: Sequence[ActivityBucket]) -> int | None:
    known = [(item.p50_ms, item.answered) for item in step if item.p50_ms is not None]
    return round(sum(p50 * count for p50, count in known) / sum(count for _, count in known)) if known else None


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
        limit=limit_of(spending) or None,
    )
