"""C-14: Discord behind TLS and the operator's proxy."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bot import TemporaryError
from tests.adapters.discord.server import EmulatedServer
from tests.adapters.discord.test_checks import looked
from tests.adapters.tls import EXPIRED, GOOD, HOST, behind_tls, trusted


def port_of(server: EmulatedServer) -> int:
    return urlsplit(server.emulator.url).port or 0


@pytest.mark.failure("C-14")
@pytest.mark.parametrize(
    ("certificate", "believed", "host"),
    [(EXPIRED, EXPIRED, HOST), (GOOD, EXPIRED, HOST), (GOOD, GOOD, "other.example")],
    ids=["expired", "not trusted", "of another host"],
)
async def test_an_invalid_certificate_is_rejected(
    certificate: str, believed: str, host: str, server: EmulatedServer, tmp_path: Path
) -> None:
    async with behind_tls(port_of(server), tmp_path, certificate) as way:
        settings = {
            "DISCORD_API_BASE_URL": f"https://{host}",
            "HTTPS_PROXY": way.proxy,
            "SSL_CERT_FILE": trusted(tmp_path, believed),
        }
        with pytest.raises(TemporaryError, match="certificate"):
            await looked(server, settings)
        assert set(way.asked) == {f"{host}:443"}
        assert server.emulator.recorder.requests == []


@pytest.mark.failure("C-14")
async def test_messages_pass_the_operators_proxy_with_its_certificates(server: EmulatedServer, tmp_path: Path) -> None:
    async with behind_tls(port_of(server), tmp_path) as way:
        settings = {
            "DISCORD_API_BASE_URL": f"https://{HOST}",
            "HTTPS_PROXY": way.proxy,
            "SSL_CERT_FILE": trusted(tmp_path, GOOD),
        }
        server.emulator.gateway.url = f"wss://{HOST}/gateway/"
        async with server.run_bot(settings=settings):
            await server.emulator.people.say(server.lobby, server.kim, f"{server.call} hello")
            assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]
        assert set(way.asked) == {f"{HOST}:443"}
