"""HTTP handlers of the costs of models."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from operator import attrgetter
from typing import Annotated, Literal

from aiohttp import web
from pydantic import Field

from adapters.web.auth import Access
from adapters.web.json_io import JsonResponder, validate_model
from adapters.web.openapi import Operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import AgentQuery, ResponseModel
from bot import system_clock
from bot.store import CostEntry, sum_costs

COST_KEYS = {"day": "day", "room": "room_id", "person": "person_id", "model": "model"}


class CostsQuery(AgentQuery):
    """Selection of costs: the number of days and the grouping."""

    days: Annotated[int, Field(ge=1, le=400)] = 7
    by: Literal["day", "room", "person", "model"] = "day"


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
    """A sum; `key` is the day, the model, or the id of the room or person, null for none."""

    key: str | None


class CostsResponse(ResponseModel):
    """The costs of models between two days (UTC), in total and in sums.

    Days are in order; other sums are sorted by cost, the highest first.
    """

    first: date
    last: date
    total: CostBody
    sums: list[SumBody]


@dataclass(frozen=True, slots=True)
class CostsApi:
    """Handlers for the costs of models."""

    _directory: AgentDirectory
    _responder: JsonResponder

    async def show_costs(self, request: web.Request) -> web.StreamResponse:
        """Return what models have cost, by day, room, person or model."""
        query = validate_model(CostsQuery, dict(request.query))
        handles = self._directory.select_agents(query.agent)
        last = system_clock().date()
        first = last - timedelta(days=query.days - 1)
        entries = [entry for handle in handles for entry in await handle.conversations.costs(first, last)]
        total_entry = sum_costs(entries, lambda entry: None).get(None, CostEntry(last, ""))
        total = CostBody(**total_entry.to_json())
        return self._responder.respond(
            CostsResponse(first=first, last=last, total=total, sums=_build_sums(entries, query.by))
        )

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        return [Operation("costs", self.show_costs, "/api/costs", Access.READ, CostsResponse, CostsQuery)]


def _build_sums(entries: Sequence[CostEntry], by: str) -> list[SumBody]:
    sums = [
        SumBody(key=None if key is None else str(key), **item.to_json())
        for key, item in sum_costs(entries, attrgetter(COST_KEYS[by])).items()
    ]
    if by == "day":
        return sorted(sums, key=lambda item: item.key or "")
    return sorted(sums, key=lambda item: (-item.usd, -item.tokens_in - item.tokens_out))
