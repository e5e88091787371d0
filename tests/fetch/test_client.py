import asyncio
import gzip
import io
import socket
import ssl
import wave
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from bot.errors import FetchError, SettingError
from bot.fetch.client import Fetcher, _AddressGuard, build_tls_context
from bot.fetch.response import FetchedBody, sniff_media_type

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
HERE = "127.0.0.1"
NOT_HERE = "127.0.0.2"  # also this machine, but in no allowed network

# Self-signed for files.example until 2120; it guards nothing.
CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRqQMlEhhfCf+CLYH
sY2ScGTfyYMGUbFTERUg6pxCcW6hRANCAASCb6VUXSLxWa0Jh1Uv/1cCThWsP4O/
jvbToG2OZh0fYEn78dgkUV9M+NakagYiXDzPXfEU071pq7ltTA/pNYs1
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBqTCCAU+gAwIBAgIUBZNS7rdbClM/qfvupzr/HPA9R28wCgYIKoZIzj0EAwIw
GjEYMBYGA1UEAwwPR3JlZW5yb29tIHRlc3RzMCAXDTIwMDEwMTAwMDAwMFoYDzIx
MjAwMTAxMDAwMDAwWjAaMRgwFgYDVQQDDA9HcmVlbnJvb20gdGVzdHMwWTATBgcq
hkjOPQIBBggqhkjOPQMBBwNCAASCb6VUXSLxWa0Jh1Uv/1cCThWsP4O/jvbToG2O
Zh0fYEn78dgkUV9M+NakagYiXDzPXfEU071pq7ltTA/pNYs1o3EwbzAPBgNVHRMB
Af8EBTADAQH/MA4GA1UdDwEB/wQEAwIChDATBgNVHSUEDDAKBggrBgEFBQcDATAd
BgNVHQ4EFgQUTz/qsSGpZ8vBu/WHsE2Cqll65H4wGAYDVR0RBBEwD4INZmlsZXMu
ZXhhbXBsZTAKBggqhkjOPQQDAgNIADBFAiEAzNUjR7cMhmw+kIszM0n5qrogQ8zW
0QIep5C+Luq74pICIC8Vz2+2KlOqkmUUoApnfF531cdZQ38CEPeB4dNTziVC
-----END CERTIFICATE-----
"""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Site:
    """A web server on this machine that remembers what it was asked."""

    port: int
    requests: list[web.Request] = field(default_factory=list)

    def url(self, path: str = "/", host: str = HERE, scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


@dataclass
class Sinkhole:
    """Counts the connections to every address of this machine."""

    port: int
    connections: int = 0


class Names(AbstractResolver):
    """Returns scripted answers in order and repeats the last one."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self._answers = {name.replace("_", "."): list(script) for name, script in answers.items()}
        self.questions: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.questions.append(host)
        if host not in self._answers:
            raise OSError(None, "unknown name")
        script = self._answers[host]
        addresses = script.pop(0) if len(script) > 1 else script[0]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in addresses
        ]

    async def close(self) -> None: ...


@asynccontextmanager
async def site(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    """Serve one handler for every path."""
    here = Site(0)

    async def remember(request: web.Request) -> web.StreamResponse:
        here.requests.append(request)
        return await handler(request)

    app = web.Application()
    app.router.add_get("/{path:.*}", remember)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HERE, 0, ssl_context=tls).start()
        here.port = runner.addresses[0][1]
        yield here
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_site(answer: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Answer every request with the same bytes, proper HTTP or not; yield its origin and what it is asked."""
    heads: list[bytes] = []

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(reply, HERE, 0)
    async with server:
        yield f"http://{HERE}:{server.sockets[0].getsockname()[1]}", heads


@pytest.fixture
async def sinkhole() -> AsyncIterator[Sinkhole]:
    """Listen where no fetch may arrive: on all IPv4 and, if there is any, IPv6 addresses of this machine."""
    hole = Sinkhole(0)

    def count(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hole.connections += 1
        writer.close()

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(await asyncio.start_server(count, "0.0.0.0", 0))
        hole.port = server.sockets[0].getsockname()[1]
        if socket.has_dualstack_ipv6():
            await stack.enter_async_context(await asyncio.start_server(count, "::", hole.port))
        yield hole


@pytest.fixture
async def fetcher() -> AsyncIterator[Fetcher]:
    """A fetcher that may reach this machine's sites."""
    async with Fetcher(allow_networks=[HERE], max_bytes=200_000, timeout=5) as fetcher:
        yield fetcher


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "files.pem"
    path.write_text(CERTIFICATE)
    return path


def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def hello(_: web.Request) -> web.Response:
    return web.Response(text="Hello, wörld")


async def refusal(fetcher: Fetcher, url: str) -> str:
    with pytest.raises(FetchError) as caught:
        await fetcher.get(url)
    return str(caught.value)


# The addresses that are refused, in every spelling.

CLOSED_4 = """
0.0.0.0 0.0.0.1 10.0.0.1 10.255.255.254 100.64.0.1 100.100.100.200 127.0.0.1 127.0.0.2 127.255.255.254
168.63.129.16 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.254 192.0.0.8 192.0.0.192 192.0.2.1
192.88.99.1 192.168.0.1 192.168.255.254 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.250
240.0.0.1 255.255.255.255
"""
CLOSED_6 = """
:: ::1 ::ffff:0:7f00:1 64:ff9b:1::7f00:1 100::1 2001:2::1 2001:10::1 2001:db8::1 3fff::1 4000::1 fc00::1
fd00:ec2::254 fe80::1 fec0::1 ff02::1
"""
CIRCLED = str.maketrans("0123456789", "⓪①②③④⑤⑥⑦⑧⑨")
FULL_WIDTH = str.maketrans("0123456789", "０１２３４５６７８９")


def spellings_4(address: str) -> Iterator[str]:
    number = int(IPv4Address(address))
    octets = IPv4Address(address).packed
    yield address
    yield f"{address}."
    yield str(number)
    yield f"0x{number:08X}"
    yield f"0{number:o}"
    yield ".".join(f"0{octet:03o}" for octet in octets)
    yield ".".join(f"{octet:#x}" for octet in octets)
    yield f"{octets[0]}.{number & 0xFFFFFF}"
    yield f"{octets[0]}.{octets[1]:#x}.{number & 0xFFFF}"
    yield address.translate(CIRCLED)
    yield address.translate(FULL_WIDTH)
    yield address.replace(".", "。")
    yield address.replace(".", "%2e")
    yield f"[::ffff:{address}]"
    yield f"[0:0:0:0:0:FFFF:{number >> 16:x}:{number & 0xFFFF:x}]"
    yield f"[::{address}]"
    yield f"[64:ff9b::{address}]"
    yield f"[2002:{number >> 16:x}:{number & 0xFFFF:x}::1]"
    yield f"[2001:0:4136:e378:8000:63bf:{~number >> 16 & 0xFFFF:x}:{~number & 0xFFFF:x}]"


def spellings_6(address: str) -> Iterator[str]:
    yield f"[{address}]"
    yield f"[{address.upper()}]"
    yield f"[{IPv6Address(address).exploded}]"
    yield f"[{address}%25lo]"


HOSTS = (
    *(host for address in CLOSED_4.split() for host in spellings_4(address)),
    *(host for address in CLOSED_6.split() for host in spellings_6(address)),
    *("localhost", "LOCALHOST", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "0", "00", "0x0", "127.1", "0177.0.0.1", "①②⑦.⓪.⓪.①"),
)


@pytest.mark.failure("M-01", "M-02", "M-03")
async def test_no_spelling_of_a_reserved_address_is_connected_to(sinkhole: Sinkhole) -> None:
    assert len(set(HOSTS)) >= 300
    async with Fetcher() as fetcher:
        for host in HOSTS:
            with pytest.raises(FetchError, match=r"not public|neither a name|network interface"):
                await fetcher.get(f"http://{host}:{sinkhole.port}/")
    assert sinkhole.connections == 0


@pytest.mark.failure("M-01", "M-02", "M-03")
async def test_no_spelling_of_a_reserved_address_is_passed_to_a_proxy(sinkhole: Sinkhole) -> None:
    proxy = f"http://{HERE}:{sinkhole.port}"
    async with Fetcher(environment={"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}) as fetcher:
        for host in HOSTS:
            with pytest.raises(FetchError, match=r"not public|neither a name|network interface"):
                await fetcher.get(f"https://{host}/")
    assert sinkhole.connections == 0


async def test_the_sinkhole_counts_connections(sinkhole: Sinkhole) -> None:
    async with Fetcher(allow_networks=["127.0.0.0/8"]) as fetcher:
        assert "breaks off" in await refusal(fetcher, f"http://127.1:{sinkhole.port}/")
    assert sinkhole.connections > 0


@pytest.mark.failure("M-04")
async def test_the_connection_uses_the_checked_address() -> None:
    names = Names(rebinding_example=[[HERE], [NOT_HERE]])
    async with site(hello) as here, Fetcher(allow_networks=[HERE], resolver=names) as fetcher:
        url = here.url(host="rebinding.example")
        assert (await fetcher.get(url)).text() == "Hello, wörld"
        assert names.questions == ["rebinding.example"]
        assert here.requests[0].headers["Host"] == f"rebinding.example:{here.port}"
        assert "not public (loopback)" in await refusal(fetcher, url)
        assert len(here.requests) == 1


def test_no_socket_is_created_for_a_forbidden_address() -> None:
    with pytest.raises(PermissionError, match="private"):
        _AddressGuard(Names(), ()).make_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.0.0.1", 80)))


@pytest.mark.failure("M-04")
@pytest.mark.parametrize("second", [NOT_HERE, "10.0.0.1", "::1", "fe80::1%lo", "::ffff:169.254.169.254"])
async def test_a_name_with_any_reserved_address_is_rejected(sinkhole: Sinkhole, second: str) -> None:
    for answers in ([HERE, second], [second, HERE]):
        names = Names(mixed_example=[answers])
        async with Fetcher(allow_networks=[HERE], resolver=names) as fetcher:
            assert "not public" in await refusal(fetcher, f"http://mixed.example:{sinkhole.port}/")
    assert sinkhole.connections == 0


async def test_of_several_addresses_an_address_that_accepts_connections_is_used() -> None:
    names = Names(two_example=[[NOT_HERE, HERE]])
    async with site(hello) as here, Fetcher(allow_networks=["127.0.0.0/8"], resolver=names) as fetcher:
        assert (await fetcher.get(here.url(host="two.example"))).text() == "Hello, wörld"


async def test_a_name_without_addresses_is_a_fetch_error() -> None:
    async with Fetcher(resolver=Names(empty_example=[[]])) as fetcher:
        assert "cannot be found" in await refusal(fetcher, "http://unknown.example/")
        assert "cannot be found" in await refusal(fetcher, "http://empty.example/")


async def test_a_label_too_long_for_dns_is_a_fetch_error() -> None:
    async with Fetcher() as fetcher:
        assert "cannot be found" in await refusal(fetcher, f"http://{'a' * 70}.example/")


# Redirects.


async def redirect(request: web.Request) -> web.Response:
    """`/3?to=x` leads over three hops to x."""
    hops = int(request.path.strip("/") or 0)
    if hops > 1:
        location = f"/{hops - 1}?{request.query_string}"
    elif hops == 1:
        location = request.query["to"]
    else:
        return await hello(request)
    return web.Response(status=302, headers={"Location": location})


async def test_three_redirects_are_followed(fetcher: Fetcher) -> None:
    async with site(redirect) as here:
        fetched = await fetcher.get(here.url("/3?to=/"))
    assert fetched.url == here.url("/")
    assert fetched.text() == "Hello, wörld"


@pytest.mark.failure("M-05")
async def test_a_fourth_redirect_is_not_followed(fetcher: Fetcher) -> None:
    async with site(redirect) as here:
        assert "more than 3 redirects" in await refusal(fetcher, here.url("/4?to=/"))
        assert len(here.requests) == 4


@pytest.mark.failure("M-05")
async def test_a_redirect_loop_ends(fetcher: Fetcher) -> None:
    async def circle(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/again"})

    async with site(circle) as here:
        assert "more than 3 redirects" in await refusal(fetcher, here.url("/again"))


@pytest.mark.failure("M-05")
@pytest.mark.parametrize("host", [NOT_HERE, "[::1]", "0", "2130706434", "[::ffff:127.0.0.2]", "localhost"])
async def test_a_redirect_to_a_reserved_address_is_rejected(sinkhole: Sinkhole, host: str) -> None:
    names = Names(localhost=[[NOT_HERE]])
    async with site(redirect) as here, Fetcher(allow_networks=[HERE], resolver=names) as fetcher:
        for hops in (1, 3):
            url = here.url(f"/{hops}?to=http://{host}:{sinkhole.port}/secret")
            assert "not public" in await refusal(fetcher, url)
    assert sinkhole.connections == 0


@pytest.mark.failure("M-05")
@pytest.mark.parametrize(
    ("target", "cause"),
    [
        ("file:///etc/passwd", "only http"),
        ("data:text/plain,hello", "only http"),
        ("http://user:secret@example.com/", "credentials"),
        ("http://[::1/", "malformed"),
        ("", "leads nowhere"),
        ("http://example.com:25/", "port 25"),
    ],
)
async def test_redirects_are_checked_by_the_same_rules(fetcher: Fetcher, target: str, cause: str) -> None:
    async with site(redirect) as here:
        message = await refusal(fetcher, here.url(f"/1?to={target}"))
    assert cause in message
    assert "secret" not in message


# What comes back.


def bomb(size: int) -> bytes:
    return gzip.compress(bytes(size), mtime=0)


def answering(body: bytes, **headers: str) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return answer


async def test_a_compressed_body_is_decompressed(fetcher: Fetcher) -> None:
    text = "".join(f"line {number}\n" for number in range(9000))
    handler = answering(gzip.compress(text.encode()), Content_Encoding="gzip", Content_Type="text/plain")
    async with site(handler) as here:
        assert (await fetcher.get(here.url())).text() == text


@pytest.mark.long
@pytest.mark.failure("M-08")
async def test_decompression_stops_at_a_hundred_times_the_compressed_size() -> None:
    async with (
        site(answering(bomb(50_000_000), Content_Encoding="gzip")) as here,
        Fetcher(allow_networks=[HERE]) as fetcher,
    ):
        assert "more than 100 times" in await refusal(fetcher, here.url())


@pytest.mark.failure("M-08")
async def test_the_size_limit_applies_to_the_decompressed_body(fetcher: Fetcher) -> None:
    body = gzip.compress(b"".join(number.to_bytes(4) for number in range(60_000)))
    assert len(body) < 200_000
    async with site(answering(body, Content_Encoding="gzip")) as here:
        assert "larger than 200000 bytes" in await refusal(fetcher, here.url())


@pytest.mark.failure("M-08")
@pytest.mark.parametrize(
    ("body", "encoding", "cause"),
    [
        (b"not packed at all", "gzip", "damaged"),
        (bomb(1000)[:-9], "gzip", "is incomplete"),
        (bomb(1000) + b"more", "gzip", "followed by other data"),
        (bomb(1000) * 2, "gzip", "followed by other data"),
        (bomb(1000), "gzip, gzip", "not requested"),
        (b"x", "br", "not requested"),
    ],
)
async def test_an_invalid_compressed_body_is_a_fetch_error(
    fetcher: Fetcher, body: bytes, encoding: str, cause: str
) -> None:
    async with site(answering(body, Content_Encoding=encoding)) as here:
        assert cause in await refusal(fetcher, here.url())


async def test_reading_an_endless_body_stops_at_the_limit(fetcher: Fetcher) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 10_000)

    async with site(endless) as here:
        assert "larger than 200000 bytes" in await refusal(fetcher, here.url())


@pytest.mark.failure("M-08")
async def test_an_endless_compressed_body_without_output_is_stopped(fetcher: Fetcher) -> None:
    empty_block = b"\x00\x00\x00\xff\xff"
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"")[:10]
    async with raw_site(head + empty_block * 50_000) as (origin, _):
        assert "larger than 200000 bytes" in await refusal(fetcher, origin)


async def test_a_declared_length_above_the_limit_is_rejected_before_reading(fetcher: Fetcher) -> None:
    async with raw_site(b"HTTP/1.1 200 OK\r\nContent-Length: 200001\r\n\r\n") as (origin, _):
        assert "larger than 200000 bytes" in await refusal(fetcher, origin)


async def test_a_caller_can_set_another_size_limit(fetcher: Fetcher) -> None:
    async with site(answering(b"x" * 100)) as here:
        assert len((await fetcher.get(here.url(), max_bytes=100)).body) == 100
        with pytest.raises(FetchError, match="larger than 99 bytes"):
            await fetcher.get(here.url(), max_bytes=99)


@pytest.mark.failure("M-12")
@pytest.mark.parametrize("path", ["/headers", "/body"])
async def test_a_slow_host_causes_a_timeout(path: str) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if path == "/body":
            await response.prepare(request)
            await response.write(b"x")
        await asyncio.Event().wait()
        return response

    async with site(slow) as here, Fetcher(allow_networks=[HERE], timeout=0.2) as fetcher:
        assert "longer than 0.2 s" in await refusal(fetcher, here.url(path))


@pytest.mark.failure("M-12")
async def test_the_timeout_includes_all_redirects() -> None:
    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(0.08)
        return web.Response(status=302, headers={"Location": "/"})

    async with site(slow) as here, Fetcher(allow_networks=[HERE], timeout=0.2) as fetcher:
        assert "longer than 0.2 s" in await refusal(fetcher, here.url())


async def test_cancellation_propagates(fetcher: Fetcher) -> None:
    asked = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        return web.Response()

    async with site(slow) as here, asyncio.TaskGroup() as tasks:
        fetching = tasks.create_task(fetcher.get(here.url()))
        await asked.wait()
        fetching.cancel()
    assert fetching.cancelled()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 banana\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://\xff\xfe/\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    ],
)
async def test_a_response_that_is_not_http_is_a_fetch_error(fetcher: Fetcher, answer: bytes) -> None:
    async with raw_site(answer) as (origin, _):
        assert await refusal(fetcher, origin)


@pytest.mark.parametrize("status", [204, 206, 300, 304, 401, 404, 500])
async def test_only_the_body_of_a_successful_response_is_read(fetcher: Fetcher, status: int) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status)

    async with site(answer) as here:
        if status < 300:
            assert (await fetcher.get(here.url())).body == b""
        else:
            assert f"answered {status}" in await refusal(fetcher, here.url())


async def test_a_closed_port_is_a_fetch_error_that_names_the_url(fetcher: Fetcher) -> None:
    async with raw_site(b"") as (origin, _):
        pass
    message = await refusal(fetcher, f"{origin}/files/secret-folder/x.png?signature=secret")
    assert message.startswith(f"cannot fetch {origin}/…/x.png: no connection")
    assert "secret" not in message


async def test_credentials_in_a_url_are_rejected_and_not_shown(fetcher: Fetcher) -> None:
    async with site(hello) as here:
        message = await refusal(fetcher, f"http://alice:sesame@{HERE}:{here.port}/x?key=sesame")
        assert here.requests == []
    assert "credentials" in message
    assert "alice" not in message
    assert "sesame" not in message


@pytest.mark.failure("M-13")
async def test_requests_do_not_identify_the_bot_and_cookies_are_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine site.example login alice password sesame\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", f"http://{NOT_HERE}:9")
    fetcher = Fetcher(allow_networks=[HERE], resolver=Names(site_example=[[HERE]]))
    async with site(answering(b"x", Set_Cookie="track=1")) as here, fetcher:
        for _ in range(2):
            await fetcher.get(here.url(host="site.example"))
            sent = set(here.requests.pop().headers)
            assert sent == {"Host", "User-Agent", "Accept", "Accept-Encoding", "Connection"}


# TLS.


@pytest.mark.failure("M-04")
async def test_tls_verifies_the_host_name_with_the_configured_ca_file(certificate: Path) -> None:
    asked_for: list[str | None] = []
    tls = server_tls(certificate)
    tls.sni_callback = lambda _, name, __: asked_for.append(name)
    fetcher = Fetcher(
        environment={"SSL_CERT_FILE": str(certificate)}, allow_networks=[HERE], resolver=Names(files_example=[[HERE]])
    )
    async with site(hello, tls) as here, fetcher:
        fetched = await fetcher.get(here.url(host="files.example", scheme="https"))
        assert fetched.text() == "Hello, wörld"
        assert here.requests[0].headers["Host"] == f"files.example:{here.port}"
    assert asked_for == ["files.example"]


@pytest.fixture
async def quiet_loop() -> AsyncIterator[None]:
    """Keep asyncio's debug mode from calling it our error that a client broke off a handshake."""
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda *_: None)
    yield
    loop.set_exception_handler(handler)


@pytest.mark.usefixtures("quiet_loop")
@pytest.mark.parametrize(
    ("name", "is_known", "cause"),
    [("other.example", True, "Hostname mismatch"), ("files.example", False, "self-signed|self signed")],
)
async def test_a_wrong_certificate_is_never_accepted(certificate: Path, name: str, is_known: bool, cause: str) -> None:
    fetcher = Fetcher(
        environment={"SSL_CERT_FILE": str(certificate)} if is_known else {},
        allow_networks=[HERE],
        resolver=Names(files_example=[[HERE]], other_example=[[HERE]]),
    )
    async with site(hello, server_tls(certificate)) as here, fetcher:
        with pytest.raises(FetchError, match=f"certificate is not valid .*({cause})"):
            await fetcher.get(here.url(host=name, scheme="https"))
        assert here.requests == []


@pytest.mark.failure("M-05")
async def test_a_redirect_never_leads_from_https_to_http(certificate: Path) -> None:
    fetcher = Fetcher(
        environment={"SSL_CERT_FILE": str(certificate)}, allow_networks=[HERE], resolver=Names(files_example=[[HERE]])
    )
    async with site(hello) as plain, site(redirect, server_tls(certificate)) as here, fetcher:
        url = here.url(f"/1?to={plain.url()}", host="files.example", scheme="https")
        assert "from https to http" in await refusal(fetcher, url)
        assert plain.requests == []


async def test_a_server_without_tls_is_a_fetch_error(fetcher: Fetcher) -> None:
    async with site(hello) as here:
        assert "TLS" in await refusal(fetcher, here.url(scheme="https"))


async def test_a_ca_file_that_cannot_be_read_is_a_setting_error(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.pem", tmp_path):
        with pytest.raises(SettingError, match="SSL_CERT_FILE"):
            async with Fetcher(environment={"SSL_CERT_FILE": str(path)}):
                pass


# Proxies.


async def test_the_proxy_receives_host_names_and_its_credentials() -> None:
    async with raw_site(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi") as (proxy, heads):
        names = Names(public_example=[["8.8.8.8"]])
        environment = {"HTTP_PROXY": proxy.replace("//", "//alice:sesame@")}
        async with Fetcher(environment=environment, resolver=names) as fetcher:
            assert (await fetcher.get("http://public.example/a?b=c")).text() == "hi"
            assert (await fetcher.get("http://known-to-the-proxy.example/")).text() == "hi"
    assert heads[0].startswith(b"GET http://public.example/a?b=c HTTP/1.1\r\n")
    assert b"Host: public.example\r\n" in heads[0]
    assert b"Proxy-Authorization: Basic YWxpY2U6c2VzYW1l\r\n" in heads[0]


async def test_https_is_tunnelled_through_the_proxy_and_its_refusal_is_reported() -> None:
    async with (
        raw_site(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n") as (proxy, heads),
        Fetcher(environment={"https_proxy": proxy}, resolver=Names()) as fetcher,
    ):
        assert "proxy answered 403" in await refusal(fetcher, "https://public.example/")
    assert heads[0].startswith(b"CONNECT public.example:443 HTTP/1.1\r\n")


async def test_a_name_that_resolves_to_a_reserved_address_is_not_passed_to_the_proxy() -> None:
    async with raw_site(b"HTTP/1.1 200 OK\r\n\r\n") as (proxy, heads):
        names = Names(inner_example=[["10.0.0.1"]])
        async with Fetcher(environment={"HTTP_PROXY": proxy}, resolver=names) as fetcher:
            assert "not public (private)" in await refusal(fetcher, "http://inner.example/")
            assert "not public (loopback)" in await refusal(fetcher, f"{proxy}/")
    assert heads == []


@pytest.mark.failure("M-05")
async def test_a_redirect_through_the_proxy_is_checked_again() -> None:
    async with (
        raw_site(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n") as (proxy, heads),
        Fetcher(environment={"HTTP_PROXY": proxy}, resolver=Names()) as fetcher,
    ):
        message = await refusal(fetcher, "http://public.example/")
    assert "(sent on to http://169.254.169.254/)" in message
    assert "not public (link-local)" in message
    assert len(heads) == 1


async def test_hosts_excepted_from_the_proxy_are_checked_like_direct_targets(sinkhole: Sinkhole) -> None:
    environment = {"HTTP_PROXY": f"http://{HERE}:{sinkhole.port}", "NO_PROXY": "inner.example,127.0.0.0/8"}
    async with Fetcher(environment=environment, resolver=Names(inner_example=[[HERE]])) as fetcher:
        for host in (HERE, "inner.example"):
            assert "not public (loopback)" in await refusal(fetcher, f"http://{host}:{sinkhole.port}/")
    assert sinkhole.connections == 0


async def test_an_unreachable_proxy_is_a_fetch_error() -> None:
    async with raw_site(b"") as (proxy, _):
        pass
    async with Fetcher(environment={"HTTP_PROXY": proxy}, resolver=Names()) as fetcher:
        assert "proxy cannot be reached" in await refusal(fetcher, "http://public.example/")


# Types and texts.


def wav() -> bytes:
    sound = io.BytesIO()
    with wave.open(sound, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(8000)
        writer.writeframes(bytes(100))
    return sound.getvalue()


OFFICE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@pytest.mark.failure("M-11")
@pytest.mark.parametrize(
    ("body", "declared", "kind"),
    [
        (PNG, "text/html", "image/png"),
        (PNG, "", "image/png"),
        (b"\xff\xd8\xff\xe0" + bytes(9), "image/png", "image/jpeg"),
        (b"GIF89a" + bytes(9), "application/octet-stream", "image/gif"),
        (b"RIFF\x10\x00\x00\x00WEBPVP8 ", "image/jpeg", "image/webp"),
        (b"%PDF-1.7\n", "text/plain", "application/pdf"),
        (wav(), "audio/mpeg", "audio/wav"),
        (b"ID3\x04" + bytes(9), "", "audio/mpeg"),
        (b"\xff\xfb\x90\x64" + bytes(9), "audio/mp3", "audio/mpeg"),
        (b"OggS\x00\x02" + bytes(9), "", "audio/ogg"),
        (b"OggS\x00\x02" + bytes(9), "video/ogg", "video/ogg"),
        (b"OggS\x00\x02" + bytes(9), "image/png", "audio/ogg"),
        (b"\x00\x00\x00\x20ftypM4A " + bytes(9), "audio/mp4", "audio/mp4"),
        (b"\x00\x00\x00\x20ftypisom" + bytes(9), "text/html", "video/mp4"),
        (b"PK\x03\x04" + bytes(9), OFFICE, OFFICE),
        (b"PK\x03\x04" + bytes(9), "application/pdf", "application/zip"),
        (b"plain words", "image/png", "text/plain"),
        (b" <!DOCTYPE html><p>", "image/png", "text/html"),
        (b"<p>Hello", "text/html", "text/html"),
        (b'{"a": 1}', "application/json", "application/json"),
        (b'{"a": 1}', "application/activity+json", "application/activity+json"),
        (b"<svg/>", "image/svg+xml", "image/svg+xml"),
        ("\ufeffwörds".encode("utf-16"), "text/plain", "text/plain"),
        (b"\x00\x01\x02\x03", "image/png", "application/octet-stream"),
        (b"\x00\x01\x02\x03", "text/plain", "application/octet-stream"),
        (b"\x00\x01\x02\x03", "application/x-own", "application/x-own"),
        (b"", "text/plain", "text/plain"),
        (b"", "image/png", "application/octet-stream"),
        (b"", "", "application/octet-stream"),
    ],
)
def test_the_type_is_detected_from_the_bytes_and_only_then_from_the_header(
    body: bytes, declared: str, kind: str
) -> None:
    assert sniff_media_type(body, declared) == kind


@pytest.mark.failure("M-11")
async def test_a_wrong_content_type_is_detected(fetcher: Fetcher) -> None:
    async with site(answering(PNG, Content_Type="Text/HTML; charset=utf-8")) as here:
        fetched = await fetcher.get(here.url())
    assert (fetched.content_type, fetched.body) == ("image/png", PNG)


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        ("wörld".encode(), None, "wörld"),
        ("wörld".encode("latin-1"), "ISO-8859-1", "wörld"),
        ("мир".encode("koi8-r"), "koi8-r", "мир"),
        ("wörld".encode("utf-8-sig"), "latin-1", "wörld"),
        ("\ufeffwörld".encode("utf-16-be"), None, "wörld"),
        (b"w\xffrld", "utf-8", "w\ufffdrld"),
        (b"world", "no-such-charset", "world"),
        (b"world", "hex", "world"),
        (b"wor\\ld", "unicode_escape", "wor\\ld"),
        (b"world", "punycode", "world"),
        (b"wor+AGw-d", "utf-7", "wor+AGw-d"),
        (b"world", "utf-32", "world"),
        (b"world", "a\0b", "world"),
    ],
)
def test_any_body_can_be_decoded_as_text(body: bytes, charset: str | None, text: str) -> None:
    assert FetchedBody("http://example.com/", "text/plain", body, charset).text() == text


async def test_a_fetched_text_is_decoded_with_its_charset(fetcher: Fetcher) -> None:
    handler = answering("wörld".encode("latin-1"), Content_Type="text/plain; charset=latin-1")
    async with site(handler) as here:
        fetched = await fetcher.get(here.url())
    assert (fetched.charset, fetched.content_type, fetched.text()) == ("latin-1", "text/plain", "wörld")


def test_all_connections_share_the_loaded_certificates_of_the_system() -> None:
    assert build_tls_context() is build_tls_context()
