"""A platform behind TLS and a proxy, on this machine: by a name of its own, with certificates of ours."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HERE, HOST = "127.0.0.1", "platform.example"

# Self-signed with one key that guards nothing: for platform.example until 2120 and until 2 January 2020, and for
# api.x.com until 2120.
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgECDtPTCAfKxOZM2o
2U/9D+FqoGnkQE7m+Ew5rqWNjXOhRANCAAR0GYUWops8oBIrSBQQsa9ydCfmlE1+
KYXb9JDYreAzrJLet/iUgm1VbQ9Xcdc7l+54s/xG4r0m9fuObKlptChx
-----END PRIVATE KEY-----
"""
GOOD = """\
-----BEGIN CERTIFICATE-----
MIIBhDCCASqgAwIBAgIBAjAKBggqhkjOPQQDAjAaMRgwFgYDVQQDDA9HcmVlbnJv
b20gdGVzdHMwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBoxGDAW
BgNVBAMMD0dyZWVucm9vbSB0ZXN0czBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA
BHQZhRaimzygEitIFBCxr3J0J+aUTX4phdv0kNit4DOskt63+JSCbVVtD1dx1zuX
7niz/EbivSb1+45sqWm0KHGjXzBdMBsGA1UdEQQUMBKCEHBsYXRmb3JtLmV4YW1w
bGUwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8BAf8EBAMCAoQwHQYDVR0OBBYEFO4E
fs1/zKJ71CbS1NJAMC/7DLNVMAoGCCqGSM49BAMCA0gAMEUCIQDp6cwY8AFATyu4
O78Ij+hxiTAmU+yglPrJkEevdECA6QIgFycW/rjFmc0DjFSM3vIw93LWWp+P7Vs6
W0EQdiBJdcY=
-----END CERTIFICATE-----
"""
EXPIRED = """\
-----BEGIN CERTIFICATE-----
MIIBgjCCASigAwIBAgIBATAKBggqhkjOPQQDAjAaMRgwFgYDVQQDDA9HcmVlbnJv
b20gdGVzdHMwHhcNMjAwMTAxMDAwMDAwWhcNMjAwMTAyMDAwMDAwWjAaMRgwFgYD
VQQDDA9HcmVlbnJvb20gdGVzdHMwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAR0
GYUWops8oBIrSBQQsa9ydCfmlE1+KYXb9JDYreAzrJLet/iUgm1VbQ9Xcdc7l+54
s/xG4r0m9fuObKlptChxo18wXTAbBgNVHREEFDASghBwbGF0Zm9ybS5leGFtcGxl
MA8GA1UdEwEB/wQFMAMBAf8wDgYDVR0PAQH/BAQDAgKEMB0GA1UdDgQWBBTuBH7N
f8yie9Qm0tTSQDAv+wyzVTAKBggqhkjOPQQDAgNIADBFAiAIVa23M6PtVG6o9lrf
ClrOU8LOp3UuCetdh3zDWw+fogIhAN7bpZpdchwVFHkfaTv7DciAiTpCbFptKD+E
xQ+TTX9g
-----END CERTIFICATE-----
"""
OF_X = """\
-----BEGIN CERTIFICATE-----
MIIBfTCCASOgAwIBAgIBAzAKBggqhkjOPQQDAjAaMRgwFgYDVQQDDA9HcmVlbnJv
b20gdGVzdHMwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBoxGDAW
BgNVBAMMD0dyZWVucm9vbSB0ZXN0czBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA
BHQZhRaimzygEitIFBCxr3J0J+aUTX4phdv0kNit4DOskt63+JSCbVVtD1dx1zuX
7niz/EbivSb1+45sqWm0KHGjWDBWMBQGA1UdEQQNMAuCCWFwaS54LmNvbTAPBgNV
HRMBAf8EBTADAQH/MA4GA1UdDwEB/wQEAwIChDAdBgNVHQ4EFgQU7gR+zX/MonvU
JtLU0kAwL/sMs1UwCgYIKoZIzj0EAwIDSAAwRQIgdtP5BaQHL9kPX29Km1cFemGs
n8A/2sWsLXyqMoo2pVcCIQDBDMlvFt/SeduR0mSIaKEu3kutpoUzjUyGBDY9wO/D
pw==
-----END CERTIFICATE-----
"""


@dataclass
class Way:
    """The proxy's address, and to whom it was asked to lead."""

    proxy: str
    asked: list[str] = field(default_factory=list)


@asynccontextmanager
async def behind_tls(port: int, folder: Path, certificate: str = GOOD) -> AsyncIterator[Way]:
    """Run a TLS proxy that forwards every host to a local port."""
    file = folder / "server.pem"
    file.write_text(KEY + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    tasks: set[asyncio.Task[None]] = set()

    async def unwrap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(_this_task())
        await _joined(reader, writer, port)

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(_this_task())
        head = await reader.readuntil(b"\r\n\r\n")
        way.asked.append(head.split()[1].decode())
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await _joined(reader, writer, front.sockets[0].getsockname()[1])

    front = await asyncio.start_server(unwrap, HERE, ssl=context)
    proxy = await asyncio.start_server(lead, HERE)
    way = Way(f"http://{HERE}:{proxy.sockets[0].getsockname()[1]}")
    try:
        async with front, proxy:
            yield way
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def trusted(folder: Path, certificate: str) -> str:
    """Return the path of a file of trusted certificates with this certificate, for SSL_CERT_FILE."""
    file = folder / "trusted.pem"
    file.write_text(certificate)
    return str(file)


def through(way: Way, monkeypatch: pytest.MonkeyPatch, certificates: str) -> None:
    """Set the variables with which the proxy is used, and these certificates are trusted."""
    monkeypatch.setenv("HTTPS_PROXY", way.proxy)
    monkeypatch.setenv("SSL_CERT_FILE", certificates)
    for name in ("NO_PROXY", "no_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    far_reader, far_writer = await asyncio.open_connection(HERE, port)
    try:
        await asyncio.gather(_carried(reader, far_writer), _carried(far_reader, writer))
    finally:
        writer.transport.abort()
        far_writer.transport.abort()


async def _carried(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()
