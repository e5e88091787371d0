import asyncio
import errno
import socket
from typing import Any

import pytest
from aiohttp import ClientError

from adapters.web.adapter import WebAdapter
from adapters.web.config import Limits, WebSettings
from adapters.web.server import _explain_error
from bot import SettingError


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
    assert words in _explain_error(OSError(number, "no"), "::1", 80)


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


@pytest.mark.failure("N-09")
async def test_the_number_of_connections_is_limited(open_server: Any) -> None:
    async with open_server(limits=Limits(max_connections=2)) as web_server:
        held = [await connect(web_server.adapter.port) for _ in range(2)]
        for reader, writer in held:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" in await reader.readline()
        reader, writer = await connect(web_server.adapter.port)
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        for _, one in [*held, (reader, writer)]:
            one.close()


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
