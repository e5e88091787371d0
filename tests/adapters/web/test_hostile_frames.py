"""Protocol violations of WebSocket clients close only their own connection and use no memory."""

import asyncio
import json
import struct
from typing import Any

import pytest
from aiohttp import WSCloseCode

from adapters.web.config import Limits
from tests.adapters.web.conftest import TOKEN, RunningServer, ServerFactory, narrow_connection, send_endlessly

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
