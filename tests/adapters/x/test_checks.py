"""A look at an account, as `bot doctor` takes it."""

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


async def test_it_tells_whose_account_it_is_and_what_is_left(emulator: Emulator, tmp_path: Path) -> None:
    spent = Usage().at_time(system_clock()).add(reads=40, posts=3)
    found = await poll(emulator, tmp_path, str(spent))
    assert found.location == "@greenroom_bot on X"
    assert found.facts["plan"] == "free"
    assert found.facts["reads left this month"] == 60
    assert found.facts["posts left today"] == 12
    assert "renewed" in found.facts
    assert found.problems == ()
    assert [call.endpoint for call in emulator.calls] == ["GET /2/users/me"]


async def test_keys_that_are_not_taken_are_a_problem_that_says_what_to_do(
    emulator: Emulator, tmp_path: Path
) -> None:
    emulator.is_revoked = True
    [problem] = (await poll(emulator, tmp_path)).problems
    assert "X_ACCESS_TOKEN_SECRET" in problem


async def test_a_thrown_switch_is_a_problem_and_nothing_is_asked(emulator: Emulator, tmp_path: Path) -> None:
    (tmp_path / "x.off").touch()
    [problem] = (await poll(emulator, tmp_path)).problems
    assert "remove it" in problem
    assert emulator.calls == []


@pytest.mark.parametrize("text", ["{", "[]", '{"reads": "many"}'])
async def test_what_was_spent_and_cannot_be_read_does_not_keep_it_from_looking(
    text: str, emulator: Emulator, tmp_path: Path
) -> None:
    assert (await poll(emulator, tmp_path, text)).problems == ()
