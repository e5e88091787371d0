"""Conversations over WebSockets, also with hostile clients."""

import asyncio
import base64
import json
import socket
import struct
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import WSCloseCode, WSMsgType, WSServerHandshakeError
from jsonschema import Draft202012Validator

from adapters.web.config import Limits
from adapters.web.frames import DraftFrame, FrameQueue, TypingFrame
from bot.events import ControlMessage
from bot.store import InMemoryStore
from bot.text import strip_terminal_codes
from tests.adapters.web.conftest import TOKEN, RunningServer, ServerFactory, narrow_connection, send_endlessly
from tests.adapters.web.test_live import open_topics
from tests.adapters.web.test_receipts import propose


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


async def test_drafts_are_counted_and_listed_with_their_author_in_every_state(open_server: ServerFactory) -> None:
    async with open_server(settings={"APPROVAL": "all"}) as server:
        draft = await propose(server)
        await propose(server, "Hello again")
        await server.post(f"/api/drafts/{draft['id']}/drop", {}, 409)  # the newer answer has replaced it
        listed = await server.get("/api/drafts?state=all&limit=1")
        assert (listed["waiting"], listed["drafts"][0]["question"]) == (1, "Hello again")
        assert listed["drafts"][0]["author"]
        states = [item["state"] for item in (await server.get("/api/drafts?state=all"))["drafts"]]
        assert states == ["replaced", "waiting"]


async def test_take_overs_are_listed_with_the_names_of_room_and_person(web_server: Any) -> None:
    answer = await web_server.send("Hello", room="porch", user="Kim")
    [message, _] = (await web_server.get(f"/api/rooms/{answer['room_id']}/messages"))["messages"]
    path, person_id = f"/api/rooms/{answer['room_id']}", message["author"]["id"]
    await web_server.post(f"{path}/take-over", {"name": "Mia", "person": person_id})
    [held] = (await web_server.get("/api/take-overs"))["take_overs"]
    assert (held["name"], held["room"], held["platform"], held["person"]) == ("Mia", "porch", "web", "Kim")
    await web_server.post(f"{path}/give-back", {})
    assert (await web_server.get("/api/take-overs"))["take_overs"] == []


async def test_receipts_of_filtered_texts_are_found_without_the_text_that_was_stopped(
    open_server: ServerFactory,
) -> None:
    async with open_server(settings={"FILTER_WORDS": "gruesome"}) as server:
        await server.send("a gruesome thing", room="porch")
        await server.send("a nice thing", room="porch")
        [found] = (await server.get("/api/receipts?filtered=true"))["receipts"]
        assert (found["rule"], "WORDS" in found["reason"]) == ("filter", True)
        assert "gruesome" not in str(found)
    async with open_server(settings={"FILTER_WORDS": "gruesome", "FILTER_WORDS_ACTION": "replace"}) as server:
        await server.send("a gruesome thing", room="porch")
        [found] = (await server.get("/api/receipts?filtered=true"))["receipts"]
        assert any(note.startswith("filter WORDS replaced") for note in found["notes"])
        assert (await server.get("/api/receipts?degraded=true"))["receipts"] == []


async def test_a_subscriber_receives_each_state_of_a_draft(open_server: ServerFactory) -> None:
    async with open_server(settings={"APPROVAL": "all"}) as server:
        client = await open_topics(server, {"kind": "proposal"})
        draft = await propose(server)
        frame = await client.next_frame()
        assert (frame["type"], frame["id"], frame["state"]) == ("proposal", draft["id"], "waiting")
        await server.post(f"/api/drafts/{draft['id']}/edit", {"text": "Good day"})
        frame = await client.next_frame()
        assert (frame["state"], frame["revision"]) == ("waiting", 2)
        await server.post(f"/api/drafts/{draft['id']}/drop", {})
        assert (await client.next_frame())["state"] == "dropped"


KEY = b"AAAAAAAAAAAAAAAAAAAAAA=="
TEXT, GOING_ON, CLOSE, PING = 0x1, 0x0, 0x8, 0x9
Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def handshake(web_server: RunningServer, *, key: bytes = KEY, version: bytes = b"13") -> tuple[bytes, Pipe]:
    """Send a handshake by hand; return the response and the connection."""
    reader, writer = await narrow_connection(web_server.adapter.port)
    writer.write(
        b"GET /api/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        + f"Authorization: Bearer {TOKEN}\r\n".encode()
        + b"Sec-WebSocket-Version: %b\r\nSec-WebSocket-Key: %b\r\n\r\n" % (version, key)
    )
    async with asyncio.timeout(30):
        return await reader.readuntil(b"\r\n\r\n"), (reader, writer)


def frame(kind: int, data: bytes = b"", *, is_last: bool = True, claims: int | None = None) -> bytes:
    """Return a frame masked with zeros; `claims` is a false length."""
    size = len(data) if claims is None else claims
    first = bytes([(0x80 if is_last else 0) | kind])
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 1 << 16:
        length = b"\xfe" + struct.pack(">H", size)
    else:
        length = b"\xff" + struct.pack(">Q", size)
    return first + length + bytes(4) + data


TOO_BIG, PROTOCOL = WSCloseCode.MESSAGE_TOO_BIG, WSCloseCode.PROTOCOL_ERROR
PIECE = b"x" * 60_000
HOSTILE = {
    "a gigabyte": (frame(TEXT, b"x", claims=1 << 30), TOO_BIG),
    "all that 64 bits hold": (frame(TEXT, b"x", claims=(1 << 64) - 1), TOO_BIG),
    "too many pieces": (frame(TEXT, PIECE, is_last=False) + frame(GOING_ON, PIECE, is_last=False) * 4, TOO_BIG),
    "no text": (frame(TEXT, b"\xff\xfe"), WSCloseCode.INVALID_TEXT),
    "nothing to go on with": (frame(GOING_ON, b"x"), PROTOCOL),
    "a long ping": (frame(PING, b"x" * 126), PROTOCOL),
    "half a ping": (frame(PING, b"x", is_last=False), PROTOCOL),
    "half a close": (frame(CLOSE, b"\x00"), PROTOCOL),
    "packed, which was not agreed on": (frame(0x40 | TEXT, b"x"), PROTOCOL),
    "no such kind": (frame(0x3, b"x"), PROTOCOL),
}


@pytest.mark.failure("N-14")
async def test_a_hostile_frame_closes_only_its_own_connection(web_server: RunningServer) -> None:
    socket_client = await web_server.open_socket()
    for name, (sent, code) in HOSTILE.items():
        answer, (reader, writer) = await handshake(web_server)
        assert b"101" in answer
        writer.write(sent)
        async with asyncio.timeout(30):
            assert await reader.readexactly(4) == bytes([0x88, 2]) + struct.pack(">H", code), name
        writer.close()
    assert (await socket_client.send_message("Hello", "c1"))[-1]["type"] == "outcome"


@pytest.mark.failure("N-14")
async def test_an_invalid_handshake_gets_upgrade_required(
    web_server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    for key, version in ((b"\xff\xfe", b"13"), (b"short", b"13"), (KEY, b"99"), (b"", b"")):
        answer, (_, writer) = await handshake(web_server, key=key, version=version)
        assert b" 426 " in answer
        writer.close()
    assert "Traceback" not in caplog.text


@pytest.mark.failure("N-14")
async def test_a_flood_of_pings_without_reading_is_disconnected(open_server: ServerFactory) -> None:
    async with open_server(limits=Limits(write_seconds=0.2)) as web_server:
        _, (_, writer) = await handshake(web_server)
        async with asyncio.timeout(120):
            with pytest.raises(ConnectionError):
                await send_endlessly(writer, frame(PING, b"x" * 125) * 1000)
        writer.transport.abort()
        await web_server.open_socket()


@pytest.mark.failure("N-14")
async def test_a_client_can_join_only_web_rooms(open_server: Any) -> None:
    async with open_server(names=("Ada", "Bea")) as web_server:
        outcome = await web_server.send("a secret of Bea's", agent="bea", room="den")
        for room in (outcome["room_id"], f"web:{outcome['room_id']}", "den"):
            socket_client = await web_server.open_socket(room=room, agent="Ada")
            assert socket_client.ready["messages"] == []
            assert socket_client.ready["room_id"] != outcome["room_id"]
        assert "secret" not in json.dumps(socket_client.ready)


SCRIPTS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<style>@import'//evil.example'</style>",
    "<base href=//evil.example/>",
    "<form action=//evil.example><button>",
    "<a href=javascript:alert(1)>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
)
ADDRESSES = (
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "file:///etc/passwd",
    "//evil.example",
    'https://a.example/"onmouseover=alert(1)',
    "https://a.example/'><script>alert(1)</script>",
    "http://[::1",
    "https://",
    "https://javascript:alert(1)@a.example",
)
AROUND = ("{}", "`{}`", "```\n{}\n```", "```html\n{}", "[{}]({})", "![x]({})", "<{}>", "**{}**", "\u202e{}", "{}\0")
WORDS = [frame.replace("{}", text) for frame, text in product(AROUND, (*SCRIPTS, *ADDRESSES))]


@pytest.mark.failure("N-12")
async def test_names_and_messages_are_served_unchanged_as_json(web_server: Any) -> None:
    for words in SCRIPTS:
        answer = await web_server.request(
            "POST",
            "/api/agents/ada/messages",
            headers=web_server.bearer,
            json={"text": words, "user": words[:64], "room": words},
        )
        assert (await answer.json())["room"] == words
        path = f"/api/rooms/{(await answer.json())['room_id']}/messages"
        listed = await web_server.request("GET", path, headers=web_server.bearer)
        assert [message["text"] for message in (await listed.json())["messages"]] == [words, f"You said: {words}"]
        for served in (answer, listed):
            assert served.content_type == "application/json"
            assert served.headers["X-Content-Type-Options"] == "nosniff"
            assert "script-src 'self'" in served.headers["Content-Security-Policy"]


@pytest.mark.failure("N-12")
@pytest.mark.parametrize(
    "words",
    [
        "\x1b[31mred",
        "\x1b]0;title\x07",
        "\x1b]8;;http://evil.example\x1b\\link",
        "\x9b2J",
        "\x1bP1$r\x1b\\",
        "a\rb",
        "a\nERROR forged",
        "\u202eevil",
        "\x08\x08\x08ok",
    ],
)
def test_logged_text_cannot_control_the_terminal(words: str) -> None:
    shown = strip_terminal_codes(words)
    assert shown.isprintable()
    assert "\x1b" not in shown
