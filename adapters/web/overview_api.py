"""HTTP handlers of figures: health, overview, messages over time, models, costs and limits."""

import asyncio
import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from typing import Annotated, Any, Literal
from uuid import UUID

from aiohttp import web
from pydantic import Field

from adapters.web.auth import GRANT, Access
from adapters.web.json_io import HttpProblem, JsonResponder
from adapters.web.openapi import HEALTH_PATH, METRICS_PATH, ReadBody, operation, package_version
from adapters.web.people_api import load_names
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import AgentQuery, HealthResponse, PlatformHealth, RequestModel, ResponseModel
from bot import SettingError, system_clock
from bot.platform import (
    AccountSituation,
    ActivityRange,
    AgentHandle,
    Condition,
    ConditionKind,
    ConditionLevel,
    ConnectionSnapshot,
    ConnectionState,
    ConnectionStatus,
    DisconnectCause,
    LazyImport,
    LimitState,
    ModelSituation,
    Situation,
    Spending,
    connections_of,
    find_conditions,
    format_dollars,
    install_command,
    limit_of,
    list_models,
    read_situation,
    store_text,
)
from bot.store import ActivityBucket, CostDimension, CostEntry, sort_sums

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


Grouping = Literal["day", "room", "person", "model", "purpose"]
MAX_DAYS = 400
MAX_NAMED = 1000
MAX_DEGRADED = 100
MAX_COUNTED, MAX_ADDED_USD = 10**12, 10**6  # far beyond what a rehearsal can use
FORECAST_DAYS, MIN_FORECAST_DAYS = 14, 3
DEVIATIONS = 1.28  # of a normal distribution: four in five results lie within
FIGURES = (
    "usd",
    "calls",
    "failed_calls",
    "unpriced_calls",
    "estimated_calls",
    "tokens_in",
    "tokens_cached",
    "tokens_out",
)
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


class CostsQuery(AgentQuery):
    """Selection of costs: the days (UTC), `to` exclusive, or the last `days`; and one or two groupings.

    With `limit` only the highest sums are listed one by one. `expected=true` adds what the month will have cost.
    """

    days: Annotated[int, Field(ge=1, le=MAX_DAYS)] = 7
    since: Annotated[date | None, Field(alias="from")] = None
    until: Annotated[date | None, Field(alias="to")] = None
    by: Annotated[list[Grouping], Field(max_length=2, default_factory=lambda: ["day"])]
    limit: Annotated[int | None, Field(ge=1, le=MAX_NAMED)] = None
    expected: bool = False


class CostBody(ResponseModel):
    """The costs of model calls; `usd` does not include unpriced and failed calls."""

    usd: float
    calls: int
    failed_calls: int
    unpriced_calls: int
    estimated_calls: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int


class SumBody(CostBody):
    """A sum; `key` is the day, the model, the purpose, or the id of the room or person, null for none.

    With two groupings `keys` has both, and `key` the first. `names` has a name of each room or person, if known, and
    the key itself of others.
    """

    key: str | None
    keys: list[str | None]
    names: list[str | None]


class ExpectedBody(ResponseModel):
    """What the month will have cost at its last day: the most likely amount, and a range that holds four times in five.

    It is the costs so far and the days left at the average of the last `days` days; `day` is the last day of the month.
    """

    day: date
    usd: float
    low: float
    high: float
    days: int


class DegradedBody(ResponseModel):
    """A step of DEGRADE that is in effect now, for all or for a room or person by their own limit.

    `id` and `name` are those of the room or person, null for all. `share` of the `limit` is used, 1 for all of it.
    """

    agent_id: UUID
    scope: Literal["all", "room", "person"]
    id: UUID | None
    name: str | None
    step: Literal["history", "small", "offline", "silent"]
    limit: str
    share: float


class CostsResponse(ResponseModel):
    """The costs of models between two days (UTC), in total and in sums.

    Days are in order; other sums are sorted by cost, the highest first. `others` are the sums beyond the limit
    together, null for none, and `others_count` their number. `degraded` says how answers degrade now, whatever the
    period, those of whose limits most is used first; of rooms and people at most a hundred.
    """

    first: date
    last: date
    total: CostBody
    sums: list[SumBody]
    others: CostBody | None
    others_count: int
    expected: ExpectedBody | None
    degraded: list[DegradedBody]


class HighestBody(ResponseModel):
    """The room or person that has used most of a limit today."""

    id: UUID
    name: str
    spent: float


class LimitBody(ResponseModel):
    """A daily limit in dollars or tokens, 0 for none, and what was used of it today (UTC).

    `variable` is the value of the variable of that name. With the origin `stored` the value was set here and wins over
    it. For a limit of each room or person `spent` is what the `highest` has used.
    """

    name: str
    agent_id: UUID
    scope: Literal["all", "room", "person"]
    unit: Literal["usd", "tokens"]
    value: float
    variable: float
    origin: Literal["stored", "variable", "none"]
    spent: float
    highest: HighestBody | None


class LimitsResponse(ResponseModel):
    """The limits of the agents, and the day for which they count what was used."""

    day: date
    limits: list[LimitBody]


class LimitsRequest(RequestModel):
    """New values of limits by name: 0 for no limit, null for the value of the variable."""

    limits: Annotated[dict[str, float | None], Field(min_length=1, max_length=20)]


Count = Annotated[int, Field(ge=0, le=MAX_COUNTED)]


class AddedCost(RequestModel):
    """Calls of one model that were made for the agent by another process, such as a rehearsal or `bot post`."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    purpose: Literal["rehearsal", "post"]
    usd: Annotated[float, Field(ge=0, le=MAX_ADDED_USD)]
    calls: Count
    failed_calls: Count = 0
    unpriced_calls: Count = 0
    estimated_calls: Count = 0
    tokens_in: Count
    tokens_cached: Count = 0
    tokens_out: Count


class AddCostsRequest(RequestModel):
    """Costs to count today, a model each."""

    costs: Annotated[list[AddedCost], Field(min_length=1, max_length=100)]


@dataclass(frozen=True, slots=True)
class CostsApi:
    """Handlers for the costs of models and their limits."""

    _directory: AgentDirectory
    _responder: JsonResponder

    @operation("GET", "/api/costs", "costs", Access.READ, has_csv=True)
    async def show_costs(self, request: web.Request, query: CostsQuery) -> CostsResponse | web.Response:
        """Return what models have cost, by day, room, person, model or purpose, or by two of them."""
        if len(set(query.by)) < len(query.by):
            raise HttpProblem(422, "invalid_request", "by: two different groupings")
        first, last = _read_period(query)
        handles = self._directory.select_agents(query.agent)
        by = [CostDimension[name.upper()] for name in query.by]
        entries = [entry for handle in handles for entry in await handle.conversations.costs(first, last, by)]
        sums = sort_sums(entries, by)
        if "text/csv" in request.headers.get("Accept", ""):
            return self._respond_csv(await _build_sums(handles, sums, by), query.by, first, last)
        shown = sums if query.limit is None else sums[: query.limit]
        others = sums[len(shown) :]
        return CostsResponse(
            first=first,
            last=last,
            total=_total(entries, first),
            sums=await _build_sums(handles, shown, by),
            others=_total(others, first) if others else None,
            others_count=len(others),
            expected=await _forecast(handles) if query.expected else None,
            degraded=[body for handle in handles for body in await _build_degraded(handle)],
        )

    @operation("POST", "/api/costs", "add-costs", Access.CHANGE, (503,))
    async def add_costs(
        self, request: web.Request, query: AgentQuery, read_body: ReadBody[AddCostsRequest]
    ) -> CostBody:
        """Count costs of another process, such as a rehearsal, in the sums and against the limits of today."""
        handle = self._select_agent(query.agent, "costs")
        today = system_clock().date()
        entries = [
            CostEntry(today, cost=item.usd, **item.model_dump(exclude={"usd"})) for item in (await read_body()).costs
        ]
        await handle.operations.add_costs(entries)
        return _total(entries, today)

    def _select_agent(self, name: str | None, owned: str) -> AgentHandle:
        """Return the agent with this id or name, or the only one. Raises HttpProblem if there are several."""
        handles = self._directory.select_agents(name)
        if len(handles) > 1:
            raise HttpProblem(422, "invalid_request", f"agent: name one, each has {owned} of its own")
        return handles[0]

    def _respond_csv(self, sums: Sequence[SumBody], by: Sequence[str], first: date, last: date) -> web.Response:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\r\n")
        named = [name for name in by if name in ("room", "person")]
        writer.writerow([*by, *(f"{name}_name" for name in named), *FIGURES])
        for item in sums:
            names = [item.names[by.index(name)] for name in named]
            figures = [getattr(item, name) for name in FIGURES]
            writer.writerow([*map(_guard_cell, (*item.keys, *names)), *figures])
        return web.Response(
            text=self._responder.redact(table.getvalue()),
            content_type="text/csv",
            charset="utf-8",
            headers={"Content-Disposition": f'attachment; filename="costs-{first}-{last}.csv"'},
        )

    @operation("GET", "/api/limits", "limits", Access.READ)
    async def list_limits(self, request: web.Request, query: AgentQuery) -> LimitsResponse:
        """List the daily limits with what was used of them today."""
        return await self._respond_limits(self._directory.select_agents(query.agent))

    @operation("PUT", "/api/limits", "set-limits", Access.CHANGE, (503,))
    async def change_limits(
        self, request: web.Request, query: AgentQuery, read_body: ReadBody[LimitsRequest]
    ) -> LimitsResponse:
        """Change daily limits of an agent; they count at once and are stored."""
        handle = self._select_agent(query.agent, "limits")
        body = await read_body()
        try:
            await handle.limits.change(body.limits, source=f"HTTP API, {GRANT.get().name or 'the server token'}")
        except SettingError as error:
            raise HttpProblem(422, "invalid_request", str(error)) from None
        return await self._respond_limits([handle])

    async def _respond_limits(self, handles: Sequence[AgentHandle]) -> LimitsResponse:
        today = system_clock().date()
        limits = [body for handle in handles for body in await _build_limits(handle, today)]
        return LimitsResponse(day=today, limits=limits)


def _read_period(query: CostsQuery) -> tuple[date, date]:
    """Return the first and the last day that are wanted. Raises HttpProblem for an impossible period."""
    last = query.until - timedelta(days=1) if query.until else system_clock().date()
    first = query.since or last - timedelta(days=query.days - 1)
    if not 0 <= (last - first).days < MAX_DAYS:
        raise HttpProblem(422, "invalid_request", f"from, to: a period of 1 to {MAX_DAYS} days")
    return first, last


def _total(entries: Sequence[CostEntry], day: date) -> CostBody:
    return CostBody(**next(iter(sort_sums(entries, ())), CostEntry(day, "")).to_json())


async def _build_sums(
    handles: Sequence[AgentHandle], sums: Sequence[CostEntry], by: Sequence[CostDimension]
) -> list[SumBody]:
    keyed = [([getattr(entry, dimension) for dimension in by], entry) for entry in sums]
    named = [key for keys, _ in keyed[:MAX_NAMED] for key in keys if isinstance(key, UUID)]
    names = {key: name for handle in handles for key, name in (await load_names(handle, named)).items()}
    return [
        SumBody(
            key=_key_text(keys[0]) if keys else None,
            keys=[_key_text(key) for key in keys],
            names=[names.get(key) if isinstance(key, UUID) else _key_text(key) for key in keys],
            **entry.to_json(),
        )
        for keys, entry in keyed
    ]


def _key_text(key: object) -> str | None:
    return None if key is None else str(key)


def _guard_cell(value: str | None) -> str:
    """Return the text of a cell that a spreadsheet does not take for a formula."""
    text = value or ""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


async def _forecast(handles: Sequence[AgentHandle]) -> ExpectedBody | None:
    """Return what this month will have cost; None with less than three days of costs."""
    today = system_clock().date()
    month = today.replace(day=1)
    end = (month + timedelta(days=32)).replace(day=1) - timedelta(days=1)
    first = min(month, today - timedelta(days=FORECAST_DAYS))
    costs = [
        entry for handle in handles for entry in await handle.conversations.costs(first, today, [CostDimension.DAY])
    ]
    by_day = {entry.day: entry.cost for entry in sort_sums(costs, [CostDimension.DAY])}
    begun = max(min(by_day, default=today), today - timedelta(days=FORECAST_DAYS))
    past = [by_day.get(begun + timedelta(days=number), 0.0) for number in range((today - begun).days)]
    if len(past) < MIN_FORECAST_DAYS:
        return None
    average = sum(past) / len(past)
    deviation = math.sqrt(sum((cost - average) ** 2 for cost in past) / (len(past) - 1))
    days_left = (end - today).days
    so_far = sum(cost for day, cost in by_day.items() if day >= month)
    rest_of_today = max(0.0, average - by_day.get(today, 0.0))
    expected = so_far + rest_of_today + average * days_left
    range_of = DEVIATIONS * deviation * math.sqrt(days_left + 1)
    return ExpectedBody(
        day=end,
        usd=round(expected, 4),
        low=round(max(so_far, expected - range_of), 4),
        high=round(expected + range_of, 4),
        days=len(past),
    )


SCOPES: dict[str, tuple[Literal["all", "room", "person"], CostDimension | None]] = {
    "ALL": ("all", None),
    "ROOM": ("room", CostDimension.ROOM),
    "PERSON": ("person", CostDimension.PERSON),
}


async def _build_degraded(handle: AgentHandle) -> list[DegradedBody]:
    found = sorted(handle.limits.degradations().items(), key=lambda item: -item[1].share)[:MAX_DEGRADED]
    names = await load_names(handle, (owner for (_, owner), _ in found))
    return [
        DegradedBody(
            agent_id=handle.agent_id,
            scope=SCOPES[scope.name][0],
            id=owner,
            name=None if owner is None else names.get(owner, ""),
            step=degradation.step.value,
            limit=degradation.setting,
            share=round(degradation.share, 4),
        )
        for (scope, owner), degradation in found
    ]


async def _build_limits(handle: AgentHandle, today: date) -> list[LimitBody]:
    sums = {
        dimension: await handle.conversations.costs(today, today, [dimension] if dimension else [])
        for _, dimension in SCOPES.values()
    }
    highest = {
        state.setting: max(_limited(state, sums[SCOPES[state.scope.name][1]]), key=state.amount_of, default=None)
        for state in handle.limits.states()
    }
    names = await load_names(handle, (_id_of(state, highest[state.setting]) for state in handle.limits.states()))
    return [_build_limit(handle, state, highest[state.setting], names) for state in handle.limits.states()]


def _limited(state: LimitState, entries: Sequence[CostEntry]) -> list[CostEntry]:
    """Return the costs that a limit is about: of a room or person, without those of none."""
    return [entry for entry in entries if state.scope.name == "ALL" or _id_of(state, entry) is not None]


def _id_of(state: LimitState, entry: CostEntry | None) -> UUID | None:
    dimension = SCOPES[state.scope.name][1]
    if entry is None or dimension is None:
        return None
    return entry.room_id if dimension is CostDimension.ROOM else entry.person_id


def _build_limit(
    handle: AgentHandle, state: LimitState, entry: CostEntry | None, names: dict[UUID | None, str]
) -> LimitBody:
    spent = round(state.amount_of(entry), 9) if entry is not None else 0.0
    highest_id = _id_of(state, entry)
    return LimitBody(
        name=state.setting,
        agent_id=handle.agent_id,
        scope=SCOPES[state.scope.name][0],
        unit="usd" if state.is_money else "tokens",
        value=state.value,
        variable=state.variable,
        origin="stored" if state.is_stored else "variable" if state.variable else "none",
        spent=spent,
        highest=None if highest_id is None else HighestBody(id=highest_id, name=names.get(highest_id, ""), spent=spent),
    )


LIBRARY, EXTRA = "prometheus_client", "metrics"
Exposition: Callable[[Sequence[AgentHandle]], Any] = LazyImport("adapters.web.exposition:Exposition")


class PrometheusApi:
    """Serves the figures for Prometheus. Counts nothing unless its client library is installed."""

    def __init__(self, directory: AgentDirectory) -> None:
        self._directory = directory
        self._exposition: Any = None

    def start(self) -> None:
        """Begin to count."""
        if find_spec(LIBRARY) is not None:
            self._exposition = Exposition(tuple(self._directory))

    @operation("GET", METRICS_PATH, "prometheus", Access.METRICS, (404,), content_type="text/plain")
    async def show_figures(self, request: web.Request) -> web.StreamResponse:
        """Return the figures of the process in the text format of Prometheus, or in OpenMetrics where that is asked."""
        if self._exposition is None:
            raise HttpProblem(404, "not_found", f"{LIBRARY} is not installed: {install_command(EXTRA)}")
        accept = request.headers.get("Accept", "")
        body, content_type = await self._exposition.encode(package_version(), system_clock(), accept)
        return web.Response(body=body, headers={"Content-Type": content_type})
