"""HTTP handlers of receipts."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from uuid import UUID

from aiohttp import web
from pydantic import Field

from adapters.web.api.deliveries import DeliveryBody
from adapters.web.auth import Access
from adapters.web.json_io import JsonResponder, validate_model
from adapters.web.openapi import Operation
from adapters.web.queries import AgentDirectory, load_message, load_replies, parse_id
from adapters.web.schemas import MessageBody, Query, ResponseModel
from bot import Outcome, Receipt
from bot.platform import AgentHandle


class ReceiptsQuery(Query):
    """Selection of receipts."""

    room: UUID | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class CallBody(ResponseModel):
    """One call to a model; `cost` is in US dollars, null if the model's price is unknown."""

    type: str
    purpose: str
    model: str
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    is_estimate: bool
    cost: float | None
    seconds: float
    error: str


class ReceiptBody(ResponseModel):
    """The receipt of an inbound message: outcome, reason, times and costs.

    `seconds` is the total duration; `cost` is the sum of the calls with a known price, null without any.
    """

    id: UUID
    agent_id: UUID
    message_id: UUID
    room_id: UUID
    author_id: UUID
    platform: str
    outcome: Outcome
    reason: str
    rule: str
    superseded_by: UUID | None
    received_at: datetime
    claimed_at: datetime | None
    closed_at: datetime | None
    seconds: float | None
    attempts: int
    carried: int
    tokens_in: int
    tokens_out: int
    cost: float | None
    model_calls: list[CallBody]
    notes: list[str]


class ReceiptsResponse(ResponseModel):
    """Receipts, newest first."""

    receipts: list[ReceiptBody]


class ReceiptResponse(ReceiptBody):
    """A receipt with its message, replies and deliveries."""

    message: MessageBody | None
    replies: list[MessageBody]
    deliveries: list[DeliveryBody]


@dataclass(frozen=True, slots=True)
class ReceiptsApi:
    """Handlers for the receipts of messages."""

    _directory: AgentDirectory
    _responder: JsonResponder

    async def list_receipts(self, request: web.Request) -> web.StreamResponse:
        """List the receipts of the latest messages."""
        query = validate_model(ReceiptsQuery, dict(request.query))
        if query.room is not None:
            await self._directory.find_room(query.room)
        bodies = [
            build_receipt_body(receipt, handle.agent_id)
            for handle in self._directory
            for receipt in await handle.conversations.receipts(room_id=query.room, limit=query.limit)
        ]
        bodies.sort(key=lambda body: body.received_at, reverse=True)
        return self._responder.respond(ReceiptsResponse(receipts=bodies[: query.limit]))

    async def show_receipt(self, request: web.Request) -> web.StreamResponse:
        """Return the receipt of a message, by its id or its receipt's id."""
        handle, receipt = await self._directory.find_receipt(parse_id(request.match_info["id"]))
        return self._responder.respond(await _load_receipt(handle, receipt))

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        path = "/api/receipts"
        return [
            Operation("receipts", self.list_receipts, path, Access.READ, ReceiptsResponse, ReceiptsQuery),
            Operation(
                "receipt", self.show_receipt, f"{path}/{{id}}", Access.READ, ReceiptResponse, problem_statuses=(404,)
            ),
        ]


def build_receipt_body(receipt: Receipt, agent_id: UUID) -> ReceiptBody:
    """Return a receipt with its costs."""
    calls = receipt.model_calls
    costs = [call.cost for call in calls if call.cost is not None]
    duration = receipt.closed_at - receipt.received_at if receipt.closed_at else None
    return ReceiptBody.build(
        receipt,
        agent_id=agent_id,
        message_id=receipt.memory_id,
        platform=receipt.key.platform,
        seconds=None if duration is None else duration.total_seconds(),
        carried=receipt.supersede_count,
        tokens_in=sum(call.tokens_in for call in calls),
        tokens_out=sum(call.tokens_out for call in calls),
        cost=sum(costs) if costs else None,
        model_calls=[CallBody.build(call) for call in calls],
    )


async def _load_receipt(handle: AgentHandle, receipt: Receipt) -> ReceiptResponse:
    """Return a receipt with its message, replies and deliveries."""
    replies = await load_replies(handle, receipt)
    deliveries = await handle.conversations.deliveries(receipt.turn_id) if receipt.turn_id and replies else []
    body = build_receipt_body(receipt, handle.agent_id)
    return ReceiptResponse(
        **dict(body),
        message=await load_message(handle, receipt.memory_id),
        replies=replies,
        deliveries=[DeliveryBody.build(delivery, message_id=delivery.memory_id) for delivery in deliveries],
    )
