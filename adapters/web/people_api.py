"""HTTP handlers of people: who they are, what agents remember of them, and what a bot owes them."""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Annotated, Literal
from urllib.parse import quote
from uuid import UUID

from aiohttp import web
from pydantic import Field, StringConstraints

from adapters.web.auth import Access
from adapters.web.files_api import DOCUMENT_SEARCH, find_document_routes
from adapters.web.incoming import name_room
from adapters.web.json_io import HttpProblem, JsonResponder
from adapters.web.openapi import ReadBody, operation
from adapters.web.queries import AgentDirectory, build_cursor, collect_page, has_text, parse_id, parse_position
from adapters.web.schemas import AgentName, AgentQuery, PageQuery, RequestModel, ResponseModel, Text
from bot import Component, Memory, MemoryKind, MemoryScope, Room, RouteRequest, system_clock
from bot.platform import (
    REPORT_DAYS,
    AgentHandle,
    BoundRoute,
    CareReport,
    ForgottenResponse,
    GivenNotice,
    IgnoredResponse,
    Person,
    build_care_report,
    describe_memory,
)

SOURCE = "HTTP API"  # in the log of who changed what
SearchText = Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)]
Found = tuple[AgentHandle, Person]


class PeopleQuery(PageQuery):
    """Selection of people: those with a text in one of their names or ids, and those of a platform."""

    q: SearchText = ""
    platform: AgentName | None = None


class PersonAccountBody(ResponseModel):
    """An account of a person on a platform, with its current and former names."""

    platform: str
    external_id: str
    names: list[str]


class PersonBody(ResponseModel):
    """A person who wrote: when first and last, how many messages, and how many of them were answered.

    The messages of one who `is_muted` are stored and not answered; one who `is_minor` is marked as a minor. While there
    is an `ignored_by` (person, operator, role), nothing that they write is stored.
    """

    id: UUID
    agent_id: UUID
    name: str
    is_bot: bool
    accounts: list[PersonAccountBody]
    first_at: datetime | None
    last_at: datetime | None
    messages: int
    answered: int
    facts: int
    is_muted: bool
    is_minor: bool
    ignored_by: list[str]


class PeopleResponse(ResponseModel):
    """People, the last who wrote first, and where the list continues.

    With a text or a platform each response examines a limited number of people, so it may have few or none and
    continue nevertheless.
    """

    people: list[PersonBody]
    next: str | None


class PlaceBody(ResponseModel):
    """A room."""

    id: UUID
    name: str


class PersonRoleBody(ResponseModel):
    """The role of a person in a world, and the rooms there in which they were active."""

    world_id: UUID
    world: str
    platform: str
    role: str
    rooms: list[PlaceBody]


class ContactBody(ResponseModel):
    """What is stored about a person beside facts, such as how to reach them; by whom, and for which world."""

    type: str
    details: dict[str, str]
    world_id: UUID | None
    stated_by: str
    at: datetime | None


class RelationshipBody(ResponseModel):
    """With whom a person talks, and how often they did."""

    id: UUID
    name: str
    interactions: int
    tags: list[str]


class PersonResponse(PersonBody):
    """A person with their roles, contacts and relationships, and when they last got an AI notice; null if never."""

    notice: GivenNotice | None
    roles: list[PersonRoleBody]
    contacts: list[ContactBody]
    relationships: list[RelationshipBody]


@dataclass(frozen=True, slots=True)
class PeopleApi:
    """Handlers for people."""

    _directory: AgentDirectory
    _responder: JsonResponder

    @operation("GET", "/api/people", "people", Access.READ)
    async def list_people(self, request: web.Request, query: PeopleQuery) -> PeopleResponse:
        """List the people who wrote, the last one first."""
        handles = self._directory.select_agents(query.agent)

        async def fetch(
            limit: int, before: tuple[datetime, UUID] | None
        ) -> Sequence[tuple[tuple[datetime, UUID], Found]]:
            listed = [(handle, person) for handle in handles for person in await handle.people.latest(limit, before)]
            keyed = [
                ((person.activity.last_at, person.entity.id), (handle, person))
                for handle, person in listed
                if person.activity is not None
            ]
            return sorted(keyed, key=lambda item: item[0], reverse=True)[:limit]

        def is_wanted(item: Found) -> bool:
            entity = item[1].entity
            return query.platform in (None, entity.platform) and has_text(query.q, (*entity.names, entity.external_id))

        page, cursor = await collect_page(fetch, is_wanted, query.limit, parse_position(query.before))
        bodies = [PersonBody(**_person_fields(handle, person)) for handle, person in page]
        return PeopleResponse(people=bodies, next=None if cursor is None else build_cursor(*cursor))

    @operation("GET", "/api/people/{id}", "person", Access.READ, query=AgentQuery)
    async def show_person(self, request: web.Request) -> PersonResponse:
        """Return a person with their roles, contacts and relationships, and their last AI notice."""
        handle, person = await find_person(self._directory, request)
        people, entity_id = handle.people, person.entity.id
        worlds, components = await people.worlds(entity_id), await people.components(entity_id)
        relationships = await people.relationships(entity_id)
        others = (*(item.source_entity_id for item in components), *(item.target_id for item in relationships))
        names = await load_names(handle, others)
        return PersonResponse(
            **_person_fields(handle, person),
            notice=await people.last_notice(entity_id),
            roles=[
                PersonRoleBody(
                    world_id=item.world.id,
                    world=item.world.name,
                    platform=item.world.platform,
                    role=item.role.value,
                    rooms=[PlaceBody(id=room.id, name=name_room(room)) for room in item.rooms],
                )
                for item in worlds
            ],
            contacts=[_build_contact(component, names) for component in components],
            relationships=[
                RelationshipBody.build(item, id=item.target_id, name=names.get(item.target_id, ""))
                for item in relationships
            ],
        )

    @operation("POST", "/api/people/{id}/forget", "forget-person", Access.CHANGE, (503,), query=AgentQuery)
    async def forget_person(self, request: web.Request) -> ForgottenResponse:
        """Delete a person's data, as they could with `/forget-me`."""
        handle, person = await find_person(self._directory, request)
        return await handle.operations.forget_person(person.entity.id, source=SOURCE)

    @operation("POST", "/api/people/{id}/mute", "mute-person", Access.CHANGE, (503,), query=AgentQuery)
    async def mute_person(self, request: web.Request) -> PersonBody:
        """Stop answering a person; their messages are still stored."""
        return await self._set_muted(request, is_muted=True)

    @operation("POST", "/api/people/{id}/unmute", "unmute-person", Access.CHANGE, (503,), query=AgentQuery)
    async def unmute_person(self, request: web.Request) -> PersonBody:
        """Answer a person again."""
        return await self._set_muted(request, is_muted=False)

    @operation("POST", "/api/people/{id}/mark-minor", "mark-minor", Access.CHANGE, (503,), query=AgentQuery)
    async def mark_minor(self, request: web.Request) -> PersonBody:
        """Mark a person as a minor: MINORS says what holds then."""
        return await self._set_minor(request, is_minor=True)

    @operation("POST", "/api/people/{id}/unmark-minor", "unmark-minor", Access.CHANGE, (503,), query=AgentQuery)
    async def unmark_minor(self, request: web.Request) -> PersonBody:
        """Remove the mark of a minor from a person."""
        return await self._set_minor(request, is_minor=False)

    async def _set_minor(self, request: web.Request, *, is_minor: bool) -> PersonBody:
        handle, person = await find_person(self._directory, request)
        await handle.people.mark_minor(person.entity, is_minor=is_minor, source=SOURCE)
        return PersonBody.model_validate(_person_fields(handle, person))

    async def _set_muted(self, request: web.Request, *, is_muted: bool) -> PersonBody:
        handle, person = await find_person(self._directory, request)
        await handle.people.mute(person.entity.id, is_muted=is_muted, source=SOURCE)
        return PersonBody.model_validate(_person_fields(handle, person))

    @operation("POST", "/api/people/{id}/ignore", "ignore-person", Access.CHANGE, (503,), query=AgentQuery)
    async def ignore_person(self, request: web.Request) -> IgnoredResponse:
        """Store nothing more that a person writes and hide what was stored, as they could with `/ignore-me`."""
        return await self._set_ignored(request, is_ignored=True)

    @operation("POST", "/api/people/{id}/read", "read-person", Access.CHANGE, (503,), query=AgentQuery)
    async def read_person(self, request: web.Request) -> IgnoredResponse:
        """Read a person again whom an operator had ignored; their own wish and a platform's role stay."""
        return await self._set_ignored(request, is_ignored=False)

    async def _set_ignored(self, request: web.Request, *, is_ignored: bool) -> IgnoredResponse:
        handle, person = await find_person(self._directory, request)
        return await handle.operations.ignore_person(person.entity.id, is_ignored=is_ignored, source=SOURCE)

    @operation("GET", "/api/people/{id}/export", "export-person", Access.CHANGE, query=AgentQuery, is_file=True)
    async def export_person(self, request: web.Request) -> web.StreamResponse:
        """Return all that is stored about a person as a file of JSON lines, the person first."""
        handle, person = await find_person(self._directory, request)
        entity, people = person.entity, handle.people
        response = web.StreamResponse()
        response.content_type, response.charset = "application/x-ndjson", "utf-8"
        name = quote(f"{entity.name or entity.id}.jsonl", safe="")
        response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
        components = await people.components(entity.id)
        relationships = await people.relationships(entity.id)
        await response.prepare(request)
        first_lines = [
            {"type": "person", **PersonBody(**_person_fields(handle, person)).model_dump(mode="json")},
            *({"type": "component", **_build_contact(item, {}).model_dump(mode="json")} for item in components),
            *(
                {"type": "relationship", "with": str(item.target_id), "interactions": item.interactions}
                for item in relationships
            ),
        ]
        await response.write(self._format_lines(first_lines))
        async for memories in people.export(entity.id):
            await response.write(self._format_lines(map(describe_memory, memories)))
        await response.write_eof()
        return response

    def _format_lines(self, items: Iterable[dict[str, object]]) -> bytes:
        lines = (self._responder.redact(json.dumps(item, ensure_ascii=False, default=str)) + "\n" for item in items)
        return "".join(lines).encode("utf-8", "replace")


async def find_person(directory: AgentDirectory, request: web.Request) -> Found:
    """Return the person of an address with the agent that `?agent=` selects, or the first that knows them.

    Raises HttpProblem.
    """
    person_id = parse_id(request.match_info["id"])
    agent = request.query.get("agent")
    return await directory.find("person", person_id, lambda handle: handle.people.find(person_id), agent)


async def load_names(handle: AgentHandle, ids: Iterable[UUID | None]) -> dict[UUID | None, str]:
    """Return the names of people and rooms by their ids, as far as they are known."""
    known = {item_id for item_id in ids if item_id is not None}
    names: dict[UUID | None, str] = {item.id: item.name for item in (await handle.people.entities(known)).values()}
    return names | {room.id: name_room(room) for room in (await handle.lists.rooms_by_id(known)).values()}


def _person_fields(handle: AgentHandle, person: Person) -> dict[str, object]:
    entity, activity = person.entity, person.activity
    account = PersonAccountBody.build(entity)
    return {
        "id": entity.id,
        "agent_id": handle.agent_id,
        "name": entity.name,
        "is_bot": entity.is_bot,
        "accounts": [account],
        **{name: getattr(activity, name, None) for name in ("first_at", "last_at")},
        **{name: getattr(activity, name, 0) for name in ("messages", "answered")},
        "facts": person.fact_count,
        "is_muted": handle.people.is_muted(entity.id),
        "is_minor": handle.people.is_minor(entity.id),
        "ignored_by": [str(origin) for origin in handle.people.ignored_by(entity.id)],
    }


def _build_contact(component: Component, names: Mapping[UUID | None, str]) -> ContactBody:
    return ContactBody(
        type=component.type,
        details={str(key): str(value) for key, value in component.data.items()},
        world_id=component.world_id,
        stated_by=names.get(component.source_entity_id, ""),
        at=component.created_at,
    )


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
        MemoryBody.build(
            memory,
            agent_id=handle.agent_id,
            author=authors[memory.entity_id].name if memory.entity_id in authors else "",
            text=memory.content.text,
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
        FactBody.build(
            fact,
            agent_id=handle.agent_id,
            text=fact.content.text,
            author={"id": fact.entity_id, "name": names.get(fact.entity_id, "")},
            source_message_id=fact.source_id,
            room=names.get(fact.room_id, ""),
            at=fact.created_at,
            audience=AUDIENCES[fact.scope],
        )
        for fact in facts
    ]


class CareQuery(AgentQuery):
    """The first day (UTC) of a report of referrals; by default it is 30 days ago."""

    since: date | None = None


@dataclass(frozen=True, slots=True)
class CareApi:
    """Serves how many people in distress were referred to help; no texts and no people."""

    _directory: AgentDirectory

    @operation("GET", "/api/care", "care", Access.READ)
    async def show_report(self, request: web.Request, query: CareQuery) -> CareReport:
        """Return how many people in distress were referred to help, by day and category."""
        return await _report_referrals(self._directory.select_agents(query.agent), query.since)


async def _report_referrals(handles: Sequence[AgentHandle], since: date | None = None) -> CareReport:
    """Return the referrals of agents since a day, by default of the last 30 days."""
    today = system_clock().date()
    since = since or today - timedelta(days=REPORT_DAYS)
    counts = await asyncio.gather(*(handle.activity.care_counts(since) for handle in handles))
    return build_care_report([item for of_agent in counts for item in of_agent], since, today)


SETTINGS = (
    *("AI_NOTICE", "AI_NOTICE_TEXT", "AI_NOTICE_POSTS"),
    *("CARE", "CARE_COUNTRY", "CARE_IN_GROUPS", "CARE_TEXT"),
    *("MINORS", "IGNORED_ROLES"),
)


class MarkBody(ResponseModel):
    """A person who is not read (`not_read`) or a minor (`minor`), who set that (person, operator, role), and when."""

    person: UUID
    agent: UUID
    mark: str
    origin: str
    platform: str
    external_id: str
    at: datetime


class DutySetting(ResponseModel):
    """A setting of a character; `value` is null where it is not set."""

    agent: UUID
    name: str
    value: str | None


class DutiesBody(ResponseModel):
    """How many people were told that an AI writes, the referrals of the last 30 days, marked people, and settings."""

    notified_people: int
    care: CareReport
    marks: list[MarkBody]
    content: dict[UUID, str]
    settings: list[DutySetting]


@dataclass(frozen=True, slots=True)
class DutiesApi:
    """Serves what a bot owes the people whom it meets, as far as it is recorded."""

    _directory: AgentDirectory

    @operation("GET", "/api/duties", "duties", Access.READ)
    async def show_duties(self, request: web.Request, query: AgentQuery) -> DutiesBody:
        """Return notices, referrals, people who are not read, minors, and the settings for them."""
        handles = self._directory.select_agents(query.agent)
        notified = await asyncio.gather(*(handle.activity.count_notified() for handle in handles))
        return DutiesBody(
            notified_people=sum(notified),
            care=await _report_referrals(handles),
            marks=[
                MarkBody.build(mark, person=mark.entity_id, agent=handle.agent_id)
                for handle in handles
                for mark in handle.people.marks()
            ],
            content={handle.agent_id: str(handle.character.content) for handle in handles},
            settings=[
                DutySetting(agent=handle.agent_id, name=name, value=handle.settings.get(name) or None)
                for handle in handles
                for name in SETTINGS
            ],
        )
