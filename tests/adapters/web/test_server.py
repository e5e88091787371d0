"""The server: start, stop, connections."""

import asyncio
import contextlib
import errno
import json
import logging
import socket
from typing import Any

import pytest
from aiohttp import ClientError

from adapters.web.adapter import WebAdapter
from adapters.web.config import Limits, WebSettings
from bot import Agent, Plugin, RouteRequest, RouteResponse, SettingError, route
from bot.http_server import _explain_error
from tests.adapters.web.conftest import TOKEN, ServerFactory, narrow_connection, send_endlessly
from tests.ports import free_port


def settings_at(host: str, port: int) -> WebAdapter:
    return WebAdapter([], WebSettings(SERVER_HOST=host, SERVER_PORT=port), "a-token/for tests")


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def test_a_port_in_use_is_reported_with_advice() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=rf"SERVER_PORT {port} is in use.*SERVER_PORT=\d+, or 0 for any"):
            async with settings_at("127.0.0.1", port):
                pass


async def test_a_start_that_is_cancelled_at_any_moment_leaves_the_port_free() -> None:
    port, is_started = free_port(), False
    for steps in range(100):

        async def start() -> None:
            nonlocal is_started
            async with settings_at("127.0.0.1", port):
                is_started = True

        task = asyncio.create_task(start())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        socket.create_server(("127.0.0.1", port)).close()
        if is_started:
            break
    assert is_started


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_a_foreign_address_is_reported(host: str) -> None:
    with pytest.raises(SettingError, match="SERVER_HOST"):
        async with settings_at(host, 0):
            pass


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "choose one above 1023"),
        (errno.EAFNOSUPPORT, "use 127.0.0.1"),
        (errno.EMFILE, "listening there fails"),
    ],
)
def test_other_causes_are_reported(number: int, words: str) -> None:
    assert words in _explain_error(OSError(number, "no"), "::1", 80, "SERVER")


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("localhost", "localhost")]
)
async def test_the_url_contains_port_and_token(host: str, shown: str) -> None:
    async with settings_at(host, 0) as adapter:
        assert adapter.port > 0
        assert adapter.url == f"http://{shown}:{adapter.port}/?token=a-token%2Ffor%20tests"


@pytest.mark.failure("N-09")
async def test_slow_headers_time_out(open_server: Any) -> None:
    async with open_server(limits=Limits(header_seconds=0.1)) as web_server:
        reader, writer = await connect(web_server.adapter.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.failure("N-09")
async def test_a_slow_body_times_out(open_server: Any) -> None:
    async with open_server(limits=Limits(body_seconds=0.1)) as web_server:
        reader, writer = await connect(web_server.adapter.port)
        writer.write(
            b"POST /api/agents/ada/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
            b"Content-Type: application/json\r\nAuthorization: Bearer a-token-for-tests\r\n\r\n{"
        )
        async with asyncio.timeout(30):
            assert b"408" in await reader.readline()
        writer.close()


async def request(port: int, path: str = "/healthz", header: str = "") -> tuple[bytes, asyncio.StreamWriter]:
    """Request a path on a new connection; return the status line and the writer, which stays open."""
    reader, writer = await connect(port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
    async with asyncio.timeout(30):
        return await reader.readline(), writer


@pytest.mark.failure("N-09")
async def test_connections_with_the_token_are_limited_and_leave_room_for_others(open_server: Any) -> None:
    bearer = "Authorization: Bearer a-token-for-tests\r\n"
    async with open_server(limits=Limits(max_connections=2)) as web_server:
        port = web_server.adapter.port
        held = [await request(port, "/api/agents", bearer) for _ in range(3)]
        assert [b" 200 " in status for status, _ in held] == [True, True, False]
        assert b" 503 " in held[2][0]
        status, writer = await request(port)
        assert b" 200 " in status
        for _, connection in [*held, (status, writer)]:
            connection.close()


@pytest.mark.long
@pytest.mark.failure("N-09")
async def test_idle_connections_of_a_client_keep_out_neither_the_health_check_nor_the_token(open_server: Any) -> None:
    async with open_server() as web_server:
        idle = [await connect(web_server.adapter.port) for _ in range(400)]
        status, writer = await request(web_server.adapter.port)
        assert b" 200 " in status
        await web_server.get("/api/agents")
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionError):
                assert await idle[0][0].read() == b""
        for _, connection in [*idle, (status, writer)]:
            connection.close()


@pytest.mark.failure("N-09")
async def test_idle_connections_behind_a_proxy_do_not_keep_out_the_health_check(open_server: Any) -> None:
    limits = Limits(max_anonymous_connections=3, max_client_connections=1)
    async with open_server(settings={"SERVER_TRUSTED_PROXIES": "127.0.0.1"}, limits=limits) as web_server:
        idle = [await connect(web_server.adapter.port) for _ in range(5)]
        status, writer = await request(web_server.adapter.port)
        assert b" 200 " in status
        assert [reader.at_eof() or reader.exception() is not None for reader, _ in idle] == [True] * 3 + [False] * 2
        for _, connection in [*idle, (status, writer)]:
            connection.close()


@pytest.mark.failure("N-09")
async def test_running_public_requests_are_limited_and_keep_their_connections(open_server: Any) -> None:
    started, released = asyncio.Semaphore(0), asyncio.Event()

    @route("GET", "/wait", public=True)
    async def wait(agent: Agent, request: RouteRequest) -> RouteResponse:
        started.release()
        await released.wait()
        return RouteResponse(text="done")

    limits = Limits(max_anonymous_connections=3, max_public_requests=2)
    async with open_server(Plugin("tick", routes=[wait]), limits=limits) as web_server:
        port = web_server.adapter.port
        waiting = [asyncio.create_task(request(port, "/plugins/tick/wait")) for _ in range(2)]
        for _ in waiting:
            await started.acquire()
        third, third_writer = await request(port, "/plugins/tick/wait")
        assert b" 503 " in third
        status, writer = await request(port)
        assert b" 200 " in status
        released.set()
        for status, connection in await asyncio.gather(*waiting):
            assert b" 200 " in status
            connection.close()
        writer.close()
        third_writer.close()


async def test_leaving_cancels_waiting_requests_and_accepts_no_more(open_server: Any) -> None:
    async with open_server() as web_server:
        say = web_server.request(
            "POST", "/api/agents/ada/messages", headers=web_server.bearer, json={"text": "hold on"}
        )
        waiting = asyncio.create_task(say)
        await web_server.script.requested.acquire()
        async with asyncio.timeout(30):
            await web_server.adapter.__aexit__(None, None, None)
            with pytest.raises(ClientError):
                await waiting
        with pytest.raises(OSError, match=r"refused|Connect"):
            await connect(web_server.adapter.port)
        web_server.script.released.set()


HOST = b"Host: localhost\r\n"
BEARER = f"Authorization: Bearer {TOKEN}\r\n".encode()
SAY = b"POST /api/agents/ada/messages HTTP/1.1\r\n" + HOST + BEARER + b"Content-Type: application/json\r\n"


async def exchange(port: int, request: bytes) -> tuple[bytes, dict[str, str], bytes]:
    """Send these bytes; return status line, headers and body of the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(60):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            status, *lines = head.decode().splitlines()
            headers = dict(line.split(": ", 1) for line in lines if line)
            body = await reader.readexactly(int(headers.get("Content-Length", "0")))
    finally:
        writer.close()
    return status.encode(), headers, body


MALFORMED = {
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "method": b"F\x00O / HTTP/1.1\r\n" + HOST + b"\r\n",
    "line feeds": b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
    "address": b"GET http://[::1/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "raw bytes in the address": b"GET /api/rooms?agent=\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n",
    "long address": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "long header": b"GET /healthz HTTP/1.1\r\n" + HOST + b"A: " + b"x" * 20_000 + b"\r\n\r\n",
    "long cookie": b"GET /healthz HTTP/1.1\r\n" + HOST + b"Cookie: " + b"a=b;" * 5000 + b"\r\n\r\n",
    "many headers": b"GET /healthz HTTP/1.1\r\n" + b"".join(b"H%d: x\r\n" % n for n in range(500)) + b"\r\n",
    "two hosts": b"GET /healthz HTTP/1.1\r\n" + HOST + b"Host: evil.example\r\n\r\n",
    "folded": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
    "two lengths": SAY + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    "length and chunks": SAY + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "negative length": SAY + b"Content-Length: -1\r\n\r\n",
    "length without end": SAY + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "chunk": SAY + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
}


@pytest.mark.failure("N-09", "N-18")
async def test_invalid_http_gets_a_json_error_and_no_traceback(
    web_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for name, request in MALFORMED.items():
        status, headers, body = await exchange(web_server.adapter.port, request)
        error = json.loads(body)["error"]
        assert b" 400 " in status, name
        assert error["code"] in ("bad_request", "invalid_json"), name
        assert error["request_id"] == headers["X-Request-Id"], name
        assert headers["Server"] == "greenroom", name
        assert headers["X-Content-Type-Options"] == "nosniff", name
        assert "default-src 'none'" in headers["Content-Security-Policy"], name
    await web_server.get("/api/agents")
    assert "Traceback" not in caplog.text


@pytest.mark.failure("N-13")
async def test_the_log_of_a_malformed_request_contains_nothing_of_it(
    web_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name, line in {
        "value": f"Authorization: Bearer {TOKEN}\x01\r\n",
        "name": f"Authorization Bearer {TOKEN}\r\n",
        "cookie": f"Cookie: greenroom-1={TOKEN}\x00\r\n",
        "query": f"A: b\r\n\r\nGET /?token={TOKEN} HTTP/9\r\n",
    }.items():
        status, _, body = await exchange(
            web_server.adapter.port, b"GET /api/agents HTTP/1.1\r\n" + HOST + line.encode() + b"\r\n"
        )
        assert b" 40" in status, name
        assert TOKEN.encode() not in body, name
    assert "a request was not HTTP" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.failure("N-18")
async def test_an_unsupported_expect_header_gets_a_json_error(web_server: Any) -> None:
    request = b"GET /api/agents HTTP/1.1\r\n" + HOST + b"Expect: <script>\r\n\r\n"
    status, headers, body = await exchange(web_server.adapter.port, request)
    error = json.loads(body)["error"]
    assert b" 417 " in status
    assert (error["code"], error["request_id"]) == ("expectation_failed", headers["X-Request-Id"])
    assert b"script" not in body


@pytest.mark.long
@pytest.mark.failure("N-09")
async def test_a_client_that_never_reads_is_disconnected(open_server: ServerFactory) -> None:
    async with open_server(
        limits=Limits(write_seconds=0.2, max_guesses=1_000_000, max_total_guesses=1_000_000)
    ) as web_server:
        _, writer = await narrow_connection(web_server.adapter.port)
        asking = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200
        async with asyncio.timeout(120):
            with pytest.raises(ConnectionError):
                await send_endlessly(writer, asking)
        writer.transport.abort()
        await web_server.get("/api/agents")


@pytest.mark.failure("N-09")
async def test_a_slow_reader_gets_the_whole_response(open_server: ServerFactory) -> None:
    async with open_server(limits=Limits(write_seconds=60)) as web_server:
        web_server.script.reply = "x" * 30_000
        for number in range(5):
            outcome = await web_server.send(str(number), room="den")
        answer = await web_server.request(
            "GET", f"/api/rooms/{outcome['room_id']}/messages?limit=200", headers=web_server.bearer
        )
        whole = bytearray()
        while piece := await answer.content.read(10_000):
            whole += piece
            await asyncio.sleep(0)
        assert len(json.loads(whole)["messages"]) == 10


@pytest.mark.failure("N-09")
@pytest.mark.parametrize(
    "body",
    [
        b"".join(b"1\r\n%c\r\n" % byte for byte in b'{"text":"' + b"x" * 50_000 + b'"}') + b"0\r\n\r\n",
        b"5;" + b"e" * 7000 + b"\r\n" + b'{"tex' + b'\r\n4\r\nt":1\r\n1\r\n}\r\n0\r\n\r\n',
    ],
    ids=["a chunk a byte", "long extension"],
)
async def test_a_body_in_irregular_chunks_is_accepted(web_server: Any, body: bytes) -> None:
    status, _, body_text = await exchange(web_server.adapter.port, SAY + b"Transfer-Encoding: chunked\r\n\r\n" + body)
    assert b" 200 " in status or b" 422 " in status, body_text


@pytest.mark.failure("N-09")
async def test_a_huge_form_is_refused_without_parsing(web_server: Any) -> None:
    form = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n" * 100_000
    head = SAY.replace(b"application/json", b"multipart/form-data; boundary=x")
    status, _, body = await exchange(
        web_server.adapter.port, head + b"Content-Length: %d\r\n\r\n" % len(form) + form[:100_000]
    )
    assert b" 415 " in status
    assert json.loads(body)["error"]["code"] == "unsupported_media_type"
