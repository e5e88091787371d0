"""HTTP handler of the search of the whole app: rooms and people by name, messages by text, and all of it by id."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from aiohttp import web
from pydantic import Field, StringConstraints

from adapters.web.auth import Access
from adapters.web.incoming import name_room
from adapters.web.openapi import operation
from adapters.web.queries import AgentDirectory, collect_page, has_text
from adapters.web.schemas import AgentQuery, ResponseModel
from bot import Entity, Memory, Room, system_clock
from bot.platform import AgentHandle, describe_receipt
from bot.store import RoomFilter
from bot.text import shorten

MAX_OF_EACH_KIND = 5
MAX_TITLE_LENGTH = 100


class SearchQuery(AgentQuery):
    """Part of a name, words of a message, or an id."""

    q: Annotated[str, StringConstraints(strip_whitespace=True), Field(max_length=200)] = ""


class SearchHit(ResponseModel):
    """What was found, with its title and a line that says where it is; a message has the receipt that tells of it."""

    kind: Literal["room", "person", "message", "receipt"]
    id: UUID
    agent_id: UUID
    title: str
    where: str
    receipt_id: UUID | None = None


class SearchResponse(ResponseModel):
    """What was found, at most five of each kind."""

    results: list[SearchHit]


@dataclass(frozen=True, slots=True)
class SearchApi:
    """Handler of the search."""

    _directory: AgentDirectory

    @operation("GET", "/api/search", "search", Access.READ)
    async def search(self, request: web.Request, query: SearchQuery) -> SearchResponse:
        """Find rooms and people by name, messages by text, and messages, receipts, rooms and people by id."""
        hits: dict[tuple[str, UUID], SearchHit] = {}
        for handle in self._directory.select_agents(query.agent):
            async for hit in _find(handle, query.q):
                hits.setdefault((hit.kind, hit.id), hit)
        kinds = list(dict.fromkeys(hit.kind for hit in hits.values()))
        found = list(hits.values())
        best = [hit for kind in kinds for hit in [item for item in found if item.kind == kind][:MAX_OF_EACH_KIND]]
        return SearchResponse(results=best)


def _find(handle: AgentHandle, text: str) -> AsyncIterator[SearchHit]:
    try:
        return _find_by_id(handle, UUID(text))
    except ValueError:
        return _find_by_name(handle, text)


async def _find_by_name(handle: AgentHandle, text: str) -> AsyncIterator[SearchHit]:
    if not text:
        return
    page = await handle.lists.rooms(RoomFilter(text=text), counted_since=system_clock(), limit=MAX_OF_EACH_KIND)
    for _, summary in page.items:
        yield _build_room_hit(handle, summary.room, summary.world_name)
    for person in await _find_people(handle, text):
        yield _build_hit(handle, "person", person.id, person.name, person.platform)
    rooms = await handle.conversations.rooms()
    names = {room.id: name_room(room) for room in rooms}
    async for message, title in _find_messages(handle, text, rooms):
        receipt_id = message.content.in_reply_to or message.id
        yield _build_hit(handle, "message", message.id, title, names.get(message.room_id, ""), receipt_id)


async def _find_people(handle: AgentHandle, text: str) -> list[Entity]:
    """Return people with a text in a name, those who wrote last; of very many only the last ones are examined."""

    async def fetch(limit: int, before: tuple[datetime, UUID] | None) -> Sequence[tuple[tuple[datetime, UUID], Entity]]:
        people = await handle.people.latest(limit, before)
        return [((item.activity.last_at, item.entity.id), item.entity) for item in people if item.activity is not None]

    found, _ = await collect_page(
        fetch, lambda entity: has_text(text, (*entity.names, entity.external_id)), MAX_OF_EACH_KIND, None
    )
    return found


async def _find_messages(handle: AgentHandle, text: str, rooms: Sequence[Room]) -> AsyncIterator[tuple[Memory, str]]:
    """Yield the messages of these rooms that share the most words with a text, and the title of each."""
    messages = await handle.conversations.search_messages(text, rooms, MAX_OF_EACH_KIND)
    authors = await handle.conversations.authors(messages)
    for message in messages:
        author = authors.get(message.entity_id)
        yield message, f"{author.name}: {message.content.text}" if author else message.content.text


async def _find_by_id(handle: AgentHandle, found_id: UUID) -> AsyncIterator[SearchHit]:
    """Yield everything of an agent that has this id; a message is followed by its receipt."""
    conversations = handle.conversations
    message, receipt = await conversations.message(found_id), await conversations.receipt(found_id)
    room_id = message.room_id if message else receipt.room_id if receipt else found_id
    room = await conversations.room(room_id)
    where = name_room(room) if room else ""
    if message is not None:
        author = (await handle.people.entities([message.entity_id])).get(message.entity_id)
        title = f"{author.name}: {message.content.text}" if author else message.content.text
        yield _build_hit(handle, "message", message.id, title, where)
    if receipt is not None:
        yield _build_hit(handle, "receipt", receipt.id, describe_receipt(receipt, handle.character.name), where)
    if room is not None and room.id == found_id:
        yield _build_room_hit(handle, room)
    if (person := (await handle.people.entities([found_id])).get(found_id)) is not None:
        yield _build_hit(handle, "person", person.id, person.name, person.platform)


def _build_room_hit(handle: AgentHandle, room: Room, world_name: str = "") -> SearchHit:
    where = " · ".join(filter(None, (room.platform, world_name)))
    return _build_hit(handle, "room", room.id, name_room(room), where)


def _build_hit(
    handle: AgentHandle, kind: str, found_id: UUID, title: str, where: str, receipt_id: UUID | None = None
) -> SearchHit:
    shown_title = shorten(" ".join(title.split()), MAX_TITLE_LENGTH)
    body = {"kind": kind, "id": found_id, "agent_id": handle.agent_id, "title": shown_title, "where": where}
    return SearchHit.model_validate({**body, "receipt_id": receipt_id})
