"""The account check of `bot doctor`, and the variables."""

import pytest

from adapters.mastodon import spec
from adapters.mastodon.adapter import open_mastodon
from adapters.mastodon.emulator import Emulator
from bot import ConfigError, SettingError, Settings, TemporaryError
from bot.settings import Layer
from bot.store import CheckReport
from bot.testing import running_agent


async def check(emulator: Emulator, **values: str) -> CheckReport:
    async def read(platform: str, account: str, name: str) -> None:
        return None

    assert spec.check is not None
    return await spec.check(Settings([Layer("a test", {**emulator.environment, **values})]), read)


async def test_the_check_names_account_and_limits_and_sends_nothing(emulator: Emulator) -> None:
    report = await check(emulator)
    assert report.location == f"@greenroom_bot on {emulator.url.partition('//')[2]}"
    assert report.facts["characters in a post"] == 500
    assert report.problems == ()
    assert all(call.endpoint.startswith("GET ") for call in emulator.calls)


async def test_a_profile_that_is_not_marked_as_a_bot_is_a_warning(emulator: Emulator) -> None:
    emulator.accounts["greenroom_bot"]["bot"] = False
    report = await check(emulator)
    assert report.problems == ()
    assert "This is an automated account" in report.warnings[0]


async def test_a_refused_token_is_a_problem_that_does_not_show_it(emulator: Emulator) -> None:
    report = await check(emulator, MASTODON_TOKEN="a-wrong-token")
    [problem] = report.problems
    assert not report.exists
    assert "MASTODON_TOKEN" in problem
    assert "a-wrong-token" not in problem


async def test_a_server_that_cannot_be_reached_is_named(emulator: Emulator) -> None:
    with pytest.raises(TemporaryError, match="cannot be reached"):
        await check(emulator, MASTODON_SERVER="http://127.0.0.1:1")


@pytest.mark.parametrize(
    "values", [{"MASTODON_SERVER": "mastodon.example"}, {"MASTODON_POST_INTERVAL_MIN": "200"}], ids=str
)
async def test_wrong_variables_are_refused(values: dict[str, str], emulator: Emulator) -> None:
    with pytest.raises(SettingError):
        await check(emulator, **values)


async def test_two_characters_cannot_share_an_account(emulator: Emulator) -> None:
    async with (
        running_agent(settings=emulator.environment) as first,
        running_agent(settings=emulator.environment) as second,
    ):
        with pytest.raises(ConfigError, match="MASTODON_TOKEN"):
            open_mastodon([first.agent_runtime.handle, second.agent_runtime.handle])
