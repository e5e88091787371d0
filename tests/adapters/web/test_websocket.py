import asyncio
import base64
import json
import socket
from typing import Any

import pytest
from aiohttp import WSCloseCode, WSMsgType, WSServerHandshakeError
from jsonschema import Draft202012Validator

from adapters.web.config import Limits
from bot.store.inmemory import InMemoryStore


def kinds(frames: list[dict[str, Any]]) -> list[str]:
    """The types of frames, without typing frames."""
    return [frame["type"] for frame in frames if frame["type"] != "typing"]


async def test_a_conversation_from_hello_to_outcome(house: Any) -> None:
    talker = await house.open_socket(room="den", user="eve")
    ready = talker.ready
    assert (ready["agent"]["name"], ready["room"], ready["messages"]) == ("Ada", "den", [])
    assert (ready["user"]["name"], ready["user"]["is_agent"]) == ("eve", False)
    frames = await talker.send_message("Hello", "c1")
    assert kinds(frames) == ["ack", "message", "outcome"]
    ack, reply, outcome = (frame for frame in frames if frame["type"] != "typing")
    assert frames[0] == ack
    assert ack["client_id"] == "c1"
    assert (reply["text"], reply["author"]["name"]) == ("You said: Hello", "Ada")
    assert reply["in_reply_to"] == outcome["message_id"] == ack["message_id"]
    assert outcome["outcome"] == "answered"


async def test_every_frame_matches_the_schema(house: Any) -> None:
    described = await house.get("/api/openapi.json")
    schema = {
        "$ref": "#/components/schemas/ServerFrame",
        "components": described["components"],
    }
    talker = await house.open_socket()
    for text in ("Hello", "silence", "refuse"):
        for frame in await talker.send_message(text, text):
            Draft202012Validator(schema).validate(frame)
    await talker.send(type="nonsense")
    Draft202012Validator(schema).validate(await talker.wait_for("error"))
    Draft202012Validator(schema).validate(talker.ready)


async def test_the_typing_indicator_is_shown_during_a_turn(house: Any) -> None:
    talker = await house.open_socket()
    await talker.send(type="message", text="hold on", client_id="c1")
    assert [(await talker.next_frame())["type"] for _ in range(2)] == ["ack", "typing"]
    late = await house.open_socket()
    assert late.ready["is_typing"] is True
    house.script.released.set()
    assert (await late.wait_for("typing"))["active"] is False


async def test_a_reconnecting_client_gets_the_history_with_outcomes(house: Any) -> None:
    talker = await house.open_socket(room="den")
    await talker.send_message("Hello", "c1")
    await talker.send_message("silence now", "c2")
    await talker.ws.close()
    again = await house.open_socket(room="den")
    told = [(one["text"], one["outcome"] and one["outcome"]["outcome"]) for one in again.ready["messages"]]
    assert told == [("Hello", "answered"), ("You said: Hello", None), ("silence now", "ignored")]


async def test_n16_a_message_sent_again_after_a_reconnect_is_not_doubled(house: Any) -> None:
    talker = await house.open_socket(room="den")
    await talker.send(type="message", text="hold on", client_id="c1")
    first = await talker.wait_for("ack")
    await talker.ws.close()
    again = await house.open_socket(room="den")
    await again.send(type="message", text="hold on", client_id="c1")
    assert (await again.wait_for("ack"))["message_id"] == first["message_id"]
    house.script.released.set()
    assert (await again.wait_for("outcome"))["message_id"] == first["message_id"]
    receipts = (await house.get("/api/receipts"))["receipts"]
    assert [one["message_id"] for one in receipts] == [first["message_id"]]


async def test_n16_a_message_sent_again_after_a_restart_is_not_doubled(open_house: Any) -> None:
    stores = {"Ada": InMemoryStore()}
    async with open_house(stores=stores) as house:
        frames = await (await house.open_socket()).send_message("Hello", "c1")
    async with open_house(stores=stores) as house:
        talker = await house.open_socket()
        again = await talker.send_message("Hello", "c1")
        assert kinds(again) == ["ack", "outcome"]
        assert again[0]["message_id"] == frames[0]["message_id"]
        assert len(talker.ready["messages"]) == 2


async def test_a_reconnecting_client_follows_its_pending_message(house: Any) -> None:
    talker = await house.open_socket()
    await talker.send(type="message", text="hold on", client_id="c1")
    ack = await talker.wait_for("ack")
    await talker.ws.close()
    again = await house.open_socket()
    assert again.ready["messages"][0]["outcome"]["outcome"] in ("received", "claimed")
    house.script.released.set()
    assert (await again.wait_for("message"))["text"] == "You said: hold on"
    assert (await again.wait_for("outcome"))["message_id"] == ack["message_id"]


async def test_another_message_with_the_same_client_id_is_refused(house: Any) -> None:
    talker = await house.open_socket()
    await talker.send_message("Hello", "c1")
    [error] = await talker.send_message("Bye", "c1")
    assert (error["code"], error["client_id"]) == ("idempotency_mismatch", "c1")


async def test_n14_messages_reach_other_clients_of_the_room_only(house: Any) -> None:
    one, two, elsewhere = [await house.open_socket(room=room) for room in ("den", "den", "attic")]
    await one.send_message("Hello", "c1")
    seen = [await two.wait_for("message"), await two.wait_for("message")]
    assert [frame["text"] for frame in seen] == ["Hello", "You said: Hello"]
    assert (await two.wait_for("outcome"))["outcome"] == "answered"
    await elsewhere.send(type="nonsense")
    assert (await elsewhere.next_frame())["type"] == "error"


async def test_messages_of_the_api_are_published_to_the_room(house: Any) -> None:
    talker = await house.open_socket(room="den")
    await house.send("Hello", room="den", user="eve")
    assert (await talker.wait_for("message"))["author"]["name"] == "eve"
    assert (await talker.wait_for("message"))["author"]["name"] == "Ada"


async def test_a_second_hello_changes_the_room(open_house: Any) -> None:
    async with open_house(names=("Ada", "Bea")) as house:
        talker = await house.open_socket(room="den")
        await talker.send(type="hello", room="den", agent="Bea")
        assert (await talker.wait_for("ready"))["agent"]["name"] == "Bea"
        await house.send("Hello", room="den", agent="ada")
        frames = await talker.send_message("Hello", "c1")
        assert kinds(frames) == ["ack", "message", "outcome"]


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
async def test_n14_a_wrong_frame_gets_an_error_and_the_connection_stays(
    house: Any, frame: str, code: str
) -> None:
    ws = await house.session.ws_connect(f"{house.origin}/api/ws", headers=house.bearer)
    for seq in (1, 2):
        await ws.send_str(frame)
        told = await ws.receive_json()
        assert (told["type"], told["code"], told["seq"]) == ("error", code, seq)
    await ws.send_bytes(b"{}")
    assert (await ws.receive_json())["code"] == "invalid_json"


async def test_n14_a_frame_that_is_too_large_ends_the_connection(house: Any) -> None:
    talker = await house.open_socket()
    await talker.ws.send_str("x" * (256 * 1024 + 1))
    message = await talker.ws.receive()
    assert (message.type, message.data) == (WSMsgType.CLOSE, WSCloseCode.MESSAGE_TOO_BIG)


async def test_a_stopping_server_refuses_messages_as_retryable(house: Any) -> None:
    talker = await house.open_socket()
    house.runtime.agents[0].inbox.close()
    [error] = await talker.send_message("Hello", "c1")
    assert (error["code"], error["client_id"]) == ("stopping", "c1")


async def test_the_close_code_announces_the_end_of_the_server(open_house: Any) -> None:
    async with open_house() as house:
        talker = await house.open_socket()
        waiting = asyncio.create_task(talker.ws.receive())
        await house.adapter.__aexit__(None, None, None)
        message = await waiting
        assert (message.type, message.data) == (WSMsgType.CLOSE, WSCloseCode.GOING_AWAY)


async def test_n14_the_number_of_sockets_is_limited(open_house: Any) -> None:
    async with open_house(limits=Limits(max_sockets=1)) as house:
        talker = await house.open_socket()
        with pytest.raises(WSServerHandshakeError) as raised:
            await house.open_socket()
        assert raised.value.status == 503
        await talker.ws.close()
        async with asyncio.timeout(30):
            while True:
                try:
                    await house.open_socket()
                    break
                except WSServerHandshakeError:
                    continue


async def test_a_plain_request_gets_upgrade_required(house: Any) -> None:
    answer = await house.request("GET", "/api/ws", headers=house.bearer)
    assert (answer.status, answer.headers["Upgrade"]) == (426, "websocket")


async def test_n14_only_a_client_that_does_not_read_is_disconnected(open_house: Any) -> None:
    settings = {"CONVERSATION_LENGTH": "1"}
    async with open_house(settings=settings, limits=Limits(max_backlog_bytes=100_000)) as house:
        house.script.reply = "x" * 32_000
        sleeper = socket.socket()
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sleeper.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sleeper, ("127.0.0.1", house.adapter.port))
        reader, writer = await asyncio.open_connection(sock=sleeper, limit=1024)
        key = base64.b64encode(bytes(16)).decode()
        writer.write(
            f"GET /api/ws HTTP/1.1\r\nHost: localhost\r\nAuthorization: {house.bearer['Authorization']}\r\n"
            f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        assert b"101" in await reader.readline()
        writer.write(_masked(json.dumps({"type": "hello", "room": "den"}).encode()))
        awake = await house.open_socket(room="den")
        for number in range(200):
            await house.send(f"{number}", room="den")
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


async def test_a_streamed_reply_reaches_all_clients_including_late_ones(
    house: Any,
) -> None:
    talker = await house.open_socket()
    await talker.send(type="message", text="a story", client_id="c1")
    first = await talker.wait_for("draft")
    assert (first["text"], first["anew"]) == ("Once upon", True)
    late = await house.open_socket()
    seen = await late.wait_for("draft")
    assert (seen["id"], seen["text"], seen["anew"]) == (first["id"], "Once upon", True)
    house.script.released.set()
    for one in (talker, late):
        whole = await one.wait_for("message")
        assert (whole["id"], whole["text"]) == (first["id"], "Once upon a time.")
    assert (await house.open_socket()).ready["messages"][-1]["id"] == first["id"]


async def test_a_withdrawn_reply_is_removed(house: Any) -> None:
    talker = await house.open_socket()
    await talker.send(type="message", text="a story", client_id="c1")
    seen = await talker.wait_for("draft")
    house.script.stops_writing = True
    house.script.released.set()
    gone = await talker.wait_for("draft")
    assert (gone["id"], gone["text"], gone["anew"]) == (seen["id"], "", True)
    assert (await talker.wait_for("outcome"))["outcome"] == "ignored"
