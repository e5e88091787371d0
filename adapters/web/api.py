"""HTTP handlers of the API."""

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import cache
from uuid import UUID

from aiohttp import web
from pydantic import TypeAdapter

from adapters.web.config import Limits
from adapters.web.errors import HttpProblem, build_not_found
from adapters.web.incoming import parse_api_message
from adapters.web.json_io import JsonResponder, read_json, validate_model, validate_with
from adapters.web.messages import MessageService, MessageStreams, run_shielded
from adapters.web.openapi import HEALTH_PATH, SOCKET_PATH, Handler, Operation, build_document
from adapters.web.outgoing import build_agent_body, build_part_body, build_receipt_body, build_room_body
from adapters.web.queries import (
    AgentDirectory,
    load_message_response,
    load_receipt_response,
    load_room_messages,
    parse_id,
)
from adapters.web.schemas import (
    AgentsResponse,
    CostBody,
    CostsQuery,
    CostsResponse,
    DecisionResponse,
    HealthResponse,
    Key,
    MessageRequest,
    MessageResponse,
    MessagesQuery,
    MessagesResponse,
    OutboxQuery,
    OutboxResponse,
    PlatformHealth,
    ReceiptResponse,
    ReceiptsQuery,
    ReceiptsResponse,
    RoomsQuery,
    RoomsResponse,
    SumBody,
    UndeliveredPartBody,
)
from bot import system_clock
from bot.platform import (
    AgentHandle,
    ConnectionSnapshot,
    ConnectionState,
    ConnectionStatus,
    Delivery,
    DeliveryDecision,
    TaskSet,
    UndeliveredParts,
)
from bot.store import CostEntry, sum_costs

HeaderKey = TypeAdapter[str](Key)
WORST_FIRST = (ConnectionState.OFF, ConnectionState.DEGRADED, ConnectionState.CONNECTING, ConnectionState.CONNECTED)
Decision = Callable[[UndeliveredParts, str], Awaitable[DeliveryDecision | None]]


class Api:
    """Handlers for agents, rooms, messages and receipts."""

    def __init__(
        self,
        directory: AgentDirectory,
        message_service: MessageService,
        streams: MessageStreams,
        responder: JsonResponder,
        limits: Limits,
    ) -> None:
        self._directory = directory
        self._message_service = message_service
        self._streams = streams
        self._responder = responder
        self._limits = limits

    async def list_agents(self, request: web.Request) -> web.StreamResponse:
        """List the agents."""
        bodies = [build_agent_body(handle.agent_id, handle.character) for handle in self._directory]
        return self._responder.respond(AgentsResponse(agents=bodies))

    async def send_message(self, request: web.Request) -> web.StreamResponse:
        """Submit a message and respond with its outcome."""
        handle = self._directory.find_agent(request.match_info["agent"])
        body = validate_model(MessageRequest, await read_json(request, timeout=self._limits.body_seconds))
        key = request.headers.get("Idempotency-Key")
        submitted = parse_api_message(body, None if key is None else validate_with(HeaderKey, key))
        if body.stream:
            return await self._streams.respond(request, handle, submitted)
        receipt = await self._message_service.submit(handle, submitted)
        return self._responder.respond(await load_message_response(handle, await handle.wait_outcome(receipt.id)))

    async def list_rooms(self, request: web.Request) -> web.StreamResponse:
        """List rooms."""
        query = validate_model(RoomsQuery, dict(request.query))
        handles = self._directory if query.agent is None else [self._directory.find_agent(query.agent)]
        bodies = [
            build_room_body(room, handle.agent_id) for handle in handles for room in await handle.conversations.rooms()
        ]
        return self._responder.respond(RoomsResponse(rooms=bodies[: query.limit]))

    async def list_messages(self, request: web.Request) -> web.StreamResponse:
        """List the last messages of a room."""
        query = validate_model(MessagesQuery, dict(request.query))
        handle, room = await self._directory.find_room(parse_id(request.match_info["id"]))
        return self._responder.respond(
            MessagesResponse(messages=await load_room_messages(handle, room.id, query.limit))
        )

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
        """Return the receipt of a message."""
        handle, receipt = await self._directory.find_receipt(parse_id(request.match_info["id"]))
        return self._responder.respond(await load_receipt_response(handle, receipt))


COST_KEYS: dict[str, Callable[[CostEntry], str | None]] = {
    "day": lambda entry: entry.day.isoformat(),
    "room": lambda entry: _id_text(entry.room_id),
    "person": lambda entry: _id_text(entry.person_id),
    "model": lambda entry: entry.model,
}


class CostsApi:
    """Handler for costs."""

    def __init__(self, directory: AgentDirectory, responder: JsonResponder) -> None:
        self._directory = directory
        self._responder = responder

    async def show_costs(self, request: web.Request) -> web.StreamResponse:
        """Return what the models have cost."""
        query = validate_model(CostsQuery, dict(request.query))
        handles = self._directory if query.agent is None else [self._directory.find_agent(query.agent)]
        last = system_clock().date()
        first = last - timedelta(days=query.days - 1)
        entries = [entry for handle in handles for entry in await handle.conversations.costs(first, last)]
        total_entry = sum_costs(entries, lambda entry: None).get(None, CostEntry(last, ""))
        total = CostBody(**total_entry.to_json())
        return self._responder.respond(
            CostsResponse(first=first, last=last, total=total, sums=_build_sums(entries, query.by))
        )


def _build_sums(entries: Sequence[CostEntry], by: str) -> list[SumBody]:
    sums = [SumBody(key=key, **item.to_json()) for key, item in sum_costs(entries, COST_KEYS[by]).items()]
    if by == "day":
        return sorted(sums, key=lambda item: item.key or "")
    return sorted(sums, key=lambda item: (-item.usd, -item.tokens_in - item.tokens_out))


def _id_text(value: UUID | None) -> str | None:
    return str(value) if value else None


class HealthApi:
    """Handler of the health check, which needs no token: so it contains no private information."""

    def __init__(self, handles: Sequence[AgentHandle], responder: JsonResponder) -> None:
        self._handles = tuple(handles)
        self._responder = responder

    async def show_health(self, request: web.Request) -> web.StreamResponse:
        """Return the state of the store and the platforms; 503 only if no message is accepted.

        A disconnected platform is no 503: a probe would end the process because of it.
        """
        problem = next((item for handle in self._handles if (item := handle.problem)), None)
        states = worst_states(self._handles[0].connections())
        platforms = {
            name: PlatformHealth(state=item.state, since=item.since, cause=item.cause) for name, item in states.items()
        }
        if problem is not None:
            body = HealthResponse(status="unavailable", cause=problem.cause, since=problem.since, platforms=platforms)
            return self._responder.respond(body, status=503)
        is_degraded = any(item.is_problem for item in states.values())
        return self._responder.respond(HealthResponse(status="degraded" if is_degraded else "ok", platforms=platforms))


def worst_states(links: Iterable[ConnectionStatus]) -> dict[str, ConnectionSnapshot]:
    """Return the state of each platform: the worst one of its accounts."""
    states_by_platform: dict[str, list[ConnectionSnapshot]] = {}
    for link in links:
        states_by_platform.setdefault(link.platform, []).append(link.snapshot)
    return {
        name: min(states, key=lambda state: WORST_FIRST.index(state.state))
        for name, states in sorted(states_by_platform.items())
    }


class OutboxApi:
    """Handlers for undelivered parts."""

    def __init__(self, directory: AgentDirectory, requests: TaskSet, responder: JsonResponder) -> None:
        self._directory = directory
        self._requests = requests
        self._responder = responder

    async def list_parts(self, request: web.Request) -> web.StreamResponse:
        """List the undelivered parts."""
        query = validate_model(OutboxQuery, dict(request.query))
        handles = self._directory if query.agent is None else [self._directory.find_agent(query.agent)]
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


async def _build_part_body(handle: AgentHandle, part: Delivery) -> UndeliveredPartBody:
    return build_part_body(part, handle.agent_id, await handle.conversations.room(part.room_id))


def build_operations(
    api: Api, costs: CostsApi, health: HealthApi, outbox: OutboxApi, socket: Handler
) -> list[Operation]:
    """Return all operations of the API with their handlers; the OpenAPI document describes the same list."""
    operations = [
        Operation(
            "health",
            health.show_health,
            "GET",
            HEALTH_PATH,
            "Return whether messages are accepted, and the connection of each platform; needs no token",
            HealthResponse,
            problem_statuses=(503,),
        ),
        Operation("agents", api.list_agents, "GET", "/api/agents", "List the agents", AgentsResponse),
        Operation(
            "say",
            api.send_message,
            "POST",
            "/api/agents/{agent}/messages",
            "Send an agent, by id or name, a message and wait for its outcome",
            MessageResponse,
            body=MessageRequest,
            problem_statuses=(400, 404, 408, 413, 415, 422, 503),
        ),
        *_list_operations(api, costs),
        Operation(
            "outbox",
            outbox.list_parts,
            "GET",
            "/api/outbox",
            "List the parts that wait, are held or have failed",
            OutboxResponse,
            OutboxQuery,
            (404, 422),
        ),
        Operation(
            "send",
            outbox.send_part,
            "POST",
            "/api/outbox/{id}/send",
            "Send a held or failed part again",
            DecisionResponse,
            problem_statuses=(404, 409),
        ),
        Operation(
            "drop",
            outbox.drop_part,
            "POST",
            "/api/outbox/{id}/drop",
            "Give a part up",
            DecisionResponse,
            problem_statuses=(404, 409),
        ),
    ]
    operations += _meta_operations(operations, socket)
    return operations


def _list_operations(api: Api, costs: CostsApi) -> Iterator[Operation]:
    """Yield the operations that read rooms, messages, receipts and costs."""
    yield Operation("rooms", api.list_rooms, "GET", "/api/rooms", "List rooms", RoomsResponse, RoomsQuery, (404, 422))
    yield Operation(
        "messages",
        api.list_messages,
        "GET",
        "/api/rooms/{id}/messages",
        "List the last messages of a room",
        MessagesResponse,
        MessagesQuery,
        (404, 422),
    )
    yield Operation(
        "receipts",
        api.list_receipts,
        "GET",
        "/api/receipts",
        "List the receipts of the latest messages",
        ReceiptsResponse,
        ReceiptsQuery,
        (404, 422),
    )
    yield Operation(
        "receipt",
        api.show_receipt,
        "GET",
        "/api/receipts/{id}",
        "Return the receipt of a message, by its id or its receipt's id",
        ReceiptResponse,
        problem_statuses=(404,),
    )
    yield Operation(
        "costs",
        costs.show_costs,
        "GET",
        "/api/costs",
        "Return what models have cost, by day, room, person or model",
        CostsResponse,
        CostsQuery,
        (404, 422),
    )


def _meta_operations(operations: Sequence[Operation], socket: Handler) -> list[Operation]:
    """Return the operations for the OpenAPI document and the WebSocket."""

    @cache
    def document() -> str:
        return json.dumps(build_document(operations))

    async def show_openapi(request: web.Request) -> web.StreamResponse:
        return web.Response(text=document(), content_type="application/json")

    summary = "Talk over a WebSocket; its frames are ClientFrame and ServerFrame"
    return [
        Operation("openapi", show_openapi, "GET", "/api/openapi.json", "This description"),
        Operation("socket", socket, "GET", SOCKET_PATH, summary),
    ]
