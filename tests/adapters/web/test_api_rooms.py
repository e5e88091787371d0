"""Rooms, their messages, and undelivered parts over HTTP, page by page."""

from typing import Any
from uuid import UUID

import pytest

from bot import ParticipantState, derived_id
from bot.platform import DeliveryState
from tests.adapters.web.test_api_outbox_api import store_undelivered


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
