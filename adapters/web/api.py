"""HTTP handlers of the API."""

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from operator import attrgetter
from uuid import UUID

from aiohttp import web
from pydantic import TypeAdapter

from adapters.web import schemas
from adapters.web.auth import GRANT, Access
from adapters.web.config import Limits
from adapters.web.errors import HttpProblem, build_not_found
from adapters.web.files import FileApi, FileLinkResponse, FileQuery
from adapters.web.incoming import is_command, parse_api_message
from adapters.web.json_io import JsonResponder, read_json, validate_model, validate_with
from adapters.web.messages import MessageService, MessageStreams, run_shielded
from adapters.web.openapi import HEALTH_PATH, SOCKET_PATH, Handler, Operation, build_document
from adapters.web.outgoing import build_agent_body, build_receipt_body
from adapters.web.queries import AgentDirectory, load_receipt_response, load_room_messages, parse_id, search_memories
from adapters.web.schemas import ResponseModel
from bot import system_clock
from bot.platform import (
    AgentHandle,
    BoundRoute,
    ConnectionSnapshot,
    ConnectionState,
    ConnectionStatus,
    Delivery,
    DeliveryDecision,
    TaskSet,
    UndeliveredParts,
)
from bot.store import CostEntry, sum_costs

HeaderKey = TypeAdapter[str](schemas.Key)
WORST_FIRST = (ConnectionState.OFF, ConnectionState.DEGRADED, ConnectionState.CONNECTING, ConnectionState.CONNECTED)
Decision = Callable[[UndeliveredParts, str], Awaitable[DeliveryDecision | None]]


class ReloadResponse(ResponseModel):
    """What was taken up from a character's file, and what counts after the next start only."""

    agent_id: UUID
    name: str
    file: str
    changed: list[str]
    needs_restart: list[str]


@dataclass(frozen=True, slots=True)
class Api:
    """Handlers for agents, rooms, messages, receipts, costs and the health check."""

    _directory: AgentDirectory
    _message_service: MessageService
    _streams: MessageStreams
    _responder: JsonResponder
    _limits: Limits

    async def list_agents(self, request: web.Request) -> web.StreamResponse:
        """List the agents."""
        bodies = [build_agent_body(handle.agent_id, handle.character) for handle in self._directory]
        return self._responder.respond(schemas.AgentsResponse(agents=bodies))

    async def reload_agent(self, request: web.Request) -> web.StreamResponse:
        """Read an agent's character file again and take up what can change while it runs."""
        handle = self._directory.find_agent(request.match_info["agent"])
        result = await handle.reload()
        if result.error:
            raise HttpProblem(422, "character_refused", result.error)
        return self._responder.respond(
            ReloadResponse(
                agent_id=handle.agent_id,
                name=handle.character.name,
                file=result.file,
                changed=list(result.changed),
                needs_restart=list(result.needs_restart),
            )
        )

    async def send_message(self, request: web.Request) -> web.StreamResponse:
        """Send an agent, by id or name, a message or a command such as `/help`, and wait for its outcome."""
        handle = self._directory.find_agent(request.match_info["agent"])
        body = validate_model(schemas.MessageRequest, await read_json(request, timeout=self._limits.body_seconds))
        key = request.headers.get("Idempotency-Key")
        header_key = None if key is None else validate_with(HeaderKey, key)
        submitted = parse_api_message(body, header_key, GRANT.get())
        if is_command(body.text):
            answer = await self._message_service.answer_command(handle, submitted)
            if body.stream:
                return await self._streams.respond_to_command(request, answer)
            return self._responder.respond(answer)
        if body.stream:
            return await self._streams.respond(request, handle, submitted)
        receipt = await self._message_service.submit(handle, submitted)
        return self._responder.respond(await self._message_service.wait_response(handle, receipt))

    async def list_rooms(self, request: web.Request) -> web.StreamResponse:
        """List rooms."""
        query = validate_model(schemas.RoomsQuery, dict(request.query))
        handles = self._directory.select_agents(query.agent)
        bodies = [
            schemas.RoomBody.build(room, agent_id=handle.agent_id)
            for handle in handles
            for room in await handle.conversations.rooms()
        ]
        return self._responder.respond(schemas.RoomsResponse(rooms=bodies[: query.limit]))

    async def list_messages(self, request: web.Request) -> web.StreamResponse:
        """List the last messages of a room."""
        query = validate_model(schemas.MessagesQuery, dict(request.query))
        handle, room = await self._directory.find_room(parse_id(request.match_info["id"]))
        return self._responder.respond(
            schemas.MessagesResponse(messages=await load_room_messages(handle, room.id, query.limit))
        )

    async def search_memories(self, request: web.Request) -> web.StreamResponse:
        """Search what agents remember, by words."""
        query = validate_model(schemas.MemoriesQuery, dict(request.query))
        handles = self._directory.select_agents(query.agent)
        bodies = [body for handle in handles for body in await search_memories(handle, query.query, query.limit)]
        return self._responder.respond(schemas.MemoriesResponse(memories=bodies[: query.limit]))

    async def list_receipts(self, request: web.Request) -> web.StreamResponse:
        """List the receipts of the latest messages."""
        query = validate_model(schemas.ReceiptsQuery, dict(request.query))
        if query.room is not None:
            await self._directory.find_room(query.room)
        bodies = [
            build_receipt_body(receipt, handle.agent_id)
            for handle in self._directory
            for receipt in await handle.conversations.receipts(room_id=query.room, limit=query.limit)
        ]
        bodies.sort(key=lambda body: body.received_at, reverse=True)
        return self._responder.respond(schemas.ReceiptsResponse(receipts=bodies[: query.limit]))

    async def show_receipt(self, request: web.Request) -> web.StreamResponse:
        """Return the receipt of a message, by its id or its receipt's id."""
        handle, receipt = await self._directory.find_receipt(parse_id(request.match_info["id"]))
        return self._responder.respond(await load_receipt_response(handle, receipt))

    async def show_costs(self, request: web.Request) -> web.StreamResponse:
        """Return what models have cost, by day, room, person or model."""
        query = validate_model(schemas.CostsQuery, dict(request.query))
        handles = self._directory.select_agents(query.agent)
        last = system_clock().date()
        first = last - timedelta(days=query.days - 1)
        entries = [entry for handle in handles for entry in await handle.conversations.costs(first, last)]
        total_entry = sum_costs(entries, lambda entry: None).get(None, CostEntry(last, ""))
        total = schemas.CostBody(**total_entry.to_json())
        return self._responder.respond(
            schemas.CostsResponse(first=first, last=last, total=total, sums=_build_sums(entries, query.by))
        )

    async def show_health(self, request: web.Request) -> web.StreamResponse:
        """Return whether messages are accepted, and the connection of each platform; needs no token.

        So the response contains no private information. It is a 503 only if no message is accepted: because
        of a disconnected platform a probe must not end the process.
        """
        problem = next((item for handle in self._directory if (item := handle.problem)), None)
        states = worst_states(self._directory.find_agent(None).connections())
        platforms = {name: schemas.PlatformHealth.build(item, cause=item.cause) for name, item in states.items()}
        held = sum(handle.undelivered.held_count for handle in self._directory)
        health = schemas.HealthResponse(platforms=platforms, held=held)
        if problem is not None:
            details = {"status": "unavailable", "cause": problem.cause, "since": problem.since}
            return self._responder.respond(health.model_copy(update=details), status=503)
        if held or any(item.is_problem for item in states.values()):
            health = health.model_copy(update={"status": "degraded"})
        return self._responder.respond(health)


COST_KEYS = {"day": "day", "room": "room_id", "person": "person_id", "model": "model"}


def _build_sums(entries: Sequence[CostEntry], by: str) -> list[schemas.SumBody]:
    sums = [
        schemas.SumBody(key=None if key is None else str(key), **item.to_json())
        for key, item in sum_costs(entries, attrgetter(COST_KEYS[by])).items()
    ]
    if by == "day":
        return sorted(sums, key=lambda item: item.key or "")
    return sorted(sums, key=lambda item: (-item.usd, -item.tokens_in - item.tokens_out))


def worst_states(links: Iterable[ConnectionStatus]) -> dict[str, ConnectionSnapshot]:
    """Return the state of each platform: the worst one of its accounts."""
    states_by_platform: dict[str, list[ConnectionSnapshot]] = {}
    for link in links:
        states_by_platform.setdefault(link.platform, []).append(link.snapshot)
    return {
        name: min(states, key=lambda state: WORST_FIRST.index(state.state))
        for name, states in sorted(states_by_platform.items())
    }


@dataclass(frozen=True, slots=True)
class OutboxApi:
    """Handlers for undelivered parts."""

    _directory: AgentDirectory
    _requests: TaskSet
    _responder: JsonResponder

    async def list_parts(self, request: web.Request) -> web.StreamResponse:
        """List the parts that wait, are held or have failed."""
        query = validate_model(schemas.OutboxQuery, dict(request.query))
        handles = self._directory.select_agents(query.agent)
        bodies = [
            await _build_part_body(handle, part)
            for handle in handles
            for part in await handle.undelivered.parts(query.limit)
        ]
        return self._responder.respond(schemas.OutboxResponse(parts=bodies[: query.limit]))

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
            return self._responder.respond(schemas.DecisionResponse(**dict(body), note=decision.note))
        raise build_not_found("part", delivery_id)


async def _build_part_body(handle: AgentHandle, part: Delivery) -> schemas.UndeliveredPartBody:
    room = await handle.conversations.room(part.room_id)
    return schemas.UndeliveredPartBody.build(
        part,
        message_id=part.memory_id,
        agent_id=handle.agent_id,
        room=(room.name or room.external_id) if room else part.target,
        text=part.content.text,
    )


def build_operations(
    api: Api, outbox: OutboxApi, socket: Handler, more: Sequence[Operation], routes: Sequence[BoundRoute] = ()
) -> list[Operation]:
    """Return all operations of the API with their handlers: these and `more`.

    The OpenAPI document describes the same list, and the routes of plugins.
    """

    @cache
    def document() -> str:
        return json.dumps(build_document(operations, routes))

    async def show_openapi(request: web.Request) -> web.StreamResponse:
        """Return this description."""
        return web.Response(text=document(), content_type="application/json")

    read = Access.READ
    operations = [
        Operation(
            "health", api.show_health, HEALTH_PATH, Access.PUBLIC, schemas.HealthResponse, problem_statuses=(503,)
        ),
        *_build_agent_operations(api),
        Operation("rooms", api.list_rooms, "/api/rooms", read, schemas.RoomsResponse, schemas.RoomsQuery),
        Operation(
            "messages",
            api.list_messages,
            "/api/rooms/{id}/messages",
            read,
            schemas.MessagesResponse,
            schemas.MessagesQuery,
        ),
        Operation(
            "memories", api.search_memories, "/api/memories", read, schemas.MemoriesResponse, schemas.MemoriesQuery
        ),
        Operation(
            "receipts", api.list_receipts, "/api/receipts", read, schemas.ReceiptsResponse, schemas.ReceiptsQuery
        ),
        Operation(
            "receipt", api.show_receipt, "/api/receipts/{id}", read, schemas.ReceiptResponse, problem_statuses=(404,)
        ),
        Operation("costs", api.show_costs, "/api/costs", read, schemas.CostsResponse, schemas.CostsQuery),
        *_build_outbox_operations(outbox),
        *more,
        Operation("openapi", show_openapi, "/api/openapi.json", read),
        Operation("socket", socket, SOCKET_PATH, Access.ANY),  # each frame needs its own access
    ]
    return operations


def _build_agent_operations(api: Api) -> list[Operation]:
    path = "/api/agents/{agent}"
    return [
        Operation("agents", api.list_agents, "/api/agents", Access.ANY, schemas.AgentsResponse),
        Operation(
            "say",
            api.send_message,
            f"{path}/messages",
            Access.CHAT,
            schemas.MessageResponse,
            problem_statuses=(400, 404, 408, 413, 415, 422, 503),
            body=schemas.MessageRequest,
            method="POST",
            can_stream=True,
        ),
        Operation(
            "reload",
            api.reload_agent,
            f"{path}/reload",
            Access.CHANGE,
            ReloadResponse,
            problem_statuses=(404, 422),
            method="POST",
        ),
    ]


def _build_outbox_operations(outbox: OutboxApi) -> list[Operation]:
    path, listed = "/api/outbox", schemas.OutboxResponse
    decision = partial(
        Operation, access=Access.CHANGE, response=schemas.DecisionResponse, problem_statuses=(404, 409), method="POST"
    )
    return [
        Operation("outbox", outbox.list_parts, path, Access.READ, listed, schemas.OutboxQuery),
        decision("send", outbox.send_part, f"{path}/{{id}}/send"),
        decision("drop", outbox.drop_part, f"{path}/{{id}}/drop"),
    ]


def build_file_operations(files: FileApi) -> list[Operation]:
    """Return the operations of files with their handlers."""
    path, link = "/api/files/{id}", FileLinkResponse
    serve = partial(Operation, query=FileQuery, problem_statuses=(416,), is_file=True)
    return [
        serve("file", files.serve_file, path, Access.SIGNED),
        Operation("file_link", files.sign_link, f"{path}/link", Access.ANY, link, problem_statuses=(404,)),
    ]
