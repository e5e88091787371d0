"""Rooms over HTTP: lists and messages, take-overs, casts, and the search."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from bot import ParticipantState, Room, World, derived_id
from bot.platform import AgentHandle, Cast, DeliveryState
from tests.adapters.web.conftest import ServerFactory
from tests.adapters.web.test_receipts import store_undelivered


@pytest.mark.long
async def test_rooms_of_all_agents_are_listed_page_by_page_the_most_recently_active_first(open_server: Any) -> None:
    async with open_server(names=("Ada", "Bob")) as server:
        for agent, room in (("ada", "one"), ("bob", "two"), ("ada", "three"), ("bob", "four")):
            await server.send("Hello", agent=agent, room=room)
        body = await server.get("/api/rooms?limit=3")
        assert [room["name"] for room in body["rooms"]] == ["four", "three", "two"]
        body = await server.get(f"/api/rooms?limit=3&before={body['next']}")
        assert ([room["name"] for room in body["rooms"]], body["next"]) == (["one"], None)
        body = await server.get("/api/rooms?q=T&agent=ada")
        assert [room["name"] for room in body["rooms"]] == ["three"]
        await server.get("/api/rooms?before=1.2.3", 422)
        await server.get("/api/rooms?before=x", 422)


async def test_a_room_has_its_world_its_last_event_and_the_messages_of_today(web_server: Any) -> None:
    answer = await web_server.send("Hello", room="porch")
    await web_server.send("Again", room="porch")
    [room] = (await web_server.get("/api/rooms?platform=web"))["rooms"]
    assert (room["messages_today"], room["is_muted"], room["last_event_at"] is None) == (2, False, False)
    agent = web_server.runtime.agents[0].agent
    await agent.store.worlds.set_participant_state(UUID(answer["room_id"]), ParticipantState.MUTED)
    [room] = (await web_server.get(f"/api/rooms?world={room['world_id']}"))["rooms"]
    assert room["is_muted"]
    assert (await web_server.get("/api/rooms?platform=none"))["rooms"] == []


async def test_messages_are_listed_with_their_receipts_sentence_and_page_by_page(web_server: Any) -> None:
    for text in ("one", "silence please", "three"):
        answer = await web_server.send(text, room="porch")
    path = f"/api/rooms/{answer['room_id']}/messages"
    body = await web_server.get(f"{path}?limit=3")
    assert [message["text"] for message in body["messages"]] == ["silence please", "three", "You said: three"]
    silent, asked, reply = body["messages"]
    assert asked["headline"] == "Answered: it came by the HTTP API, where every message is answered"
    assert silent["headline"].startswith("Stayed silent")
    assert (asked["took_ms"] >= 0, asked["receipt_id"] is None, reply["receipt_id"]) == (True, False, None)
    older = await web_server.get(f"{path}?limit=3&before={body['next']}")
    assert ([message["text"] for message in older["messages"]], older["next"]) == (["one", "You said: one"], None)
    await web_server.send("four", room="porch")
    newer = await web_server.get(f"{path}?after={body['newest']}")
    assert [message["text"] for message in newer["messages"]] == ["four", "You said: four"]
    empty = await web_server.get(f"{path}?after={newer['newest']}")
    assert (empty["messages"], empty["newest"]) == ([], newer["newest"])
    await web_server.get(f"{path}?after={newer['newest']}&outcome=ignored", 422)


async def test_messages_are_filtered_by_outcome_rule_and_person(web_server: Any) -> None:
    await web_server.send("one", room="porch")
    answer = await web_server.send("silence please", room="porch")
    path = f"/api/rooms/{answer['room_id']}/messages"
    body = await web_server.get(f"{path}?outcome=ignored&outcome=failed")
    assert [message["text"] for message in body["messages"]] == ["silence please"]
    rule = body["messages"][0]["outcome"]["rule"]
    assert len((await web_server.get(f"{path}?rule={rule}"))["messages"]) == 1
    author = body["messages"][0]["author"]["id"]
    assert len((await web_server.get(f"{path}?author={author}"))["messages"]) == 2
    assert (await web_server.get(f"{path}?from=2100-01-01T00:00:00Z"))["messages"] == []
    assert len((await web_server.get(f"{path}?to=2100-01-01T00:00:00Z"))["messages"]) == 3
    assert (await web_server.get(f"{path}?author={derived_id('nobody')}"))["messages"] == []
    await web_server.get(f"{path}?outcome=lost", 422)
    await web_server.get(f"{path}?from=2026-01-01T00:00:00", 422)


async def test_undelivered_parts_have_a_reason_their_receipt_and_counts(web_server: Any) -> None:
    held = await store_undelivered(web_server, DeliveryState.UNKNOWN)
    failed = await store_undelivered(web_server, DeliveryState.FAILED)
    body = await web_server.get("/api/outbox")
    assert [part["id"] for part in body["parts"]] == [held.id, failed.id]
    assert body["counts"] == {"waiting": 0, "held": 1, "failed": 1}
    part = body["parts"][0]
    assert (part["status"], part["why"]) == ("held", "timed out: it is unknown whether it arrived")
    receipt = await web_server.get(f"/api/receipts/{part['receipt_id']}")
    assert receipt["message"]["text"] == "Hello"
    body = await web_server.get("/api/outbox?state=failed")
    assert [(part["id"], part["why"]) for part in body["parts"]] == [(failed.id, "timed out")]
    body = await web_server.get("/api/outbox?limit=1")
    assert [part["id"] for part in body["parts"]] == [failed.id]
    body = await web_server.get(f"/api/outbox?limit=1&before={body['next']}")
    assert ([part["id"] for part in body["parts"]], body["next"]) == ([held.id], None)
    assert (await web_server.get("/api/outbox?platform=none"))["parts"] == []
    await web_server.get("/api/outbox?state=lost", 422)


async def test_several_parts_are_decided_about_at_once_and_dropped_ones_are_no_longer_counted(web_server: Any) -> None:
    parts = [await store_undelivered(web_server, DeliveryState.UNKNOWN) for _ in range(3)]
    sent = await store_undelivered(web_server, DeliveryState.SENT)
    ids = [parts[0].id, parts[1].id, sent.id, "nothing"]
    body = await web_server.post("/api/outbox/decisions", {"ids": ids, "decision": "drop"})
    assert [(result["id"], result["is_done"]) for result in body["results"]] == [
        (parts[0].id, True),
        (parts[1].id, True),
        (sent.id, False),
        ("nothing", False),
    ]
    assert body["results"][0]["part"]["status"] == "dropped"
    assert body["results"][2]["note"] == "nothing is left to decide: it is sent already"
    listed = await web_server.get("/api/outbox?state=failed&state=held")
    assert ([part["id"] for part in listed["parts"]], listed["counts"]["failed"]) == ([parts[2].id], 0)
    body = await web_server.post("/api/outbox/decisions", {"ids": [parts[2].id], "decision": "send"})
    assert body["results"][0]["note"] == "it leaves as soon as its platform takes it"
    await web_server.post("/api/outbox/decisions", {"ids": [], "decision": "send"}, 422)
    await web_server.post("/api/outbox/decisions", {"ids": ["x"], "decision": "burn"}, 422)


async def test_a_room_is_taken_over_and_given_back(web_server: Any) -> None:
    room_id = (await web_server.send("Hello", room="porch"))["room_id"]
    taken = await web_server.post(f"/api/rooms/{room_id}/take-over", {"name": "Mia", "reason": "a refund"})
    assert (taken["name"], taken["reason"], taken["person_id"], taken["ended_at"]) == ("Mia", "a refund", None, None)
    [room] = (await web_server.get("/api/rooms?platform=web"))["rooms"]
    assert room["take_overs"] == [taken]
    silent = await web_server.send("Hello?", room="porch")
    assert (silent["outcome"], silent["replies"]) == ("ignored", [])
    assert silent["reason"].startswith("taken over by Mia since ")
    again = await web_server.post(f"/api/rooms/{room_id}/take-over", {"name": "Ben"})
    assert again == taken
    [ended] = (await web_server.post(f"/api/rooms/{room_id}/give-back", {}))["ended"]
    assert (ended["name"], ended["ended_at"] is None) == ("Mia", False)
    assert (await web_server.post(f"/api/rooms/{room_id}/give-back", {}))["ended"] == []
    assert (await web_server.send("Hello again", room="porch"))["outcome"] == "answered"


async def test_a_person_of_a_room_is_taken_over_alone(web_server: Any) -> None:
    answer = await web_server.send("Hello", room="porch", user="Kim")
    [message, _] = (await web_server.get(f"/api/rooms/{answer['room_id']}/messages"))["messages"]
    path = f"/api/rooms/{answer['room_id']}"
    person_id = message["author"]["id"]
    assert (await web_server.post(f"{path}/take-over", {"person": person_id}))["person_id"] == person_id
    assert (await web_server.send("Hello", room="porch", user="Kim"))["outcome"] == "ignored"
    assert (await web_server.send("Hello", room="porch", user="Lee"))["outcome"] == "answered"
    assert len((await web_server.post(f"{path}/give-back", {"person": person_id}))["ended"]) == 1
    await web_server.post(f"{path}/take-over", {"person": str(uuid4())}, 404)
    await web_server.post(f"/api/rooms/{uuid4()}/take-over", {}, 404)


async def test_what_an_operator_writes_is_sent_once_for_each_key_and_marked_as_theirs(web_server: Any) -> None:
    room_id = (await web_server.send("Hello", room="porch"))["room_id"]
    path = f"/api/rooms/{room_id}"
    await web_server.post(f"{path}/take-over", {"name": "Mia"})
    said = await web_server.post(f"{path}/write", {"text": "I am a human, and I see to it.", "name": "Mia"})
    messages = (await web_server.get(f"{path}/messages"))["messages"]
    assert [message["kind"] for message in messages if message["id"] == said["message_id"]] == ["person"]
    assert messages[-1]["text"] == "Mia (a person) writes:\nI am a human, and I see to it."
    agent = web_server.runtime.agents[0].agent
    stored = (await agent.store.memories.memories([UUID(said["message_id"])]))[UUID(said["message_id"])]
    assert stored.metadata["written_by"] == "Mia"
    for _ in range(2):
        repeated = await web_server.post(f"{path}/write", {"text": "Once."}, Idempotency_Key="k-1")
    messages = (await web_server.get(f"{path}/messages"))["messages"]
    assert [message["text"] for message in messages].count("An operator (a person) writes:\nOnce.") == 1
    assert repeated["message_id"] == messages[-1]["id"]
    await web_server.post(f"{path}/write", {"text": ""}, 422)


async def locate(handle: AgentHandle, world: World, room: Room) -> tuple[World, Room]:
    """Return the place as it is: the rooms of the test are those of the first character."""
    return world, room


async def test_an_operator_sees_the_cast_of_a_room_adds_a_character_and_removes_it(open_server: ServerFactory) -> None:
    async with open_server(names=("Ada", "Bruno")) as server:
        ada, bruno = server.runtime.handles
        Cast("web", [ada, bruno], locate)
        await server.send("Hello", room="porch")
        [room] = (await server.get("/api/rooms"))["rooms"]
        assert room["has_cast"]
        path = f"/api/rooms/{room['id']}/cast"
        shown = await server.get(path)
        assert names_in(shown) == (["Ada"], ["Bruno"])
        added = await server.post(path, {"action": "add", "agent_id": str(bruno.agent_id)})
        assert names_in(added) == (["Ada", "Bruno"], [])
        removed = await server.post(path, {"action": "remove", "agent_id": str(ada.agent_id)})
        assert names_in(removed) == (["Bruno"], ["Ada"]) == names_in(await server.get(path))
        logs = await server.runtime.agents[0].agent.store.logs.logs(limit=10)
        await server.post(path, {"action": "add", "agent_id": str(uuid4())}, 404)
        await server.post(path, {"action": "replace", "agent_id": str(ada.agent_id)}, 422)
    decisions = [entry["body"] for entry in logs if entry["body"].get("action") == "SET_CAST"]
    assert [decision["allowed"] for decision in decisions] == [True, True]


async def test_a_room_of_an_account_with_a_single_character_has_no_cast(open_server: ServerFactory) -> None:
    async with open_server() as server:
        await server.send("Hello", room="porch")
        [room] = (await server.get("/api/rooms"))["rooms"]
        assert not room["has_cast"]
        await server.get(f"/api/rooms/{room['id']}/cast", 404)


def names_in(body: dict[str, list[dict[str, str]]]) -> tuple[list[str], list[str]]:
    """Return the names of the members and of the others."""
    return [item["name"] for item in body["members"]], [item["name"] for item in body["others"]]


async def find(web_server: Any, text: str, **query: str) -> list[tuple[str, str]]:
    answer = await web_server.request("GET", "/api/search", params={"q": text, **query}, headers=web_server.bearer)
    body = await web_server.check_response("GET", "/api/search", answer, 200)
    return [(hit["kind"], hit["title"]) for hit in body["results"]]


async def test_rooms_are_found_by_a_part_of_their_name(web_server: Any) -> None:
    for room in ("garden club", "the GARDEN", "attic"):
        await web_server.send("Hello", room=room)
    assert await find(web_server, " garden ") == [("room", "the GARDEN"), ("room", "garden club")]
    assert await find(web_server, "cellar") == []
    assert await find(web_server, "") == []


@pytest.mark.long
async def test_at_most_five_of_a_kind_are_found(open_server: ServerFactory) -> None:
    async with open_server(names=("Ada", "Bob")) as server:
        for number in range(4):
            await server.send("Hello", room=f"room {number}")
            await server.send("Hello", room=f"room {number}", agent="bob")
        assert len(await find(server, "room")) == 5
        assert len(await find(server, "room", agent="bob")) == 4


async def test_everything_is_found_by_its_id(web_server: Any) -> None:
    answer = await web_server.send("Hello  there", room="den", user="eve")
    [receipt] = (await web_server.get("/api/receipts"))["receipts"]
    headline = receipt["headline"]
    assert await find(web_server, answer["message_id"]) == [("message", "eve: Hello there"), ("receipt", headline)]
    assert await find(web_server, receipt["id"]) == [("receipt", headline)]
    assert await find(web_server, answer["room_id"]) == [("room", "den")]
    assert await find(web_server, receipt["author_id"]) == [("person", "eve")]
    assert await find(web_server, str(uuid4())) == []


async def test_people_are_found_by_a_part_of_their_name_and_messages_by_their_words(web_server: Any) -> None:
    asked = await web_server.send("Where are the blue irons?", room="den", user="evelyn")
    await web_server.send("Something else", room="attic", user="tom")
    assert await find(web_server, "EVEL") == [("person", "evelyn")]
    assert await find(web_server, "irons") == [
        ("message", "Ada: You said: Where are the blue irons?"),
        ("message", "evelyn: Where are the blue irons?"),
    ]
    hits = (await web_server.get("/api/search?q=irons"))["results"]
    assert {hit["receipt_id"] for hit in hits} == {asked["message_id"]}
    assert {hit["where"] for hit in hits} == {"den"}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("text", ["%", "_", "\\", "' OR 1=1 --", "\x00", "\U0001f4a3" * 60, "{}", "["])
async def test_no_text_is_taken_for_a_pattern(web_server: Any, text: str) -> None:
    await web_server.send("Hello", room="den")
    assert await find(web_server, text) == []


async def test_a_long_text_is_refused(web_server: Any) -> None:
    await web_server.get(f"/api/search?q={'x' * 201}", 422)
