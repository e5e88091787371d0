import asyncio
import contextlib
import errno
import socket
from typing import Any

import pytest
from aiohttp import ClientError

from adapters.web.adapter import WebAdapter
from adapters.web.config import Limits, WebSettings
from bot import Agent, Plugin, RouteRequest, RouteResponse, SettingError, route
from bot.http_server import _explain_error
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
