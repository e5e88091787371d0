"""The account check of `bot doctor`."""

from pathlib import Path

import pytest

from adapters.x import spec
from adapters.x.emulator import Emulator
from adapters.x.rate_limits import Usage
from bot import Settings, system_clock
from bot.settings import Layer
from bot.store import CheckReport


async def poll(emulator: Emulator, folder: Path, usage: str = "", **values: str) -> CheckReport:
    async def read(platform: str, account: str, name: str) -> str | None:
        assert (platform, account) == ("x", emulator.user_id)
        return usage if name == "usage" else None

    values = {**emulator.environment, "BOT_DATA_DIR": str(folder), **values}
    assert spec.check is not None
    return await spec.check(Settings([Layer("the test", values)]), read)


async def test_the_check_reports_account_and_remaining_quota(emulator: Emulator, tmp_path: Path) -> None:
    spent = Usage().at_time(system_clock()).add(reads=40, posts=3)
    found = await poll(emulator, tmp_path, str(spent))
    assert found.location == "@greenroom_bot on X"
    assert found.facts["plan"] == "free"
    assert found.facts["reads left this month"] == 60
    assert found.facts["posts left today"] == 12
    assert "renewed" in found.facts
    assert found.problems == ()
    assert [call.endpoint for call in emulator.calls] == ["GET /2/users/me"]


async def test_refused_keys_are_reported_with_the_remedy(emulator: Emulator, tmp_path: Path) -> None:
    emulator.is_revoked = True
    [problem] = (await poll(emulator, tmp_path)).problems
    assert "X_ACCESS_TOKEN_SECRET" in problem


async def test_the_off_switch_is_reported_and_nothing_is_requested(emulator: Emulator, tmp_path: Path) -> None:
    (tmp_path / "x.off").touch()
    [problem] = (await poll(emulator, tmp_path)).problems
    assert "remove it" in problem
    assert emulator.calls == []


@pytest.mark.parametrize("text", ["{", "[]", '{"reads": "many"}'])
async def test_an_unreadable_stored_usage_does_not_stop_the_check(
    text: str, emulator: Emulator, tmp_path: Path
) -> None:
    assert (await poll(emulator, tmp_path, text)).problems == ()
