"""C-14: Discord behind TLS and the operator's proxy; what cannot be verified is not talked to."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bot import TemporaryError
from tests.adapters.discord.harbour import Harbour
from tests.adapters.discord.test_checks import looked
from tests.adapters.tls import EXPIRED, GOOD, HOST, behind_tls, trusted


def port_of(harbour: Harbour) -> int:
    return urlsplit(harbour.emulator.url).port or 0


@pytest.mark.parametrize(
    ("certificate", "believed", "host"),
    [(EXPIRED, EXPIRED, HOST), (GOOD, EXPIRED, HOST), (GOOD, GOOD, "other.example")],
    ids=["expired", "not trusted", "of another host"],
)
async def test_c14_a_certificate_that_is_not_good_is_not_accepted(
    certificate: str, believed: str, host: str, harbour: Harbour, tmp_path: Path
) -> None:
    async with behind_tls(port_of(harbour), tmp_path, certificate) as way:
        settings = {
            "DISCORD_API_BASE_URL": f"https://{host}",
            "HTTPS_PROXY": way.proxy,
            "SSL_CERT_FILE": trusted(tmp_path, believed),
        }
        with pytest.raises(TemporaryError, match="certificate"):
            await looked(harbour, settings)
        assert set(way.asked) == {f"{host}:443"}
        assert harbour.emulator.recorder.requests == []


async def test_c14_through_the_operators_proxy_and_with_their_certificates_it_hears_and_answers(
    harbour: Harbour, tmp_path: Path
) -> None:
    async with behind_tls(port_of(harbour), tmp_path) as way:
        settings = {
            "DISCORD_API_BASE_URL": f"https://{HOST}",
            "HTTPS_PROXY": way.proxy,
            "SSL_CERT_FILE": trusted(tmp_path, GOOD),
        }
        harbour.emulator.gateway.url = f"wss://{HOST}/gateway/"
        async with harbour.bot_on(settings=settings):
            await harbour.emulator.people.say(harbour.quay, harbour.kim, f"{harbour.call} hello")
            assert await harbour.emulator.recorder.wait_for_texts(1) == ["Aye."]
        assert set(way.asked) == {f"{HOST}:443"}
