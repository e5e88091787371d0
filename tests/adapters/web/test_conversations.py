"""Conversations: listed by page, named by their first message, renamed, searched and deleted by their owner."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from adapters.web.incoming import build_title
from bot import Content, MemoryKind, Plugin, ProviderResult, Turn, new_id, provider, system_clock
from bot.platform import AccessTokens, TokenScope
from tests.adapters.web.conftest import SocketClient

PATH = "/api/conversations"


async def request(web_server: Any, method: str, path: str, body: object = None, status: int = 200) -> Any:
    answer = await web_server.request(method, path, headers=web_server.bearer, json=body)
    return await web_server.check_response(method, path, answer, status)


async def begin(web_server: Any, text: str, **body: str) -> dict[str, Any]:
    conversation = await web_server.post(PATH, body)
    page = await web_server.open_socket(room=conversation["room"])
    assert page.ready["room_id"] == conversation["id"] == conversation["room_id"]
    await page.send_message(text, f"first-{conversation['id']}")
    await page.ws.close()
    return dict(conversation)


async def titles(web_server: Any, query: str = "") -> list[str]:
    return [item["title"] for item in (await web_server.get(f"{PATH}{query}"))["conversations"]]


async def test_a_conversation_is_listed_with_its_first_message_as_title(web_server: Any) -> None:
    conversation = await begin(web_server, "\n  Mending a kettle\nand more")
    page = await web_server.open_socket(room=conversation["room"])
    await page.send_message("something else", "second")
    listed = await web_server.get(PATH)
    [item] = listed["conversations"]
    assert (item["id"], item["title"], listed["next"]) == (conversation["id"], "Mending a kettle", None)
    assert item["updated_at"] is not None
    assert (await web_server.get(f"{PATH}/{item['id']}"))["title"] == "Mending a kettle"


async def test_a_conversation_without_messages_is_found_and_not_listed(web_server: Any) -> None:
    conversation = await web_server.post(PATH, {})
    assert (await web_server.get(f"{PATH}/{conversation['id']}"))["title"] == ""
    assert await titles(web_server) == []


async def test_a_repeated_key_begins_a_single_conversation(web_server: Any) -> None:
    first, second = [await web_server.post(PATH, {}, Idempotency_Key="k") for _ in range(2)]
    assert first == second
    assert (await web_server.post(PATH, {}, Idempotency_Key="other"))["id"] != first["id"]


async def test_a_title_that_a_person_gave_stays(web_server: Any) -> None:
    named = await begin(web_server, "Hello", title="My talk")
    renamed = await begin(web_server, "Good day")
    changed = await request(web_server, "PATCH", f"{PATH}/{renamed['id']}", {"title": "Another"})
    assert changed["title"] == "Another"
    page = await web_server.open_socket(room=renamed["room"])
    await page.send_message("and again", "again")
    assert await titles(web_server) == ["Another", "My talk"]
    assert (await web_server.get(f"{PATH}/{named['id']}"))["title"] == "My talk"


async def test_a_person_who_was_forgotten_is_not_named_by_titles_and_the_next_message_gives_a_title(
    web_server: Any,
) -> None:
    conversations = [await begin(web_server, text) for text in ("the treasure", "lies under the oak")]
    await request(web_server, "PATCH", f"{PATH}/{conversations[1]['id']}", {"title": "Treasures"})
    page = await web_server.open_socket(room=conversations[0]["room"])
    for client_id in ("f1", "f2"):
        await page.send(type="command", text="/forget-me", client_id=client_id)
        await page.wait_for("shown")
    paths = [f"{PATH}/{conversation['id']}" for conversation in conversations]
    assert [(await web_server.get(path))["title"] for path in paths] == ["", ""]
    await page.send_message("Mending a kettle", "after")
    assert [(await web_server.get(path))["title"] for path in paths] == ["Mending a kettle", ""]


async def test_conversations_are_listed_by_pages_and_found_by_title(web_server: Any) -> None:
    for number in range(5):
        await begin(web_server, f"talk {number}")
    seen: list[str] = []
    following = ""
    while following is not None:
        page = await web_server.get(f"{PATH}?limit=2" + (f"&before={following}" if following else ""))
        seen += [item["title"] for item in page["conversations"]]
        following = page["next"]
    assert seen == [f"talk {number}" for number in (4, 3, 2, 1, 0)]
    assert await titles(web_server, "?q=TALK%203") == ["talk 3"]
    assert await titles(web_server, "?q=c-") == []
    for cursor in ("nonsense", "e30x", "W10="):
        await web_server.get(f"{PATH}?before={cursor}", 422)


async def test_a_deleted_conversation_is_gone_with_its_messages(web_server: Any) -> None:
    conversation = await begin(web_server, "Forget this")
    deleted = await request(web_server, "DELETE", f"{PATH}/{conversation['id']}")
    assert deleted == {"id": conversation["id"], "messages": 2}
    assert await titles(web_server) == []
    for method in ("GET", "PATCH", "DELETE"):
        await request(web_server, method, f"{PATH}/{conversation['id']}", {"title": "no"}, 404)
    assert (await web_server.get(f"/api/rooms/{conversation['id']}/messages"))["messages"] == []


async def test_no_word_of_a_deleted_conversation_stays_and_the_next_message_gives_it_a_title(web_server: Any) -> None:
    conversation = await begin(web_server, "A kettle of mine")
    await request(web_server, "DELETE", f"{PATH}/{conversation['id']}")
    rooms = (await web_server.get("/api/rooms"))["rooms"]
    assert [item["name"] for item in rooms if item["id"] == conversation["id"]] == ["(deleted)"]
    page = await web_server.open_socket(room=conversation["room"])
    await page.send_message("A teapot", "again")
    assert await titles(web_server) == ["A teapot"]


async def test_messages_of_the_api_are_no_conversations_unless_they_name_a_conversation(web_server: Any) -> None:
    await web_server.send("Hello", room="a-script")
    assert await titles(web_server) == []


@pytest.mark.long
async def test_a_chat_token_sees_its_own_conversations_only(open_server: Any, tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    headers = {"Authorization": f"Bearer {tokens.create('eve', TokenScope.CHAT, system_clock())[1]}"}
    async with open_server(access_tokens=tokens) as web_server:
        other = await begin(web_server, "the operator's")
        for method in ("GET", "PATCH", "DELETE"):
            answer = await web_server.request(method, f"{PATH}/{other['id']}", headers=headers, json={"title": "no"})
            assert answer.status == 404
        created = await web_server.request("POST", PATH, headers=headers, json={"title": "eve's"})
        own = await created.json()
        ws = await web_server.session.ws_connect(f"{web_server.origin}/api/ws", headers=headers)
        await ws.send_json({"type": "hello", "room": own["room"]})
        await ws.send_json({"type": "message", "text": "Hello", "client_id": "1"})
        while (await ws.receive_json())["type"] != "outcome":
            pass
        listed = await (await web_server.request("GET", PATH, headers=headers)).json()
        assert [item["title"] for item in listed["conversations"]] == ["eve's"]
        assert await titles(web_server) == ["the operator's"]


@pytest.mark.parametrize(
    ("text", "title"), [("", ""), ("  \n ", ""), ("Hi", "Hi"), ("a\nb", "a"), ("w" * 90, "w" * 59 + "…")]
)
def test_a_title_is_the_beginning_of_the_first_line(text: str, title: str) -> None:
    assert build_title(text) == title


async def follow(web_server: Any, headers: dict[str, str], **topic: str) -> Any:
    ws = await web_server.session.ws_connect(f"{web_server.origin}/api/ws", headers=headers)
    client = SocketClient(ws)
    await client.send(type="subscribe", topics=[{"kind": "conversation", **topic}])
    await client.wait_for("subscribed")
    return client


async def test_a_page_that_shows_the_list_learns_what_changes_in_it(web_server: Any) -> None:
    page = await follow(web_server, web_server.bearer, agent="ada")
    conversation = await begin(web_server, "Mending a kettle")
    frame = await page.next_frame()
    assert (frame["id"], frame["room"], frame["title"], frame["is_deleted"]) == (
        *(conversation["id"], conversation["room"], "Mending a kettle"),
        False,
    )
    assert frame["updated_at"] is not None
    assert (await page.next_frame())["updated_at"] >= frame["updated_at"]  # the reply
    path = f"{PATH}/{conversation['id']}"
    await request(web_server, "PATCH", path, {"title": "Kettles"})
    assert (await page.next_frame())["title"] == "Kettles"
    await web_server.send("by a script", room="a-script")
    await request(web_server, "DELETE", path)
    frame = await page.next_frame()
    assert (frame["id"], frame["is_deleted"]) == (conversation["id"], True)


async def test_each_token_learns_of_the_conversations_that_it_lists(open_server: Any, tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    eve, viewer = (
        {"Authorization": f"Bearer {tokens.create(name, scope, system_clock())[1]}"}
        for name, scope in (("eve", TokenScope.CHAT), ("viewer", TokenScope.READ_ONLY))
    )
    async with open_server(access_tokens=tokens) as web_server:
        pages = [await follow(web_server, headers) for headers in (web_server.bearer, viewer, eve)]
        other = await begin(web_server, "the operator's")
        ws = await web_server.session.ws_connect(f"{web_server.origin}/api/ws", headers=eve)
        own = SocketClient(ws)
        await own.send(type="hello", room="c-1")
        room_id = (await own.wait_for("ready"))["room_id"]
        await own.send(type="subscribe", topics=[{"kind": "busy", "room": room_id}])
        assert (await own.next_frame())["type"] == "subscribed"  # although nothing was written there yet
        await own.send_message("eve's", "1")
        await begin(web_server, "the operator's second")
        for page in pages[:2]:
            frames = [await page.next_frame() for _ in range(4)]
            assert {frame["title"] for frame in frames} == {"the operator's", "the operator's second"}
            assert frames[0]["id"] == other["id"]
        assert {(await pages[2].next_frame())["id"] for _ in range(2)} == {room_id}


async def test_a_chat_token_reads_messages_and_receipts_of_its_own_rooms_only(open_server: Any, tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    eve, zoe = (
        {"Authorization": f"Bearer {tokens.create(name, TokenScope.CHAT, system_clock())[1]}"}
        for name in ("eve", "zoe")
    )
    async with open_server(access_tokens=tokens) as web_server:
        theirs = await web_server.send("the operator's")
        answer = await web_server.request("POST", "/api/agents/ada/messages", headers=eve, json={"text": "Hello"})
        own = await answer.json()
        for outcome, headers, status in ((own, eve, 200), (own, zoe, 404), (theirs, eve, 404)):
            room, message, receipt = outcome["room_id"], outcome["message_id"], outcome["receipt_id"]
            for path in (f"/api/rooms/{room}/messages", f"/api/receipts/{message}", f"/api/receipts/{receipt}"):
                answer = await web_server.request("GET", path, headers=headers)
                await web_server.check_response("GET", path, answer, status)
        answer = await web_server.request("GET", f"/api/rooms/{own['room_id']}/messages", headers=eve)
        assert [message["text"] for message in (await answer.json())["messages"]] == ["Hello", "You said: Hello"]
        answer = await web_server.request("GET", f"/api/receipts/{own['message_id']}", headers=eve)
        shown = await answer.json()
        assert (shown["has_prompts"], shown["headline"][:8], len(shown["model_calls"])) == (False, "Answered", 1)
        prompts = await web_server.request("GET", f"/api/receipts/{own['message_id']}/prompts", headers=eve)
        assert prompts.status == 403


USED: list[tuple[Any, float]] = []


@provider("NOTES", "What was remembered.", position=20)
async def notes(turn: Turn) -> ProviderResult:
    return ProviderResult("# Notes", data={"memories": USED}, authors=())


async def test_a_chat_token_sees_what_was_used_of_its_own_memories_only(open_server: Any, tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    eve = {"Authorization": f"Bearer {tokens.create('eve', TokenScope.CHAT, system_clock())[1]}"}
    async with open_server(Plugin("notes", providers=[notes]), access_tokens=tokens) as web_server:
        theirs = await web_server.send("Hello")
        answer = await web_server.request("POST", "/api/agents/ada/messages", headers=eve, json={"text": "Hello"})
        store = web_server.runtime.agents[0].agent.store
        known = [
            replace((await store.memories.memories([UUID(outcome["message_id"])])).popitem()[1], **changes)
            for outcome, changes in (
                (await answer.json(), {"kind": MemoryKind.FACT, "content": Content(text="Eve mends kettles.")}),
                (theirs, {"kind": MemoryKind.FACT, "content": Content(text="The operator has debts.")}),
                (await answer.json(), {"kind": MemoryKind.FRAGMENT, "metadata": {"name": "plans.md"}}),
            )
        ]
        known = [replace(memory, id=new_id(), external_id="") for memory in known]
        await store.memories.add(known)
        USED[:] = [(memory.id, 0.5) for memory in known]
        answer = await web_server.request("POST", "/api/agents/ada/messages", headers=eve, json={"text": "And now?"})
        path = f"/api/receipts/{(await answer.json())['message_id']}"
        async with asyncio.timeout(30):  # what a turn noted is stored after its answer
            while len((await web_server.get(path))["memory"]) < len(known):
                pass
        shown = await (await web_server.request("GET", path, headers=eve)).json()
        assert [memory["text"] for memory in shown["memory"]] == ["Eve mends kettles."]


@pytest.mark.parametrize("room", ["c-kettles", "chat-1"])
async def test_what_the_api_sends_into_a_conversation_leaves_it_a_conversation_with_its_title(
    web_server: Any, room: str
) -> None:
    page = await web_server.open_socket(room=room)
    await page.send_message("Mending a kettle", "first")
    path = f"{PATH}/{page.ready['room_id']}"
    await request(web_server, "PATCH", path, {"title": "Kettles"})
    await web_server.send("and a teapot", room=room)
    await web_server.send("/help", room=room)
    assert (await web_server.get(path))["title"] == "Kettles"
    assert await titles(web_server) == ["Kettles"]
    texts = [
        message["text"]
        for message in (await web_server.get(f"/api/rooms/{page.ready['room_id']}/messages"))["messages"]
    ]
    assert "You said: and a teapot" in texts


async def test_a_message_of_the_api_begins_the_conversation_that_it_names_and_gives_it_a_title(web_server: Any) -> None:
    await web_server.send("/help", room="c-kettles")
    await web_server.send("Mending a kettle", room="c-kettles")
    assert await titles(web_server) == ["Mending a kettle"]
