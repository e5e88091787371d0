"""When certificates and tokens end, read from real handshakes on the loopback."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bot.watchdog.watchdog import read_certificate_ends

NOW = datetime.now(UTC).replace(microsecond=0)
HOST = "127.0.0.1"


def write_certificate(folder: Path, ends_at: datetime) -> Path:
    """Return a file with a key and its own certificate for the loopback address, valid until `ends_at`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(ends_at - timedelta(days=90))
        .not_valid_after(ends_at)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(HOST))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{ends_at:%Y%m%d}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path


@asynccontextmanager
async def https_server(certificate: Path) -> AsyncIterator[str]:
    """Serve handshakes with this certificate; yields the host with its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    async with server:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(("days", "read"), [(20, NOW + timedelta(days=20)), (-3, NOW)])
async def test_the_end_of_a_certificate_is_read_and_an_expired_certificate_ends_now(
    days: int, read: datetime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = write_certificate(tmp_path, NOW + timedelta(days=days))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with https_server(certificate) as host:
        assert await read_certificate_ends([host], NOW) == {f"The certificate of {host}": read}


async def test_a_host_whose_certificate_cannot_be_read_is_left_out_with_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with https_server(write_certificate(tmp_path, NOW + timedelta(days=20))) as untrusted:
        hosts = [untrusted, f"{HOST}:1", f"{HOST}:no-port"]
        assert await read_certificate_ends(hosts, NOW) == {}
    assert [host for host in hosts if f"the certificate of {host} cannot be read" not in caplog.text] == []
