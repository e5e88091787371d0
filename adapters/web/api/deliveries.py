"""HTTP handlers of the parts of replies that have not arrived."""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Literal
from uuid import UUID

from aiohttp import web
from pydantic import Field

from adapters.web.auth import Access
from adapters.web.incoming import name_room
from adapters.web.json_io import HttpProblem, build_not_found
from adapters.web.openapi import ReadBody, operation
from adapters.web.queries import AgentDirectory, merge_pages, parse_page_keys
from adapters.web.schemas import AgentQuery, RequestModel, ResponseModel
from bot.platform import (
    DELIVERY_STATES,
    DecisionResult,
    Delivery,
    PartCounts,
    PartDecision,
    PartState,
    UndeliveredPartBody,
)
from bot.store import Page


class OutboxQuery(AgentQuery):
    """Selection of undelivered parts; `state` may be repeated, without one parts in any state are listed."""

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    before: Annotated[str, Field(max_length=4000)] | None = None
    state: Annotated[list[PartState], Field(max_length=4, default_factory=list)]
    platform: Annotated[str, Field(max_length=100)] = ""
    room: UUID | None = None


class DecisionsRequest(RequestModel):
    """One decision about several parts."""

    ids: Annotated[list[Annotated[str, Field(max_length=200)]], Field(min_length=1, max_length=200)]
    decision: Literal["send", "drop"]


class OutboxResponse(ResponseModel):
    """Undelivered parts, the latest ones, in the order of sending; `next` is the `before` of the earlier ones.

    With filters a part of the list may be short, even empty, and have a `next`.
    """

    parts: list[UndeliveredPartBody]
    next: str | None
    counts: PartCounts


class DecisionResponse(UndeliveredPartBody):
    """A part after a decision about it, with a note."""

    note: str


class DecisionsResponse(ResponseModel):
    """What came of each decision, in the order of the ids."""

    results: list[DecisionResult]


@dataclass(frozen=True, slots=True)
class DeliveriesApi:
    """Handlers for undelivered parts."""

    _directory: AgentDirectory

    @operation("GET", "/api/outbox", "outbox", Access.READ)
    async def list_parts(self, request: web.Request, query: OutboxQuery) -> OutboxResponse:
        """List the parts that wait, are held or have failed."""
        if query.room is not None:
            await self._directory.find_room(query.room)
        handles = self._directory.select_agents(query.agent)
        keys = parse_page_keys(query.before, len(handles))
        states = frozenset(state for name in query.state or PartState for state in DELIVERY_STATES[name])

        def is_wanted(part: Delivery) -> bool:
            return (
                (not query.state or PartState.of(part) in query.state)
                and query.platform in ("", part.platform)
                and query.room in (None, part.room_id)
            )

        pages = []
        for handle, key in zip(handles, keys, strict=True):
            page = await handle.lists.deliveries(states, before=key, limit=query.limit)
            pages.append(Page(tuple(item for item in page.items if is_wanted(item[1])), page.next))
        parts, following = merge_pages(pages, keys, lambda part: part.created_at, query.limit)
        bodies: dict[str, UndeliveredPartBody] = {}
        for number, handle in enumerate(handles):
            own = [part for of_agent, part in parts if of_agent == number]
            bodies |= {body.id: body for body in await handle.operations.describe_parts(own, name_room)}
        counts = Counter[str]()
        for handle in handles:
            counts.update((await handle.operations.count_parts()).model_dump())
        return OutboxResponse(
            parts=[bodies[part.id] for _, part in reversed(parts)],
            next=following,
            counts=PartCounts.model_validate(counts),
        )

    @operation("POST", "/api/outbox/decisions", "decisions", Access.CHANGE, (503,))
    async def decide_parts(self, request: web.Request, read_body: ReadBody[DecisionsRequest]) -> DecisionsResponse:
        """Send several held or failed parts again, or drop them."""
        body = await read_body()
        results = [await self._decide(part_id, PartDecision(body.decision)) for part_id in dict.fromkeys(body.ids)]
        return DecisionsResponse(results=results)

    async def _decide(self, part_id: str, decision: PartDecision) -> DecisionResult:
        for handle in self._directory:
            result = await handle.operations.decide(part_id, decision, name_room)
            if result.part is not None:
                break
        return result

    @operation("POST", "/api/outbox/{id}/send", "send", Access.CHANGE, (404, 409))
    async def send_part(self, request: web.Request) -> DecisionResponse:
        """Send a held or failed part again."""
        return await self._decide_part(request, PartDecision.SEND)

    @operation("POST", "/api/outbox/{id}/drop", "drop", Access.CHANGE, (404, 409))
    async def drop_part(self, request: web.Request) -> DecisionResponse:
        """Drop a part."""
        return await self._decide_part(request, PartDecision.DROP)

    async def _decide_part(self, request: web.Request, decision: PartDecision) -> DecisionResponse:
        result = await self._decide(request.match_info["id"], decision)
        if result.part is None:
            raise build_not_found("part", result.id)
        if not result.is_done:
            raise HttpProblem(409, "conflict", result.note)
        return DecisionResponse(**dict(result.part), note=result.note)
