import asyncio
import base64
import json
import socket
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import WSCloseCode, WSMsgType, WSServerHandshakeError
from jsonschema import Draft202012Validator

from adapters.web.config import Limits
from adapters.web.frames import DraftFrame, FrameQueue, TypingFrame
from bot.events import ControlMessage
from bot.store import InMemoryStore


def kinds(frames: list[dict[str, Any]]) -> list[str]:
    """The types of frames, without typing frames."""
    return [frame["type"] for frame in frames if frame["type"] != "typing"]


async def test_a_conversation_from_hello_to_outcome(web_server: Any) -> None:
    socket_client = await web_server.open_socket(room="den", user="eve")
    ready = socket_client.ready
    assert (ready["agent"]["name"], ready["room"], ready["messages"]) == ("Ada", "den", [])
    assert (ready["user"]["name"], ready["user"]["is_agent"]) == ("eve", False)
    frames = await socket_client.send_message("Hello", "c1")
    assert kinds(frames) == ["ack", "message", "outcome"]
    ack, reply, outcome = (frame for frame in frames if frame["type"] != "typing")
    assert frames[0] == ack
    assert ack["client_id"] == "c1"
    assert (reply["text"], reply["author"]["name"]) == ("You said: Hello", "Ada")
    assert reply["in_reply_to"] == outcome["message_id"] == ack["message_id"]
    assert outcome["outcome"] == "answered"


async def test_every_frame_matches_the_schema(web_server: Any) -> None:
    described = await web_server.get("/api/openapi.json")
    schema = {"$ref": "#/components/schemas/ServerFrame", "components": described["components"]}
    socket_client = await web_server.open_socket()
    for text in ("Hello", "silence", "refuse"):
        for frame in await socket_client.send_message(text, text):
            Draft202012Validator(schema).validate(frame)
    await socket_client.send(type="nonsense")
    Draft202012Validator(schema).validate(await socket_client.wait_for("error"))
    Draft202012Validator(schema).validate(socket_client.ready)


async def test_the_typing_indicator_is_shown_during_a_turn(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    await socket_client.send(type="message", text="hold on", client_id="c1")
    assert [(await socket_client.next_frame())["type"] for _ in range(2)] == ["ack", "typing"]
    late = await web_server.open_socket()
    assert late.ready["is_typing"] is True
    web_server.script.released.set()
    assert (await late.wait_for("typing"))["active"] is False


async def test_a_client_learns_that_the_model_is_busy_and_called_again(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    frames = await socket_client.send_message("overload", "c1")
    typing = [(frame["active"], frame["model_busy"]) for frame in frames if frame["type"] == "typing"]
    assert typing == [(True, False), (True, True), (False, False)]
    assert [frame["text"] for frame in frames if frame["type"] == "message"] == ["You said: overload"]


async def test_a_page_receives_what_a_plugin_asks_it_for_in_its_own_room_only(web_server: Any) -> None:
    page, other = await web_server.open_socket(), await web_server.open_socket(room="den")
    agent = web_server.runtime.agents[0].agent
    agent.events.emit(ControlMessage(agent.id, UUID(page.ready["room_id"]), "disable_input", "Fill in the form first"))
    frame = await page.wait_for("control")
    assert (frame["action"], frame["target"]) == ("disable_input", "Fill in the form first")
    frames = await other.send_message("Hello", "c1")
    assert "control" not in [frame["type"] for frame in frames]


async def test_a_reconnecting_client_gets_the_history_with_outcomes(web_server: Any) -> None:
    socket_client = await web_server.open_socket(room="den")
    await socket_client.send_message("Hello", "c1")
    await socket_client.send_message("silence now", "c2")
    await socket_client.ws.close()
    again = await web_server.open_socket(room="den")
    history = [
        (message["text"], message["outcome"] and message["outcome"]["outcome"]) for message in again.ready["messages"]
    ]
    assert history == [("Hello", "answered"), ("You said: Hello", None), ("silence now", "ignored")]


@pytest.mark.failure("N-16")
async def test_a_message_sent_again_after_a_reconnect_is_not_doubled(web_server: Any) -> None:
    socket_client = await web_server.open_socket(room="den")
    await socket_client.send(type="message", text="hold on", client_id="c1")
    first = await socket_client.wait_for("ack")
    await socket_client.ws.close()
    again = await web_server.open_socket(room="den")
    await again.send(type="message", text="hold on", client_id="c1")
    assert (await again.wait_for("ack"))["message_id"] == first["message_id"]
    web_server.script.released.set()
    assert (await again.wait_for("outcome"))["message_id"] == first["message_id"]
    receipts = (await web_server.get("/api/receipts"))["receipts"]
    assert [receipt["message_id"] for receipt in receipts] == [first["message_id"]]


@pytest.mark.failure("N-16")
async def test_a_message_sent_again_after_a_restart_is_not_doubled(open_server: Any) -> None:
    stores = {"Ada": InMemoryStore()}
    async with open_server(stores=stores) as web_server:
        frames = await (await web_server.open_socket()).send_message("Hello", "c1")
    async with open_server(stores=stores) as web_server:
        socket_client = await web_server.open_socket()
        again = await socket_client.send_message("Hello", "c1")
        assert kinds(again) == ["ack", "outcome"]
        assert again[0]["message_id"] == frames[0]["message_id"]
        assert len(socket_client.ready["messages"]) == 2


async def test_a_reconnecting_client_follows_its_pending_message(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    await socket_client.send(type="message", text="hold on", client_id="c1")
    ack = await socket_client.wait_for("ack")
    await socket_client.ws.close()
    again = await web_server.open_socket()
    assert again.ready["messages"][0]["outcome"]["outcome"] in ("received", "claimed")
    web_server.script.released.set()
    assert (await again.wait_for("message"))["text"] == "You said: hold on"
    assert (await again.wait_for("outcome"))["message_id"] == ack["message_id"]


async def test_another_message_with_the_same_client_id_is_refused(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    await socket_client.send_message("Hello", "c1")
    [error] = await socket_client.send_message("Bye", "c1")
    assert (error["code"], error["client_id"]) == ("idempotency_mismatch", "c1")


@pytest.mark.failure("N-14")
async def test_messages_reach_other_clients_of_the_room_only(web_server: Any) -> None:
    first, second, elsewhere = [await web_server.open_socket(room=room) for room in ("den", "den", "attic")]
    await first.send_message("Hello", "c1")
    seen = [await second.wait_for("message"), await second.wait_for("message")]
    assert [frame["text"] for frame in seen] == ["Hello", "You said: Hello"]
    assert (await second.wait_for("outcome"))["outcome"] == "answered"
    await elsewhere.send(type="nonsense")
    assert (await elsewhere.next_frame())["type"] == "error"


async def test_messages_of_the_api_are_published_to_the_room(web_server: Any) -> None:
    socket_client = await web_server.open_socket(room="den")
    await web_server.send("Hello", room="den", user="eve")
    assert (await socket_client.wait_for("message"))["author"]["name"] == "eve"
    assert (await socket_client.wait_for("message"))["author"]["name"] == "Ada"


async def test_a_second_hello_changes_the_room(open_server: Any) -> None:
    async with open_server(names=("Ada", "Bea")) as web_server:
        socket_client = await web_server.open_socket(room="den")
        await socket_client.send(type="hello", room="den", agent="Bea")
        assert (await socket_client.wait_for("ready"))["agent"]["name"] == "Bea"
        await web_server.send("Hello", room="den", agent="ada")
        frames = await socket_client.send_message("Hello", "c1")
        assert kinds(frames) == ["ack", "message", "outcome"]


@pytest.mark.failure("N-14")
@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("", "invalid_json"),
        ("[" * 100_000, "invalid_json"),
        ("[]", "invalid_request"),
        ('{"type":"hello","role":"OWNER"}', "invalid_request"),
        ('{"type":"hello","agent":"nobody"}', "not_found"),
        ('{"type":"message","text":"x","client_id":"1"}', "hello_first"),
        ('{"type":"message","text":"x","client_id":""}', "invalid_request"),
        ('{"type":"subscribe","room":"den"}', "invalid_request"),
        ('{"type":"message","text":"x","client_id":"\\ud800"}', "invalid_request"),
        ('{"type":"hello","\\ud800":1}', "invalid_request"),
    ],
    ids=lambda value: value[:30],
)
async def test_a_wrong_frame_gets_an_error_and_the_connection_stays(web_server: Any, frame: str, code: str) -> None:
    ws = await web_server.session.ws_connect(f"{web_server.origin}/api/ws", headers=web_server.bearer)
    for seq in (1, 2):
        await ws.send_str(frame)
        error_frame = await ws.receive_json()
        assert (error_frame["type"], error_frame["code"], error_frame["seq"]) == ("error", code, seq)
    await ws.send_bytes(b"{}")
    assert (await ws.receive_json())["code"] == "invalid_json"


@pytest.mark.failure("N-14")
async def test_a_frame_that_is_too_large_ends_the_connection(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    await socket_client.ws.send_str("x" * (256 * 1024 + 1))
    message = await socket_client.ws.receive()
    assert (message.type, message.data) == (WSMsgType.CLOSE, WSCloseCode.MESSAGE_TOO_BIG)


async def test_a_stopping_server_refuses_messages_as_retryable(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    web_server.runtime.agents[0].inbox.close()
    [error] = await socket_client.send_message("Hello", "c1")
    assert (error["code"], error["client_id"]) == ("stopping", "c1")


async def test_the_close_code_announces_the_end_of_the_server(open_server: Any) -> None:
    async with open_server() as web_server:
        socket_client = await web_server.open_socket()
        waiting = asyncio.create_task(socket_client.ws.receive())
        await web_server.adapter.__aexit__(None, None, None)
        message = await waiting
        assert (message.type, message.data) == (WSMsgType.CLOSE, WSCloseCode.GOING_AWAY)


@pytest.mark.failure("N-14")
async def test_the_number_of_sockets_is_limited(open_server: Any) -> None:
    async with open_server(limits=Limits(max_sockets=1)) as web_server:
        socket_client = await web_server.open_socket()
        with pytest.raises(WSServerHandshakeError) as raised:
            await web_server.open_socket()
        assert raised.value.status == 503
        await socket_client.ws.close()
        async with asyncio.timeout(30):
            while True:
                try:
                    await web_server.open_socket()
                    break
                except WSServerHandshakeError:
                    continue


async def test_a_plain_request_gets_upgrade_required(web_server: Any) -> None:
    answer = await web_server.request("GET", "/api/ws", headers=web_server.bearer)
    assert (answer.status, answer.headers["Upgrade"]) == (426, "websocket")


@pytest.mark.long
@pytest.mark.failure("N-14")
async def test_only_a_client_that_does_not_read_is_disconnected(open_server: Any) -> None:
    settings = {"CONVERSATION_LENGTH": "1"}
    async with open_server(settings=settings, limits=Limits(max_backlog_bytes=100_000)) as web_server:
        web_server.script.reply = "x" * 32_000
        sleeper = socket.socket()
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sleeper.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sleeper, ("127.0.0.1", web_server.adapter.port))
        reader, writer = await asyncio.open_connection(sock=sleeper, limit=1024)
        key = base64.b64encode(bytes(16)).decode()
        writer.write(
            f"GET /api/ws HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: {web_server.bearer['Authorization']}\r\n"
            f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        assert b"101" in await reader.readline()
        writer.write(_masked(json.dumps({"type": "hello", "room": "den"}).encode()))
        awake = await web_server.open_socket(room="den")
        for number in range(200):
            await web_server.send(f"{number}", room="den")
        received = 0
        with pytest.raises(ConnectionResetError):  # noqa: PT012  # earlier data is read first
            async with asyncio.timeout(30):
                while chunk := await reader.read(65536):
                    received += len(chunk)
                raise ConnectionResetError
        assert received < 200 * 32_000
        assert (await awake.wait_for("outcome"))["outcome"] == "answered"
        writer.close()


def _masked(text: bytes) -> bytes:
    """Return a client's text frame, masked with zeros."""
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text


async def test_a_streamed_reply_reaches_all_clients_including_late_ones(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    await socket_client.send(type="message", text="a story", client_id="c1")
    first = await socket_client.wait_for("draft")
    assert (first["text"], first["anew"]) == ("Once upon", True)
    late = await web_server.open_socket()
    seen = await late.wait_for("draft")
    assert (seen["id"], seen["text"], seen["anew"]) == (first["id"], "Once upon", True)
    web_server.script.released.set()
    for client in (socket_client, late):
        whole = await client.wait_for("message")
        assert (whole["id"], whole["text"]) == (first["id"], "Once upon a time.")
    assert (await web_server.open_socket()).ready["messages"][-1]["id"] == first["id"]


async def test_a_withdrawn_reply_is_removed(web_server: Any) -> None:
    socket_client = await web_server.open_socket()
    await socket_client.send(type="message", text="a story", client_id="c1")
    seen = await socket_client.wait_for("draft")
    web_server.script.stops_writing = True
    web_server.script.released.set()
    gone = await socket_client.wait_for("draft")
    assert (gone["id"], gone["text"], gone["anew"]) == (seen["id"], "", True)
    assert (await socket_client.wait_for("outcome"))["outcome"] == "ignored"


def test_pieces_of_a_draft_are_joined_while_they_wait() -> None:
    queue = FrameQueue(lambda frame: frame.model_dump_json(by_alias=True), 100)
    first, second = uuid4(), uuid4()
    queue.add(DraftFrame(id=first, text="Once", is_reset=True))
    queue.add(DraftFrame(id=second, text="Other", is_reset=True))
    queue.add(TypingFrame(active=True))
    queue.add(DraftFrame(id=first, text=" upon a time", is_reset=False))
    frames = [json.loads(queue.take()) for _ in range(3)]
    assert [(frame["seq"], frame.get("text"), frame.get("anew")) for frame in frames] == [
        (1, "Once upon a time", True),
        (2, "Other", True),
        (3, None, None),
    ]
    queue.add(DraftFrame(id=first, text=" in a wood", is_reset=False))
    assert not queue.is_full
    queue.add(DraftFrame(id=first, text="x" * 200, is_reset=False))
    assert queue.is_full
    queue.add(DraftFrame(id=first, text="", is_reset=True))
    assert not queue.is_full
    assert json.loads(queue.take()) == {"seq": 4, "type": "draft", "id": str(first), "text": "", "anew": True}
    assert not queue
