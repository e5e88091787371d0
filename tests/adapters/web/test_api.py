import asyncio
from typing import Any
from uuid import UUID

import pytest

from bot.platform import AgentHandle
from bot.store import InMemoryStore

UNKNOWN = UUID(int=4)


async def test_a_message_is_answered_with_its_outcome_and_the_reply(web_server: Any) -> None:
    outcome = await web_server.send("Hello")
    assert (outcome["outcome"], outcome["rule"], outcome["room"]) == ("answered", "room type API", "api")
    assert [reply["text"] for reply in outcome["replies"]] == ["You said: Hello"]
    assert outcome["replies"][0]["in_reply_to"] == outcome["message_id"]
    assert outcome["replies"][0]["author"]["name"] == "Ada"
    assert outcome["superseded_by"] is None


@pytest.mark.parametrize("name", ["Ada", "ADA", "ada", "%20ada", None])
async def test_an_agent_is_found_by_name_or_id(web_server: Any, name: str | None) -> None:
    [agent] = (await web_server.get("/api/agents"))["agents"]
    assert (agent["name"], agent["bio"]) == ("Ada", ["Ada listens."])
    await web_server.send("Hello", agent=name or agent["id"])


async def test_an_unknown_agent_is_not_found(web_server: Any) -> None:
    error = (await web_server.send("Hello", 404, agent="nobody"))["error"]
    assert (error["code"], error["message"]) == ("not_found", "there is no agent 'nobody'")


async def test_what_an_agent_remembers_is_searched_by_words_in_all_rooms(web_server: Any) -> None:
    await web_server.send("My lighthouse has a green door", room="keeper", user="Eve")
    await web_server.send("Good morning", room="other")
    found = (await web_server.get("/api/memories?query=lighthouse%20door&agent=ada"))["memories"]

    assert ("MESSAGE", "Eve", "My lighthouse has a green door") in [
        (memory["kind"], memory["author"], memory["text"]) for memory in found
    ]
    assert all("Good morning" not in memory["text"] for memory in found)
    assert len((await web_server.get("/api/memories?query=lighthouse&limit=1"))["memories"]) == 1
    assert (await web_server.get("/api/memories?query=zeppelin"))["memories"] == []
    assert (await web_server.get("/api/memories"))["memories"] == []
    await web_server.get("/api/memories?query=x&agent=nobody", 404)


async def test_silence_is_an_outcome_with_a_reason(web_server: Any) -> None:
    outcome = await web_server.send("silence please")
    assert (outcome["outcome"], outcome["reason"], outcome["replies"]) == ("ignored", "quiet is best", [])


async def test_a_failure_is_an_outcome_with_a_reason_and_an_apology(web_server: Any) -> None:
    outcome = await web_server.send("refuse this")
    assert outcome["outcome"] == "failed"
    assert "the provider refuses" in outcome["reason"]
    assert len(outcome["replies"]) == 1


async def test_a_superseded_message_names_its_successor(web_server: Any) -> None:
    async with asyncio.TaskGroup() as group:
        older = group.create_task(web_server.send("hold on", room="den"))
        await web_server.script.requested.acquire()
        newer = group.create_task(web_server.send("and now", room="den"))
    first, second = older.result(), newer.result()
    assert (first["outcome"], first["replies"]) == ("superseded", [])
    assert first["superseded_by"] == second["message_id"]
    assert [reply["text"] for reply in second["replies"]] == ["You said: and now"]


@pytest.mark.failure("N-16")
async def test_the_same_key_gives_the_same_answer_with_a_single_model_call(web_server: Any) -> None:
    first = await web_server.send("Hello", idempotency_key="k1")
    again = await web_server.send("Hello", idempotency_key="k1")
    by_header = await web_server.post("/api/agents/ada/messages", {"text": "Hello"}, Idempotency_Key="k1")
    assert first == again == by_header
    await web_server.script.requested.acquire()
    assert web_server.script.requested.locked()


@pytest.mark.long
@pytest.mark.failure("N-16")
async def test_the_same_key_waits_for_the_answer_in_progress(web_server: Any) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(web_server.send("hold it", idempotency_key="k1")) for _ in range(5)]
        await web_server.script.requested.acquire()
        web_server.script.released.set()
    answers = [task.result() for task in tasks]
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["outcome"] == "answered"


@pytest.mark.failure("N-16")
@pytest.mark.parametrize(
    "other", [{"text": "Bye"}, {"room": "den"}, {"user": "eve"}, {"attachments": [{"url": "https://a.example"}]}]
)
async def test_another_message_with_the_same_key_is_refused(web_server: Any, other: dict[str, Any]) -> None:
    await web_server.send("Hello", idempotency_key="k1")
    error = (await web_server.send(**{"text": "Hello", **other}, idempotency_key="k1", status=422))["error"]
    assert error["code"] == "idempotency_mismatch"


async def test_a_message_with_attachments_needs_no_text_and_an_empty_message_is_refused(web_server: Any) -> None:
    url = "/api/agents/ada/messages"
    picture = {"url": "https://a.example/cat.png", "content_type": "image/png"}
    assert (await web_server.post(url, {"attachments": [picture]}))["outcome"] == "answered"
    assert "a message has a text or attachments" in str(await web_server.post(url, {"room": "den"}, 422))


async def test_without_a_key_every_message_is_a_new_message(web_server: Any) -> None:
    first, second = await web_server.send("Hello"), await web_server.send("Hello")
    assert first["message_id"] != second["message_id"]


@pytest.mark.failure("N-03")
async def test_invalid_fields_are_named(web_server: Any) -> None:
    error = (await web_server.send("Hello", 422, source="client_chat"))["error"]
    assert (error["code"], error["message"]) == ("invalid_request", "source: Extra inputs are not permitted")


async def test_a_stopping_server_refuses_messages_with_retry_after(web_server: Any) -> None:
    web_server.runtime.agents[0].inbox.close()
    answer = await web_server.request(
        "POST", "/api/agents/ada/messages", headers=web_server.bearer, json={"text": "Hello"}
    )
    assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
    assert (await answer.json())["error"]["code"] == "stopping"


async def test_a_waiting_client_is_notified_that_the_bot_stops(web_server: Any) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(web_server.send("hold on", 503))
        await web_server.script.requested.acquire()
        await web_server.runtime.agents[0].inbox.drain(0.0)
    assert waiting.result()["error"]["code"] == "stopping"


async def test_a_disconnected_client_does_not_cancel_its_message(web_server: Any) -> None:
    task = asyncio.create_task(web_server.send("hold on"))
    await web_server.script.requested.acquire()
    task.cancel()
    web_server.script.released.set()
    again = await web_server.get("/api/receipts")
    handle: AgentHandle = web_server.runtime.handles[0]
    receipt = await handle.wait_outcome(UUID(again["receipts"][0]["id"]))
    assert receipt.outcome == "answered"


async def test_rooms_and_their_messages_are_listed(open_server: Any) -> None:
    async with open_server(names=("Ada", "Bea")) as web_server:
        outcome = await web_server.send("Hello", room="den", user="Eve")
        await web_server.send("Hello", agent="bea")
        rooms = (await web_server.get("/api/rooms"))["rooms"]
        assert [room["name"] for room in rooms] == ["api", "den"]  # the one with the last message first
        [room] = (await web_server.get("/api/rooms?agent=ada"))["rooms"]
        assert (room["id"], room["type"], room["platform"]) == (outcome["room_id"], "API", "web")
        messages = (await web_server.get(f"/api/rooms/{room['id']}/messages"))["messages"]
        assert [(message["author"]["name"], message["text"]) for message in messages] == [
            ("Eve", "Hello"),
            ("Ada", "You said: Hello"),
        ]
        assert messages[0]["outcome"]["outcome"] == "answered"
        assert len((await web_server.get(f"/api/rooms/{room['id']}/messages?limit=1"))["messages"]) == 1


async def test_a_receipt_has_reason_and_costs(web_server: Any) -> None:
    outcome = await web_server.send("Hello")
    [listed] = (await web_server.get(f"/api/receipts?room={outcome['room_id']}"))["receipts"]
    for name in (listed["id"], outcome["message_id"]):
        receipt = await web_server.get(f"/api/receipts/{name}")
        assert (receipt["outcome"], receipt["rule"]) == ("answered", "room type API")
        assert (receipt["tokens_in"], receipt["tokens_out"]) == (120, 30)
        assert [call["purpose"] for call in receipt["model_calls"]] == ["reply"]
        assert receipt["cost"] is receipt["model_calls"][0]["cost"] is None
        assert receipt["message"]["text"] == "Hello"
        assert receipt["replies"] == outcome["replies"]
        assert len(receipt["deliveries"]) == 1
        assert receipt["seconds"] >= 0


async def test_receipts_of_all_agents_come_newest_first(open_server: Any) -> None:
    async with open_server(names=("Ada", "Bea")) as web_server:
        outcomes = [await web_server.send("Hello", agent=name) for name in ("ada", "bea", "ada")]
        found = (await web_server.get("/api/receipts?limit=2"))["receipts"]
        assert [receipt["message_id"] for receipt in found] == [outcomes[2]["message_id"], outcomes[1]["message_id"]]


@pytest.mark.failure("N-11")
@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/api/rooms/{UNKNOWN}/messages", 404),
        ("/api/rooms/no-id/messages", 404),
        (f"/api/receipts/{UNKNOWN}", 404),
        ("/api/receipts/no-id", 404),
        (f"/api/receipts?room={UNKNOWN}", 404),
        ("/api/receipts?room=no-id", 422),
        ("/api/receipts?limit=0", 422),
        ("/api/receipts?limit=201", 422),
        ("/api/receipts?limits=1", 422),
        ("/api/rooms?agent=nobody", 404),
    ],
)
async def test_unknown_ids_and_invalid_queries_are_refused(web_server: Any, path: str, status: int) -> None:
    await web_server.get(path, status)


@pytest.mark.failure("N-13")
async def test_no_secret_is_in_any_response(open_server: Any) -> None:
    canary = "sk-canary-0123456789"
    async with open_server(settings={"OPENAI_API_KEY": canary, "MY_PASSWORD": 'pass "word"'}) as web_server:
        web_server.script.refusal = f"the key {canary} is wrong"
        web_server.script.reply = f'I tell: {canary} and pass "word"'
        outcomes = [await web_server.send(text) for text in ("Hello", "refuse", f"is it {canary}?")]
        paths = ["/api/agents", "/api/rooms", "/api/receipts", "/api/openapi.json", "/"]
        paths += [f"/api/receipts/{outcome['message_id']}" for outcome in outcomes]
        paths.append(f"/api/rooms/{outcomes[0]['room_id']}/messages")
        for path in paths:
            text = await (await web_server.request("GET", path, headers=web_server.bearer)).text()
            assert canary not in text, path
            assert 'pass \\"word' not in text, path
            assert "a-token-for-tests" not in text, path
        assert "[redacted]" in str(outcomes)


@pytest.mark.failure("N-16")
async def test_keys_are_remembered_after_a_restart(open_server: Any) -> None:
    stores = {"Ada": InMemoryStore()}
    async with open_server(stores=stores) as web_server:
        first = await web_server.send("Hello", idempotency_key="k1")
    async with open_server(stores=stores) as web_server:
        assert await web_server.send("Hello", idempotency_key="k1") == first
        assert web_server.script.requested.locked()
