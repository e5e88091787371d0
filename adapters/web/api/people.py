"""HTTP handlers of people."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import quote
from uuid import UUID

from aiohttp import web
from pydantic import StringConstraints

from adapters.web.auth import Access
from adapters.web.incoming import name_room
from adapters.web.json_io import JsonResponder
from adapters.web.openapi import operation
from adapters.web.queries import AgentDirectory, build_cursor, collect_page, has_text, parse_id, parse_position
from adapters.web.schemas import AgentName, AgentQuery, PageQuery, ResponseModel
from bot import Component
from bot.platform import AgentHandle, ForgottenResponse, GivenNotice, IgnoredResponse, Person, describe_memory

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
                RelationshipBody(
                    id=item.target_id,
                    name=names.get(item.target_id, ""),
                    interactions=item.interactions,
                    tags=list(item.tags),
                )
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
    account = PersonAccountBody(platform=entity.platform, external_id=entity.external_id, names=list(entity.names))
    return {
        "id": entity.id,
        "agent_id": handle.agent_id,
        "name": entity.name,
        "is_bot": entity.is_bot,
        "accounts": [account],
        "first_at": activity.first_at if activity else None,
        "last_at": activity.last_at if activity else None,
        "messages": activity.messages if activity else 0,
        "answered": activity.answered if activity else 0,
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
