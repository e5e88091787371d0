"""C-14: X behind TLS and the operator's proxy."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from adapters.x.emulator import Emulator
from bot.platform import NotSent
from tests.adapters.tls import EXPIRED, GOOD, HOST, behind_tls, through, trusted
from tests.adapters.x.conftest import RunX
from tests.adapters.x.test_sending import QUIET, part_of


@pytest.mark.failure("C-14")
@pytest.mark.parametrize(
    ("certificate", "believed", "host"),
    [(EXPIRED, EXPIRED, HOST), (GOOD, EXPIRED, HOST), (GOOD, GOOD, "other.example")],
    ids=["expired", "not trusted", "of another host"],
)
async def test_an_invalid_certificate_is_rejected(
    certificate: str,
    believed: str,
    host: str,
    run_x: RunX,
    emulator: Emulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with behind_tls(urlsplit(emulator.url).port or 0, tmp_path, certificate) as way:
        through(way, monkeypatch, trusted(tmp_path, believed))
        async with run_x(**QUIET, X_API_BASE_URL=f"https://{host}") as harness:
            with pytest.raises(NotSent, match=r"no connection to X: .*certificate"):
                await harness.adapter.deliver(part_of(harness))
        assert way.asked == [f"{host}:443"]
        assert emulator.calls == []


@pytest.mark.failure("C-14")
async def test_the_operators_own_certificate_is_accepted_through_a_proxy(
    run_x: RunX, emulator: Emulator, tmp_path: Path
) -> None:
    async with behind_tls(urlsplit(emulator.url).port or 0, tmp_path) as way:
        settings = {"HTTPS_PROXY": way.proxy, "SSL_CERT_FILE": trusted(tmp_path, GOOD)}
        async with run_x(**QUIET, **settings, X_API_BASE_URL=f"https://{HOST}") as harness:
            await harness.adapter.deliver(part_of(harness))
        assert emulator.bot_texts == ["Fog again."]
        assert way.asked == [f"{HOST}:443"]
