"""Messages over HTTP: server-sent events, awaited outcomes, stopped and repeated answers."""

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from adapters.web.config import Limits
from adapters.web.messages import run_shielded
from bot import system_clock
from bot.platform import AccessTokens, TaskSet, TokenScope

SAY = "/api/agents/ada/messages"


async def read_events(answer: Any) -> list[tuple[str, Any]]:
    """Read a stream to its end."""
    async with asyncio.timeout(30):
        return parse_events(await answer.text())


def parse_events(text: str) -> list[tuple[str, Any]]:
    events = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            events.append((lines["event"], json.loads(lines["data"])))
    return events


async def open_stream(web_server: Any, **body: Any) -> Any:
    return await web_server.request("POST", SAY, headers=web_server.bearer, json={**body, "stream": True})


async def test_a_stream_sends_the_reply_and_ends_with_the_outcome(web_server: Any) -> None:
    answer = await open_stream(web_server, text="Hello", idempotency_key="k1")
    assert answer.content_type == "text/event-stream"
    found = await read_events(answer)
    kinds = [kind for kind, _ in found if kind != "typing"]
    assert kinds == ["reply", "outcome"]
    assert found[0] == ("typing", {"active": True})
    plain = await web_server.send("Hello", idempotency_key="k1")
    assert found[-1] == ("outcome", plain)
    assert [data for kind, data in found if kind == "reply"] == plain["replies"]


async def test_a_stream_of_a_known_message_repeats_its_reply(web_server: Any) -> None:
    plain = await web_server.send("Hello", idempotency_key="k1")
    found = await read_events(await open_stream(web_server, text="Hello", idempotency_key="k1"))
    assert found == [("reply", plain["replies"][0]), ("outcome", plain)]


async def test_a_stream_contains_no_other_messages(web_server: Any) -> None:
    first = asyncio.create_task(open_stream(web_server, text="hold on", room="den"))
    await web_server.script.requested.acquire()
    older = await first
    newer = await read_events(await open_stream(web_server, text="and now", room="den"))
    found = [event for event in await read_events(older) if event[0] != "typing"]
    assert [kind for kind, _ in found] == ["outcome"]
    assert found[0][1]["outcome"] == "superseded"
    assert [kind for kind, _ in newer if kind != "typing"] == ["reply", "outcome"]


async def test_a_wrong_request_is_refused_before_the_stream_begins(web_server: Any) -> None:
    answer = await open_stream(web_server, text="Hello", room="")
    assert (answer.status, answer.content_type) == (422, "application/json")


async def test_a_silent_stream_sends_keep_alive_comments(open_server: Any) -> None:
    async with open_server(limits=Limits(keep_alive_seconds=0.02)) as web_server:
        answer = await open_stream(web_server, text="hold on")
        seen = b""
        while b": still here" not in seen:
            seen += await answer.content.readany()
        web_server.script.released.set()
        assert "event: outcome" in await answer.text()


async def test_a_stream_ends_with_an_error_if_the_bot_stops(web_server: Any) -> None:
    answer = await open_stream(web_server, text="hold on")
    await web_server.script.requested.acquire()
    await web_server.runtime.agents[0].inbox.drain(0.0)
    kind, data = (await read_events(answer))[-1]
    assert (kind, data["error"]["code"]) == ("error", "stopping")
    assert data["error"]["request_id"] == answer.headers["X-Request-Id"]


async def test_a_stream_sends_a_reply_in_pieces(web_server: Any) -> None:
    answer = await open_stream(web_server, text="a story")
    first = b""
    async with asyncio.timeout(30):
        while b"event: piece" not in first:
            first += await answer.content.readuntil(b"\n\n")
    web_server.script.released.set()
    found = [entry for entry in parse_events(first.decode()) + await read_events(answer) if entry[0] != "typing"]
    pieces = [data for kind, data in found if kind == "piece"]
    [reply] = [data for kind, data in found if kind == "reply"]
    assert (pieces[0]["text"], pieces[0]["anew"]) == ("Once upon", True)
    assert {piece["id"] for piece in pieces} == {reply["id"]}
    assert reply["text"].startswith("".join(piece["text"] for piece in pieces))
    assert reply["text"] == "Once upon a time."
    assert found[-1][0] == "outcome"


async def test_no_pieces_are_sent_if_streaming_is_disabled(open_server: Any) -> None:
    async with open_server(settings={"STREAMING": "false"}) as web_server:
        web_server.script.released.set()
        found = await read_events(await open_stream(web_server, text="a story"))
        assert [kind for kind, _ in found if kind != "typing"] == ["reply", "outcome"]


async def test_a_shielded_task_finishes_after_its_caller_is_cancelled() -> None:
    tasks, go, done = TaskSet("a request"), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.set()

    waiting = asyncio.ensure_future(run_shielded(tasks, work()))
    await asyncio.sleep(0)
    waiting.cancel()
    go.set()
    async with asyncio.timeout(30):
        await done.wait()


async def test_an_error_is_raised_to_the_caller_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks = TaskSet("a request", logs_failures=False)

    async def work() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError):
        await run_shielded(tasks, work())
    assert not caplog.records
    announcements = TaskSet("announcing an outcome")
    announcements.start(work())
    await announcements.cancel()
    await asyncio.sleep(0)
    announcements.start(work())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "announcing an outcome failed" in caplog.text


async def test_background_tasks_are_cancelled_with_the_server() -> None:
    tasks = TaskSet("a request", logs_failures=False)
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    tasks.start(work())
    await asyncio.sleep(0)
    await tasks.cancel()
    assert ended.is_set()


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
