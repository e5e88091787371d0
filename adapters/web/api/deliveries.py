"""HTTP handlers of the parts of replies that have not arrived."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated
from uuid import UUID

from aiohttp import web
from pydantic import Field

from adapters.web.auth import Access
from adapters.web.errors import HttpProblem, build_not_found
from adapters.web.json_io import JsonResponder, validate_model
from adapters.web.messages import run_shielded
from adapters.web.openapi import Operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import AgentQuery, ResponseModel
from bot.platform import AgentHandle, Delivery, DeliveryDecision, TaskSet, UndeliveredParts

Decision = Callable[[UndeliveredParts, str], Awaitable[DeliveryDecision | None]]


class OutboxQuery(AgentQuery):
    """Selection of undelivered parts."""

    limit: Annotated[int, Field(ge=1, le=500)] = 100


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
    """An undelivered part: it waits, is being sent, is held (`unknown`) or has failed."""

    agent_id: UUID
    room_id: UUID
    room: str
    platform: str
    text: str


class OutboxResponse(ResponseModel):
    """Undelivered parts, agent by agent, in the order of sending."""

    parts: list[UndeliveredPartBody]


class DecisionResponse(UndeliveredPartBody):
    """A part after a decision about it, with a note."""

    note: str


@dataclass(frozen=True, slots=True)
class DeliveriesApi:
    """Handlers for undelivered parts."""

    _directory: AgentDirectory
    _requests: TaskSet
    _responder: JsonResponder

    async def list_parts(self, request: web.Request) -> web.StreamResponse:
        """List the parts that wait, are held or have failed."""
        query = validate_model(OutboxQuery, dict(request.query))
        handles = self._directory.select_agents(query.agent)
        bodies = [
            await _build_part_body(handle, part)
            for handle in handles
            for part in await handle.undelivered.parts(query.limit)
        ]
        return self._responder.respond(OutboxResponse(parts=bodies[: query.limit]))

    async def send_part(self, request: web.Request) -> web.StreamResponse:
        """Send a held or failed part again."""
        return await run_shielded(self._requests, self._decide(request.match_info["id"], UndeliveredParts.retry))

    async def drop_part(self, request: web.Request) -> web.StreamResponse:
        """Drop a part."""
        return await run_shielded(self._requests, self._decide(request.match_info["id"], UndeliveredParts.drop))

    async def _decide(self, delivery_id: str, decide: Decision) -> web.StreamResponse:
        for handle in self._directory:
            decision = await decide(handle.undelivered, delivery_id)
            if decision is None:
                continue
            if not decision.is_done:
                raise HttpProblem(409, "conflict", decision.note)
            body = await _build_part_body(handle, decision.part)
            return self._responder.respond(DecisionResponse(**dict(body), note=decision.note))
        raise build_not_found("part", delivery_id)

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        path = "/api/outbox"
        decision = partial(
            Operation, access=Access.CHANGE, response=DecisionResponse, problem_statuses=(404, 409), method="POST"
        )
        return [
            Operation("outbox", self.list_parts, path, Access.READ, OutboxResponse, OutboxQuery),
            decision("send", self.send_part, f"{path}/{{id}}/send"),
            decision("drop", self.drop_part, f"{path}/{{id}}/drop"),
        ]


async def _build_part_body(handle: AgentHandle, part: Delivery) -> UndeliveredPartBody:
    room = await handle.conversations.room(part.room_id)
    return UndeliveredPartBody.build(
        part,
        message_id=part.memory_id,
        agent_id=handle.agent_id,
        room=(room.name or room.external_id) if room else part.target,
        text=part.content.text,
    )
