"""HTTP handlers of what agents remember."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from aiohttp import web
from pydantic import Field, StringConstraints

from adapters.web.api.files import DOCUMENT_SEARCH, find_document_routes
from adapters.web.api.people import SOURCE, SearchText, find_person, load_names
from adapters.web.auth import Access
from adapters.web.json_io import HttpProblem
from adapters.web.openapi import ReadBody, operation
from adapters.web.queries import AgentDirectory, collect_page, has_text, parse_id
from adapters.web.schemas import AgentQuery, PageQuery, RequestModel, ResponseModel, Text
from bot import Memory, MemoryKind, MemoryScope, Room, RouteRequest
from bot.platform import AgentHandle, BoundRoute

MAX_FACT_LENGTH = 1000
AUDIENCES = {MemoryScope.ROOM: "room", MemoryScope.WORLD: "world", MemoryScope.SHARED: "everyone"}
Audience = Literal["room", "world", "everyone"]


class MemoriesQuery(AgentQuery):
    """Words to search for in what agents remember; nothing is found without any."""

    query: Annotated[str, Field(max_length=500)] = ""
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class MemoryBody(ResponseModel):
    """A message or a fact that an agent remembers."""

    id: UUID
    agent_id: UUID
    kind: MemoryKind
    room_id: UUID
    author: str
    text: str
    created_at: datetime


class MemoriesResponse(ResponseModel):
    """Memories that share words with a query, agent by agent, facts first."""

    memories: list[MemoryBody]


class FactsQuery(PageQuery):
    """Selection of facts: those with a text, and those for an audience."""

    q: SearchText = ""
    audience: Audience | None = None


class FactRequest(RequestModel):
    """The corrected text of a fact."""

    text: Annotated[Text, StringConstraints(strip_whitespace=True, pattern=r"\S", max_length=MAX_FACT_LENGTH)]


class AuthorBody(ResponseModel):
    """Who told a fact."""

    id: UUID
    name: str


class FactBody(ResponseModel):
    """A fact: who told it, in which message, and who may be told of it: a room, its world or everyone."""

    id: UUID
    agent_id: UUID
    text: str
    author: AuthorBody
    source_message_id: UUID | None
    room_id: UUID
    room: str
    world_id: UUID
    at: datetime
    audience: Audience


class FactsResponse(ResponseModel):
    """Facts, the newest first, and where the list continues."""

    facts: list[FactBody]
    next: str | None


class DeletedFactResponse(ResponseModel):
    """The fact that was deleted."""

    deleted: UUID


class MemorySearchQuery(AgentQuery):
    """A question, and the room in which it is asked; nothing is found without both.

    Without a room the answer says whether this agent, or any, keeps documents.
    """

    room: UUID | None = None
    q: Annotated[str, Field(max_length=2000)] = ""


class FoundMemoryBody(ResponseModel):
    """A fact or a passage of a document; `score` is null for one that was found by its words."""

    kind: Literal["fact", "document"]
    text: str
    source: str
    url: str
    score: float | None
    fact_id: UUID | None
    message_id: UUID | None
    at: datetime | None


class MemorySearchResponse(ResponseModel):
    """What a question would bring into the prompt in a room, passages of documents first; and how long it took."""

    agent_id: UUID | None
    found: list[FoundMemoryBody]
    has_documents: bool
    took_ms: float


@dataclass(frozen=True, slots=True)
class KnowledgeApi:
    """Handlers for what agents remember."""

    _directory: AgentDirectory

    @operation("GET", "/api/memories", "memories", Access.READ)
    async def search_memories(self, request: web.Request, query: MemoriesQuery) -> MemoriesResponse:
        """Search what agents remember, by words."""
        handles = self._directory.select_agents(query.agent)
        bodies = [body for handle in handles for body in await _search_memories(handle, query.query, query.limit)]
        return MemoriesResponse(memories=bodies[: query.limit])

    @operation("GET", "/api/memory/search", "search-memory", Access.READ)
    async def search_as_agent(self, request: web.Request, query: MemorySearchQuery) -> MemorySearchResponse:
        """Search documents and facts as the agent would for a question in a room."""
        if query.room is None:
            has_documents = any(map(find_document_routes, self._directory.select_agents(query.agent)))
            return MemorySearchResponse(agent_id=None, found=[], has_documents=has_documents, took_ms=0)
        handle, room = await self._directory.find_room(query.room)
        started = time.monotonic()
        route = find_document_routes(handle).get(DOCUMENT_SEARCH)
        found: list[FoundMemoryBody] = []
        if query.q.strip() and route is not None:
            found += await _find_passages(route, query)
        if query.q.strip():
            found += await _find_facts(handle, query.q, room)
        took_ms = round((time.monotonic() - started) * 1000, 1)
        return MemorySearchResponse(
            agent_id=handle.agent_id, found=found, has_documents=route is not None, took_ms=took_ms
        )

    @operation("GET", "/api/people/{id}/facts", "facts", Access.READ)
    async def list_facts(self, request: web.Request, query: FactsQuery) -> FactsResponse:
        """List the facts that a person told, the newest first."""
        handle, person = await find_person(self._directory, request)
        scopes = {audience: scope for scope, audience in AUDIENCES.items()}

        async def fetch(limit: int, before: int | None) -> Sequence[tuple[int, Memory]]:
            page = await handle.people.facts(person.entity.id, limit, before)
            return list(zip(page.positions, page.memories, strict=True))

        def is_wanted(fact: Memory) -> bool:
            is_heard = query.audience is None or fact.scope is scopes[query.audience]
            return is_heard and has_text(query.q, [fact.content.text])

        facts, cursor = await collect_page(fetch, is_wanted, query.limit, _parse_number(query.before))
        bodies = await _build_facts(handle, facts)
        return FactsResponse(facts=bodies, next=None if cursor is None else str(cursor))

    @operation("PATCH", "/api/facts/{id}", "correct-fact", Access.CHANGE, (404, 503))
    async def correct_fact(self, request: web.Request, read_body: ReadBody[FactRequest]) -> FactBody:
        """Replace the text of a fact."""
        handle, fact = await self._find_fact(request)
        body = await read_body()
        corrected = await handle.people.correct_fact(fact, body.text, source=SOURCE)
        return (await _build_facts(handle, [corrected]))[0]

    @operation("DELETE", "/api/facts/{id}", "delete-fact", Access.CHANGE, (404, 503))
    async def delete_fact(self, request: web.Request) -> DeletedFactResponse:
        """Delete a fact."""
        handle, fact = await self._find_fact(request)
        await handle.people.delete_fact(fact, source=SOURCE)
        return DeletedFactResponse(deleted=fact.id)

    async def _find_fact(self, request: web.Request) -> tuple[AgentHandle, Memory]:
        fact_id = parse_id(request.match_info["id"])
        return await self._directory.find("fact", fact_id, lambda handle: handle.people.fact(fact_id))


async def _find_passages(route: BoundRoute, query: MemorySearchQuery) -> list[FoundMemoryBody]:
    """Return what the plugin that keeps documents finds; nothing while it fails."""
    response = await route.handle(RouteRequest("GET", route.path, {"q": query.q, "room": str(query.room)}))
    passages = response.json.get("passages", []) if response.status == 200 else []
    nothing = dict.fromkeys(("fact_id", "message_id", "at"))
    return [
        FoundMemoryBody.model_validate(
            {
                **nothing,
                "kind": "document",
                "text": passage["text"],
                "source": passage["name"],
                "url": passage["url"],
                "score": passage["similarity"],
            }
        )
        for passage in passages
    ]


async def _find_facts(handle: AgentHandle, question: str, room: Room) -> list[FoundMemoryBody]:
    found = await handle.people.find_facts(question, room)
    authors = await handle.people.entities({item.memory.entity_id for item in found})
    return [
        FoundMemoryBody(
            kind="fact",
            text=item.memory.content.text,
            source=authors[item.memory.entity_id].name if item.memory.entity_id in authors else "",
            url="",
            score=item.similarity,
            fact_id=item.memory.id,
            message_id=item.memory.source_id,
            at=item.memory.created_at,
        )
        for item in found
    ]


async def _search_memories(handle: AgentHandle, text: str, limit: int) -> list[MemoryBody]:
    """Return the memories of an agent that share words with a text."""
    memories = await handle.conversations.search(text, limit)
    authors = await handle.conversations.authors(memories)
    return [
        MemoryBody(
            id=memory.id,
            agent_id=handle.agent_id,
            kind=memory.kind,
            room_id=memory.room_id,
            author=authors[memory.entity_id].name if memory.entity_id in authors else "",
            text=memory.content.text,
            created_at=memory.created_at,
        )
        for memory in memories
    ]


def _parse_number(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise HttpProblem(422, "invalid_request", "before: not a cursor of this list")
    return int(cursor)


async def _build_facts(handle: AgentHandle, facts: Sequence[Memory]) -> list[FactBody]:
    """Return the bodies of facts; their authors and rooms are read together."""
    names = await load_names(handle, (item_id for fact in facts for item_id in (fact.entity_id, fact.room_id)))
    return [
        FactBody.model_validate(
            {
                "id": fact.id,
                "agent_id": handle.agent_id,
                "text": fact.content.text,
                "author": {"id": fact.entity_id, "name": names.get(fact.entity_id, "")},
                "source_message_id": fact.source_id,
                "room_id": fact.room_id,
                "room": names.get(fact.room_id, ""),
                "world_id": fact.world_id,
                "at": fact.created_at,
                "audience": AUDIENCES[fact.scope],
            }
        )
        for fact in facts
    ]
