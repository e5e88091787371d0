"""Stop, regenerate and edit over HTTP and a real WebSocket."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

from bot import system_clock
from bot.platform import AccessTokens, TokenScope


async def start_story(web_server: Any, client_id: str = "c1") -> tuple[Any, str, str]:
    """Ask for a story and wait for its beginning; return the socket, the message's id and the reply's."""
    socket_client = await web_server.open_socket(room="den")
    await socket_client.send(type="message", text="a story", client_id=client_id)
    message_id = (await socket_client.wait_for("ack"))["message_id"]
    return socket_client, message_id, (await socket_client.wait_for("draft"))["id"]


async def messages_of(web_server: Any, socket_client: Any) -> list[dict[str, Any]]:
    return (await web_server.get(f"/api/rooms/{socket_client.ready['room_id']}/messages"))["messages"]


async def test_stop_ends_the_turn_and_marks_what_was_shown(web_server: Any) -> None:
    socket_client, message_id, reply_id = await start_story(web_server)
    stopped = await web_server.post(f"/api/messages/{message_id}/stop", None)
    assert (stopped["outcome"], stopped["rule"], stopped["message_id"]) == ("cancelled", "stopped", message_id)
    reply = await socket_client.wait_for("message")
    assert (reply["id"], reply["text"], reply["is_complete"]) == (reply_id, "Once upon", False)
    outcome = await socket_client.wait_for("outcome")
    assert (outcome["outcome"], outcome["rule"], outcome["receipt_id"]) == (
        "cancelled",
        "stopped",
        stopped["receipt_id"],
    )
    question, stored = await messages_of(web_server, socket_client)
    assert (stored["text"], stored["is_complete"], question["is_complete"]) == ("Once upon", False, True)
    assert question["receipt_id"] == stopped["receipt_id"]
    assert await web_server.post(f"/api/messages/{message_id}/stop", None) == stopped


async def test_stop_after_the_answer_says_that_it_was_answered(web_server: Any) -> None:
    answered = await web_server.send("Hello")
    for message_id in (answered["message_id"], answered["replies"][0]["id"]):
        assert (await web_server.post(f"/api/messages/{message_id}/stop", None))["outcome"] == "answered"


async def test_stop_works_as_a_frame_too(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    await socket_client.send(type="message", text="hold on", client_id="c1")
    message_id = (await socket_client.wait_for("ack"))["message_id"]
    await web_server.script.requested.acquire()
    await socket_client.send(type="stop", message_id=message_id, client_id="s1")
    frames = {frame["type"]: frame for frame in [await socket_client.next_frame() for _ in range(4)]}
    assert frames["ack"]["client_id"] == "s1"
    assert frames["outcome"]["rule"] == "stopped"
    assert [message["text"] for message in await messages_of(web_server, socket_client)] == ["hold on"]


async def test_a_new_answer_replaces_the_reply_in_every_open_page(web_server: Any) -> None:
    page, other = await web_server.open_socket(room="den"), await web_server.open_socket(room="den")
    frames = await page.send_message("Hello", "c1")
    earlier = next(frame for frame in frames if frame["type"] == "message")
    await other.wait_for("outcome")
    web_server.script.reply = "Once more: {}"
    answered = await web_server.post(f"/api/messages/{earlier['id']}/regenerate", None)
    assert (answered["outcome"], answered["rule"]) == ("answered", "regenerated")
    for client in (page, other):
        replaced = await client.wait_for("message")
        assert (replaced["id"], replaced["text"]) == (earlier["id"], "Once more: Hello")
        versions = [(version["text"], version["current"]) for version in replaced["versions"]]
        assert versions == [("You said: Hello", False), ("Once more: Hello", True)]
        assert (await client.wait_for("outcome"))["receipt_id"] == answered["receipt_id"]
    question, reply = await messages_of(web_server, page)
    assert (question["receipt_id"], question["outcome"]["rule"]) == (answered["receipt_id"], "regenerated")
    assert (question["versions"], question["edited_at"]) == ([], None)
    assert reply["versions"][0]["id"] != reply["versions"][1]["id"]


async def test_a_new_answer_is_streamed_in_the_place_of_the_reply(web_server: Any) -> None:
    socket_client, message_id, reply_id = await start_story(web_server)
    web_server.script.released.set()
    await socket_client.wait_for("outcome")
    web_server.script.released.clear()
    await socket_client.send(type="regenerate", message_id=message_id, client_id="r1")
    assert (await socket_client.wait_for("ack"))["client_id"] == "r1"
    draft = await socket_client.wait_for("draft")
    assert (draft["id"], draft["text"], draft["anew"]) == (reply_id, "Once upon", True)
    web_server.script.released.set()
    replaced = await socket_client.wait_for("message")
    assert (replaced["id"], replaced["text"], len(replaced["versions"])) == (reply_id, "Once upon a time.", 2)


async def test_a_repeated_key_repeats_no_answer(web_server: Any) -> None:
    answered = await web_server.send("Hello")
    path = f"/api/messages/{answered['message_id']}/regenerate"
    first, second = [await web_server.post(path, None, Idempotency_Key="k1") for _ in range(2)]
    assert first == second
    assert len(second["replies"][0]["versions"]) == 2


async def test_a_message_that_is_being_answered_is_not_answered_twice(web_server: Any) -> None:
    socket_client, message_id, _ = await start_story(web_server)
    refused = await web_server.post(f"/api/messages/{message_id}/regenerate", None, 409)
    assert refused["error"]["code"] == "in_progress"
    await socket_client.send(type="regenerate", message_id=message_id, client_id="r1")
    error = await socket_client.wait_for("error")
    assert (error["code"], error["client_id"]) == ("in_progress", "r1")
    web_server.script.released.set()
    await socket_client.wait_for("outcome")


async def put(web_server: Any, path: str, body: object, status: int = 200) -> Any:
    answer = await web_server.request("PUT", path, headers=web_server.bearer, json=body)
    return await web_server.check_response("PUT", path, answer, status)


async def test_an_edited_message_is_answered_again_and_keeps_its_earlier_text(web_server: Any) -> None:
    page = await web_server.open_socket(room="den")
    message_id = next(frame for frame in await page.send_message("Helo", "c1") if frame["type"] == "ack")["message_id"]
    answered = await put(web_server, f"/api/messages/{message_id}", {"text": "Hello"})
    assert [reply["text"] for reply in answered["replies"]] == ["You said: Hello"]
    edited = await page.wait_for("message")
    assert (edited["id"], edited["text"], edited["edited_at"] is not None) == (message_id, "Hello", True)
    assert [version["text"] for version in edited["versions"]] == ["Helo", "Hello"]
    reply = await page.wait_for("message")
    assert [version["text"] for version in reply["versions"]] == ["You said: Helo", "You said: Hello"]
    assert [message["text"] for message in await messages_of(web_server, page)] == ["Hello", "You said: Hello"]


async def test_an_edit_works_as_a_frame_and_stops_the_answer_under_way(web_server: Any) -> None:
    socket_client, message_id, reply_id = await start_story(web_server)
    await socket_client.send(type="edit", message_id=message_id, text="Hello", client_id="e1")
    stopped = await socket_client.wait_for("outcome")
    assert stopped["rule"] == "stopped"
    answered = await socket_client.wait_for("outcome")
    assert answered["outcome"] == "answered"
    question, reply = await messages_of(web_server, socket_client)
    assert (question["text"], reply["id"], reply["text"]) == ("Hello", reply_id, "You said: Hello")
    assert [version["text"] for version in reply["versions"]] == ["Once upon", "You said: Hello"]


async def test_a_reply_cannot_be_edited(web_server: Any) -> None:
    answered = await web_server.send("Hello")
    refused = await put(web_server, f"/api/messages/{answered['replies'][0]['id']}", {"text": "no"}, 409)
    assert refused["error"]["code"] == "not_editable"


async def test_an_unknown_message_is_not_found(web_server: Any) -> None:
    for action in ("stop", "regenerate"):
        await web_server.post(f"/api/messages/{uuid4()}/{action}", None, 404)
    await put(web_server, f"/api/messages/{uuid4()}", {"text": "no"}, 404)


async def test_a_chat_token_changes_answers_of_its_own_rooms_only(open_server: Any, tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    headers = {"Authorization": f"Bearer {tokens.create('eve', TokenScope.CHAT, system_clock())[1]}"}
    async with open_server(access_tokens=tokens) as web_server:
        await check_own_rooms_only(web_server, headers)


async def check_own_rooms_only(web_server: Any, headers: dict[str, str]) -> None:
    other = await web_server.send("Hello")
    for method, path in (("POST", "/stop"), ("POST", "/regenerate"), ("PUT", "")):
        path = f"/api/messages/{other['message_id']}{path}"
        answer = await web_server.request(method, path, headers=headers, json={"text": "no"})
        assert answer.status == 404
    sent = await web_server.request("POST", "/api/agents/ada/messages", headers=headers, json={"text": "mine"})
    message_id = (await sent.json())["message_id"]
    answer = await web_server.request("POST", f"/api/messages/{message_id}/regenerate", headers=headers)
    assert (answer.status, (await answer.json())["outcome"]) == (200, "answered")


async def test_several_stops_at_once_have_the_same_outcome(web_server: Any) -> None:
    _, message_id, _ = await start_story(web_server)
    stopped = await asyncio.gather(*(web_server.post(f"/api/messages/{message_id}/stop", None) for _ in range(4)))
    assert {item["receipt_id"] for item in stopped} == {stopped[0]["receipt_id"]}
    assert {item["rule"] for item in stopped} == {"stopped"}
