"""Rules of people and facts over HTTP: listed page by page, corrected, deleted, forgotten, exported."""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import ClientResponse

from bot import Component, Content, Memory, MemoryKind, MemoryScope, Relationship, derived_id, system_clock
from bot.store import InMemoryStore
from plugins.knowledge import plugin as knowledge
from tests.adapters.web.conftest import RunningServer, ServerFactory


@pytest.fixture
async def server(open_server: ServerFactory) -> AsyncIterator[RunningServer]:
    async with open_server(names=("Ada", "Bob")) as server:
        for user in ("eve", "finn", "gina"):
            await server.send(f"hello from {user}", user=user, room=f"den of {user}")
        await server.send("silence", user="eve", room="den of eve")
        yield server


async def person_named(server: RunningServer, name: str) -> Any:
    [person] = (await server.get(f"/api/people?q={name}"))["people"]
    return person


async def add_facts(server: RunningServer, person: Any, *texts: str, scope: MemoryScope = MemoryScope.ROOM) -> None:
    store = server.runtime.agents[0].agent.store
    [room] = [room for room in await store.worlds.rooms() if "eve" in room.external_id]
    fields = {"entity_id": UUID(person["id"]), "room_id": room.id, "world_id": room.world_id, "scope": scope}
    await store.memories.add(
        [
            Memory(
                derived_id("fact", text),
                MemoryKind.FACT,
                content=Content(text=text),
                created_at=system_clock(),
                **fields,
            )
            for text in texts
        ]
    )


async def request(server: RunningServer, method: str, path: str, **details: Any) -> ClientResponse:
    return await server.request(method, path, headers=server.bearer, **details)


async def change(server: RunningServer, method: str, path: str, status: int = 200, **details: Any) -> Any:
    answer = await request(server, method, path, **details)
    return await server.check_response(method, path, answer, status)


async def test_people_are_listed_the_last_who_wrote_first_page_by_page(server: RunningServer) -> None:
    people = (await server.get("/api/people"))["people"]
    assert [person["name"] for person in people] == ["eve", "gina", "finn"]
    assert (people[0]["messages"], people[0]["answered"], people[0]["facts"]) == (2, 1, 0)
    assert people[0]["first_at"] < people[0]["last_at"]
    assert people[0]["accounts"][0]["platform"] == "web"
    listed, query = [], "limit=1"
    while query:
        page = await server.get(f"/api/people?{query}")
        listed += page["people"]
        query = page["next"] and f"limit=1&before={page['next']}"
    assert listed == people


async def test_people_are_found_by_name_and_platform_and_by_agent(server: RunningServer) -> None:
    assert [person["name"] for person in (await server.get("/api/people?q=IN"))["people"]] == ["gina", "finn"]
    assert (await server.get("/api/people?platform=discord"))["people"] == []
    assert (await server.get("/api/people?agent=bob"))["people"] == []
    await server.send("hello", user="eve", agent="bob")
    assert {person["name"] for person in (await server.get("/api/people?agent=bob"))["people"]} == {"eve"}
    for cursor in ("x", "%F0", "MjAyNi0wMS0wMQ"):
        await server.get(f"/api/people?before={cursor}", 422)


async def test_a_person_is_shown_with_roles_contacts_and_relationships(server: RunningServer) -> None:
    eve, finn = await person_named(server, "eve"), await person_named(server, "finn")
    entities = server.runtime.agents[0].agent.store.entities
    data = {"email": "eve@example.org"}
    await entities.save_component(
        Component(uuid4(), UUID(eve["id"]), "contact", data, source_entity_id=UUID(finn["id"]))
    )
    await entities.save_relationship(Relationship(UUID(eve["id"]), UUID(finn["id"]), ("friend",), 7))
    shown = await server.get(f"/api/people/{eve['id']}")
    assert shown["name"] == "eve"
    assert [(role["role"], [room["name"] for room in role["rooms"]]) for role in shown["roles"]] == [
        ("MEMBER", ["den of eve"])
    ]
    assert (shown["contacts"][0]["details"], shown["contacts"][0]["stated_by"]) == (data, "finn")
    assert shown["relationships"] == [{"id": finn["id"], "name": "finn", "interactions": 7, "tags": ["friend"]}]
    agent_id = (await server.get("/api/agents"))["agents"][0]["id"]
    await server.get(f"/api/people/{agent_id}", 404)


async def test_facts_are_listed_filtered_corrected_and_deleted(server: RunningServer) -> None:
    eve = await person_named(server, "eve")
    path = f"/api/people/{eve['id']}/facts"
    await add_facts(server, eve, "Runs the mending circle.", "Has a key to the workshop.")
    await add_facts(server, eve, "Plays the flute.", scope=MemoryScope.SHARED)
    facts = (await server.get(path))["facts"]
    assert [fact["text"] for fact in facts] == [
        "Plays the flute.",
        "Has a key to the workshop.",
        "Runs the mending circle.",
    ]
    assert (facts[0]["audience"], facts[1]["audience"], facts[1]["room"]) == ("everyone", "room", "den of eve")
    assert facts[0]["author"] == {"id": eve["id"], "name": "eve"}
    assert (await person_named(server, "eve"))["facts"] == 3
    first = await server.get(f"{path}?limit=2")
    assert [fact["text"] for fact in first["facts"]] == [fact["text"] for fact in facts[:2]]
    rest = await server.get(f"{path}?limit=2&before={first['next']}")
    assert (rest["facts"], rest["next"]) == (facts[2:], None)
    assert [fact["text"] for fact in (await server.get(f"{path}?q=KEY"))["facts"]] == ["Has a key to the workshop."]
    assert len((await server.get(f"{path}?audience=everyone"))["facts"]) == 1
    await server.get(f"{path}?before=x", 422)

    fact_path = f"/api/facts/{facts[1]['id']}"
    corrected = await change(server, "PATCH", fact_path, json={"text": " Has two keys. "})
    assert corrected == {**facts[1], "text": "Has two keys."}
    assert [memory["text"] for memory in (await server.get("/api/memories?query=two+keys"))["memories"]] == [
        "Has two keys."
    ]
    for body in ({"text": "  "}, {"text": "x" * 1001}, {}):
        await change(server, "PATCH", fact_path, 422, json=body)
    assert (await change(server, "DELETE", fact_path))["deleted"] == facts[1]["id"]
    await change(server, "DELETE", fact_path, 404)
    logged = await server.runtime.agents[0].agent.store.logs.logs(kind="authority")
    assert [entry["body"]["action"] for entry in logged] == ["DELETE_FACT", "CORRECT_FACT"]
    assert "keys" not in str(logged)


async def test_a_message_is_no_fact(server: RunningServer) -> None:
    outcome = await server.send("hello again", user="eve")
    await change(server, "DELETE", f"/api/facts/{outcome['message_id']}", 404)
    await change(server, "PATCH", f"/api/facts/{outcome['message_id']}", 404, json={"text": "changed"})


async def test_a_forgotten_person_leaves_nothing_but_counts(server: RunningServer) -> None:
    eve = await person_named(server, "eve")
    await add_facts(server, eve, "Runs the mending circle.")
    forgotten = await change(server, "POST", f"/api/people/{eve['id']}/forget")
    assert (forgotten["messages"], forgotten["derived"]) == (2, 1)
    assert {person["name"] for person in (await server.get("/api/people"))["people"]} == {"finn", "gina"}
    assert (await server.get(f"/api/people/{eve['id']}/facts"))["facts"] == []
    assert (await server.get("/api/memories?query=mending"))["memories"] == []


async def test_an_export_has_all_that_is_stored_about_a_person_and_nothing_of_others(server: RunningServer) -> None:
    eve = await person_named(server, "eve")
    await add_facts(server, eve, "Runs the mending circle.")
    answer = await request(server, "GET", f"/api/people/{eve['id']}/export")
    assert answer.status == 200
    assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''eve.jsonl"
    lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert [line["type"] for line in lines] == ["person", "fact", "message", "message"]
    assert [line["text"] for line in lines[1:]] == ["Runs the mending circle.", "silence", "hello from eve"]
    assert "finn" not in str(lines)


async def test_a_question_finds_facts_and_passages_that_may_be_shown_in_a_room(open_server: ServerFactory) -> None:
    async with open_server(knowledge) as server:
        outcome = await server.send("hello from eve", user="eve", room="den of eve")
        other = await server.send("hello from finn", user="finn", room="hall")
        await add_facts(server, await person_named(server, "eve"), "Runs the mending circle.")
        text = "The mending circle meets on Thursdays.\n\n" + "Whoever leaves last puts the irons out. " * 60
        await server.post("/plugins/knowledge/documents", {"name": "rules.md", "text": text}, 201)
        path = "/api/memory/search"
        found = (await server.get(f"{path}?room={outcome['room_id']}&q=mending+circle"))["found"]
        assert {item["source"] for item in found if item["kind"] == "document"} == {"rules.md"}
        assert [item["text"] for item in found if item["kind"] == "fact"] == ["Runs the mending circle."]
        assert {item["score"] for item in found} == {None}
        elsewhere = await server.get(f"{path}?room={other['room_id']}&q=mending+circle")
        assert {item["kind"] for item in elsewhere["found"]} == {"document"}
        assert elsewhere["has_documents"]
        assert (await server.get(f"{path}?room={outcome['room_id']}&q=+"))["found"] == []
        await server.get(f"{path}?room={uuid4()}&q=mending", 404)
        roomless = await server.get(f"{path}?q=mending&agent=ada")
        assert (roomless["found"], roomless["has_documents"]) == ([], True)


async def test_without_a_plugin_for_documents_facts_are_found(server: RunningServer) -> None:
    [room, *_] = (await server.get("/api/rooms"))["rooms"]
    answer = await server.get(f"/api/memory/search?room={room['id']}&q=mending")
    assert (answer["found"], answer["has_documents"]) == ([], False)
    assert not (await server.get("/api/memory/search"))["has_documents"]


async def test_a_muted_person_is_not_answered_and_the_receipt_says_so(open_server: ServerFactory) -> None:
    store = InMemoryStore()
    async with open_server(stores={"Ada": store}) as server:
        first = await server.send("Hello", room="den", user="eve")
        author = (await server.get(f"/api/receipts/{first['receipt_id']}"))["author_id"]
        assert (await server.post(f"/api/people/{author}/mute", {}))["is_muted"]
        muted = await server.send("Are you there?", room="den", user="eve")
        assert (muted["outcome"], muted["rule"]) == ("ignored", "person muted")
        receipt = await server.get(f"/api/receipts/{muted['receipt_id']}")
        assert receipt["headline"] == "Stayed silent: this person is muted"
        assert receipt["gate"][-1]["decided"]
        assert (await server.send("Hello", room="den", user="tom"))["outcome"] == "answered"
    async with open_server(stores={"Ada": store}) as server:  # also after a restart
        assert (await server.send("And now?", room="den", user="eve"))["outcome"] == "ignored"
        assert not (await server.post(f"/api/people/{author}/unmute", {}))["is_muted"]
        assert (await server.send("And now?", room="den", user="eve"))["outcome"] == "answered"
