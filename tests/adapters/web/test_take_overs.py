"""Operators take over rooms and people by HTTP, and what they write as the bot's account is marked as theirs."""

from typing import Any
from uuid import UUID, uuid4


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
