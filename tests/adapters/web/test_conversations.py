"""Conversations: listed by page, named by their first message, renamed, searched and deleted by their owner."""

from pathlib import Path
from typing import Any

import pytest

from adapters.web.incoming import build_title
from bot import system_clock
from bot.platform import AccessTokens, TokenScope

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


async def test_a_repeated_key_begins_one_conversation(web_server: Any) -> None:
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


async def test_messages_of_the_api_are_no_conversations_unless_they_name_one(web_server: Any) -> None:
    await web_server.send("Hello", room="a-script")
    assert await titles(web_server) == []


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
