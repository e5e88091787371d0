"""HTTP handlers of what agents remember."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from uuid import UUID

from aiohttp import web
from pydantic import Field

from adapters.web.auth import Access
from adapters.web.json_io import JsonResponder, validate_model
from adapters.web.openapi import Operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import AgentQuery, ResponseModel
from bot import MemoryKind
from bot.platform import AgentHandle


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


@dataclass(frozen=True, slots=True)
class KnowledgeApi:
    """Handlers for what agents remember."""

    _directory: AgentDirectory
    _responder: JsonResponder

    async def search_memories(self, request: web.Request) -> web.StreamResponse:
        """Search what agents remember, by words."""
        query = validate_model(MemoriesQuery, dict(request.query))
        handles = self._directory.select_agents(query.agent)
        bodies = [body for handle in handles for body in await _search_memories(handle, query.query, query.limit)]
        return self._responder.respond(MemoriesResponse(memories=bodies[: query.limit]))

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        return [
            Operation("memories", self.search_memories, "/api/memories", Access.READ, MemoriesResponse, MemoriesQuery)
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
