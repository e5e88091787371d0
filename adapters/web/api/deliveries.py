"""HTTP handlers of the parts of replies that have not arrived."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Literal
from uuid import UUID

from aiohttp import web
from pydantic import Field

from adapters.web.auth import Access
from adapters.web.config import Limits
from adapters.web.incoming import name_room
from adapters.web.json_io import HttpProblem, JsonResponder, build_not_found, read_json, validate_model
from adapters.web.messages import run_shielded
from adapters.web.openapi import Operation
from adapters.web.queries import AgentDirectory, merge_pages, parse_page_keys, read_query
from adapters.web.schemas import AgentQuery, RequestModel, ResponseModel
from bot.platform import (
    DROPPED_CAUSE,
    AgentHandle,
    Delivery,
    DeliveryDecision,
    DeliveryState,
    TaskSet,
    UndeliveredParts,
    is_dropped,
)
from bot.store import Page

Decision = Callable[[UndeliveredParts, str], Awaitable[DeliveryDecision | None]]


class PartState(StrEnum):
    """What is the matter with a part: it waits, an operator has to decide, it failed, or it was given up."""

    WAITING = "waiting"
    HELD = "held"
    FAILED = "failed"
    DROPPED = "dropped"


STATES = {
    PartState.WAITING: (DeliveryState.PENDING, DeliveryState.ATTEMPTING),
    PartState.HELD: (DeliveryState.UNKNOWN,),
    PartState.FAILED: (DeliveryState.FAILED,),
    PartState.DROPPED: (DeliveryState.FAILED,),
}


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


class DeliveryBody(ResponseModel):
    """One outgoing part of a reply and its delivery state."""

    id: str
    message_id: UUID
    part: int
    state: str
    attempts: int
    created_at: datetime
    first_attempt_at: datetime | None
    cause: str


class UndeliveredPartBody(DeliveryBody):
    """An undelivered part: it waits, is being sent, is held (`unknown`) or has failed.

    `status` is the state in the word of the filter, `why` a sentence; `receipt_id` is the receipt of the message that
    it answers, null for a post.
    """

    agent_id: UUID
    room_id: UUID
    room: str
    platform: str
    text: str
    status: PartState
    why: str
    next_attempt_at: datetime | None
    receipt_id: UUID | None


class PartCounts(ResponseModel):
    """How many parts wait, are held and have failed; those that were given up are not counted."""

    waiting: int
    held: int
    failed: int


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


class DecisionResult(ResponseModel):
    """What came of a decision about one part, with a note; `part` is null for an unknown one."""

    id: str
    is_done: bool
    note: str
    part: UndeliveredPartBody | None


class DecisionsResponse(ResponseModel):
    """What came of each decision, in the order of the ids."""

    results: list[DecisionResult]


@dataclass(frozen=True, slots=True)
class DeliveriesApi:
    """Handlers for undelivered parts."""

    _directory: AgentDirectory
    _requests: TaskSet
    _responder: JsonResponder
    _limits: Limits

    async def list_parts(self, request: web.Request) -> web.StreamResponse:
        """List the parts that wait, are held or have failed."""
        query = validate_model(OutboxQuery, read_query(request, ("state",)))
        if query.room is not None:
            await self._directory.find_room(query.room)
        handles = self._directory.select_agents(query.agent)
        keys = parse_page_keys(query.before, len(handles))
        states = frozenset(state for name in query.state or PartState for state in STATES[name])
        pages = []
        for handle, key in zip(handles, keys, strict=True):
            page = await handle.lists.deliveries(states, before=key, limit=query.limit)
            pages.append(Page(tuple(item for item in page.items if _is_wanted(item[1], query)), page.next))
        parts, following = merge_pages(pages, keys, lambda part: part.created_at, query.limit)
        bodies: dict[str, UndeliveredPartBody] = {}
        for number, handle in enumerate(handles):
            own = [part for of_agent, part in parts if of_agent == number]
            bodies |= {body.id: body for body in await _build_part_bodies(handle, own)}
        return self._responder.respond(
            OutboxResponse(
                parts=[bodies[part.id] for _, part in reversed(parts)],
                next=following,
                counts=await _count_parts(handles),
            )
        )

    async def decide_parts(self, request: web.Request) -> web.StreamResponse:
        """Send several held or failed parts again, or drop them."""
        body = validate_model(DecisionsRequest, await read_json(request, timeout=self._limits.body_seconds))
        return await run_shielded(self._requests, self._decide_all(body))

    async def _decide_all(self, body: DecisionsRequest) -> web.StreamResponse:
        decide = UndeliveredParts.retry if body.decision == "send" else UndeliveredParts.drop
        results = []
        for delivery_id in dict.fromkeys(body.ids):
            handle, decision = await self._try(delivery_id, decide)
            if handle is None or decision is None:
                results.append(DecisionResult(id=delivery_id, is_done=False, note="there is no such part", part=None))
                continue
            [part] = await _build_part_bodies(handle, [decision.part])
            results.append(DecisionResult(id=delivery_id, is_done=decision.is_done, note=decision.note, part=part))
        return self._responder.respond(DecisionsResponse(results=results))

    async def _try(self, delivery_id: str, decide: Decision) -> tuple[AgentHandle | None, DeliveryDecision | None]:
        for handle in self._directory:
            if (decision := await decide(handle.undelivered, delivery_id)) is not None:
                return handle, decision
        return None, None

    async def send_part(self, request: web.Request) -> web.StreamResponse:
        """Send a held or failed part again."""
        return await run_shielded(self._requests, self._decide(request.match_info["id"], UndeliveredParts.retry))

    async def drop_part(self, request: web.Request) -> web.StreamResponse:
        """Drop a part."""
        return await run_shielded(self._requests, self._decide(request.match_info["id"], UndeliveredParts.drop))

    async def _decide(self, delivery_id: str, decide: Decision) -> web.StreamResponse:
        handle, decision = await self._try(delivery_id, decide)
        if handle is None or decision is None:
            raise build_not_found("part", delivery_id)
        if not decision.is_done:
            raise HttpProblem(409, "conflict", decision.note)
        [body] = await _build_part_bodies(handle, [decision.part])
        return self._responder.respond(DecisionResponse(**dict(body), note=decision.note))

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        path = "/api/outbox"
        decision = partial(
            Operation, access=Access.CHANGE, response=DecisionResponse, problem_statuses=(404, 409), method="POST"
        )
        return [
            Operation("outbox", self.list_parts, path, Access.READ, OutboxResponse, OutboxQuery),
            Operation(
                "decisions",
                self.decide_parts,
                f"{path}/decisions",
                Access.CHANGE,
                DecisionsResponse,
                problem_statuses=(400, 408, 413, 415, 422, 503),
                body=DecisionsRequest,
                method="POST",
            ),
            decision("send", self.send_part, f"{path}/{{id}}/send"),
            decision("drop", self.drop_part, f"{path}/{{id}}/drop"),
        ]


def _status_of(part: Delivery) -> PartState:
    if part.state is DeliveryState.UNKNOWN:
        return PartState.HELD
    if part.state in STATES[PartState.WAITING]:
        return PartState.WAITING
    return PartState.DROPPED if is_dropped(part) else PartState.FAILED


def _is_wanted(part: Delivery, query: OutboxQuery) -> bool:
    return (
        (not query.state or _status_of(part) in query.state)
        and query.platform in ("", part.platform)
        and query.room in (None, part.room_id)
    )


async def _count_parts(handles: Sequence[AgentHandle]) -> PartCounts:
    counts = Counter[DeliveryState]()
    for handle in handles:
        counts.update(await handle.lists.count_deliveries(without_cause=DROPPED_CAUSE))
    return PartCounts(
        **{name: sum(counts[state] for state in STATES[PartState(name)]) for name in PartCounts.model_fields}
    )


async def _build_part_bodies(handle: AgentHandle, parts: Sequence[Delivery]) -> list[UndeliveredPartBody]:
    """Return parts with what belongs to them, by a fixed number of queries."""
    rooms = await handle.lists.rooms_by_id({part.room_id for part in parts})
    replies = await handle.conversations.memories({part.memory_id for part in parts})
    answered = {reply.id: reply.content.in_reply_to for reply in replies.values()}
    receipts = await handle.lists.receipts_of({message_id for message_id in answered.values() if message_id})
    bodies = []
    for part in parts:
        room, message_id = rooms.get(part.room_id), answered.get(part.memory_id)
        receipt = receipts.get(message_id) if message_id else None
        status = handle.undelivered.explain(part)
        bodies.append(
            UndeliveredPartBody.build(
                part,
                message_id=part.memory_id,
                agent_id=handle.agent_id,
                room=name_room(room) if room else part.target,
                text=part.content.text,
                status=_status_of(part),
                why=status.why,
                next_attempt_at=status.next_attempt_at,
                receipt_id=receipt.id if receipt else None,
            )
        )
    return bodies
