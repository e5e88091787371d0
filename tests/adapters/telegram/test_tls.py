"""C-14: Telegram behind TLS and the operator's proxy; an unverified server is not used."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from adapters.telegram.emulator import Emulator
from bot.platform import NotSent
from tests.adapters.telegram.test_sending import OpenSender, open_sender, telegram
from tests.adapters.tls import EXPIRED, GOOD, HOST, behind_tls, through, trusted

__all__ = ["open_sender", "telegram"]


def port_of(telegram: Emulator) -> int:
    return urlsplit(telegram.url).port or 0


@pytest.mark.failure("C-14")
@pytest.mark.parametrize(
    ("certificate", "believed", "host"),
    [(EXPIRED, EXPIRED, HOST), (GOOD, EXPIRED, HOST), (GOOD, None, HOST), (GOOD, GOOD, "other.example")],
    ids=["expired", "not trusted", "not known", "of another host"],
)
async def test_an_invalid_certificate_is_rejected(
    certificate: str,
    believed: str | None,
    host: str,
    open_sender: OpenSender,
    telegram: Emulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with behind_tls(port_of(telegram), tmp_path, certificate) as way:
        through(way, monkeypatch, trusted(tmp_path, believed) if believed else "")
        sender = await open_sender(TELEGRAM_API_BASE_URL=f"https://{host}")
        with pytest.raises(NotSent, match="its certificate is not valid"):
            await sender.message_sender.deliver(sender.part())
        assert way.asked == [f"{host}:443"]
        assert sender.texts == []


@pytest.mark.failure("C-14")
async def test_a_custom_certificate_is_accepted_through_the_operators_proxy(
    open_sender: OpenSender, telegram: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_tls(port_of(telegram), tmp_path) as way:
        through(way, monkeypatch, trusted(tmp_path, GOOD))
        sender = await open_sender(TELEGRAM_API_BASE_URL=f"https://{HOST}")
        await sender.message_sender.deliver(sender.part())
        assert sender.texts == ["Hello"]
        assert way.asked == [f"{HOST}:443"]


@pytest.mark.failure("C-14")
async def test_an_unverified_server_is_not_used(open_sender: OpenSender, telegram: Emulator) -> None:
    sender = await open_sender(TELEGRAM_API_BASE_URL=telegram.url.replace("http:", "https:"))
    with pytest.raises(NotSent, match="TLS could not be agreed on"):
        await sender.message_sender.deliver(sender.part())
    assert sender.texts == []
