"""The host that is called, for which requests are signed."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from adapters.x.emulator import Emulator
from bot import Attachment, Content, MediaKind
from tests.adapters.tls import OF_X, behind_tls, trusted
from tests.adapters.x.conftest import RunX
from tests.adapters.x.test_sending import QUIET, part_of
from tests.adapters.x.test_tls import through

DOCUMENTED_HOST = "api.x.com"  # docs.x.com


async def test_every_call_goes_to_the_documented_host_and_is_signed_for_it(
    run_x: RunX, emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = Attachment("1", MediaKind.IMAGE, content_type="image/png", name="fog.png", data=b"png")
    async with behind_tls(urlsplit(emulator.url).port or 0, tmp_path, OF_X) as way:
        through(way, monkeypatch, trusted(tmp_path, OF_X))
        async with run_x(**QUIET, X_API_BASE_URL="") as harness:
            await harness.adapter.deliver(part_of(harness, content=Content("Fog.", attachments=(picture,))))
            await harness.account.connection.read_own_user()
    assert set(way.asked) == {f"{DOCUMENTED_HOST}:443"}
    assert emulator.bot_texts == ["Fog."]
