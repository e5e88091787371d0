"""HTTP handlers of the costs of models, and of the limits that hold them down."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Literal
from uuid import UUID

from aiohttp import web
from pydantic import Field

from adapters.web.api.people import load_names
from adapters.web.auth import GRANT, Access
from adapters.web.json_io import HttpProblem, JsonResponder
from adapters.web.openapi import ReadBody, operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import AgentQuery, RequestModel, ResponseModel
from bot import SettingError, system_clock
from bot.platform import AgentHandle, LimitState
from bot.store import CostDimension, CostEntry, sort_sums

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
