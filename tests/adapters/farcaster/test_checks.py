"""The account check of `bot doctor`, and the variables."""

import pytest

from adapters.farcaster import spec
from adapters.farcaster.adapter import open_farcaster
from adapters.farcaster.emulator import Emulator
from bot import ConfigError, SettingError, Settings, TemporaryError
from bot.settings import Layer
from bot.store import CheckReport
from bot.testing import running_agent


async def check(emulator: Emulator, **values: str) -> CheckReport:
    async def read(platform: str, account: str, name: str) -> None:
        return None

    assert spec.check is not None
    return await spec.check(Settings([Layer("a test", {**emulator.environment, **values})]), read)


async def test_the_check_names_the_account_and_publishes_nothing(emulator: Emulator) -> None:
    report = await check(emulator)
    assert report.location == f"@greenroom on Farcaster (FID {emulator.fid})"
    assert (report.problems, report.facts["hub"]) == ((), emulator.url)
    assert emulator.casts == {}


async def test_a_key_that_the_account_has_not_approved_is_a_problem_that_does_not_show_it(emulator: Emulator) -> None:
    report = await check(emulator, FARCASTER_SIGNER_KEY="0x" + "ab" * 32)
    [problem] = report.problems
    assert "@greenroom has approved this key" in problem
    assert "abab" not in problem


async def test_a_hub_that_refuses_the_caller_is_a_problem(emulator: Emulator) -> None:
    emulator.api_key = "key-of-the-hub"
    report = await check(emulator, FARCASTER_API_KEY="another-key")
    [problem] = report.problems
    assert not report.exists
    assert "FARCASTER_API_KEY" in problem
    assert "another-key" not in problem


async def test_a_hub_that_cannot_be_reached_is_named(emulator: Emulator) -> None:
    with pytest.raises(TemporaryError, match="cannot be reached"):
        await check(emulator, FARCASTER_HUB="http://127.0.0.1:1")


@pytest.mark.parametrize(
    "values",
    [
        {"FARCASTER_HUB": "hub.example"},
        {"FARCASTER_FID": "@greenroom"},
        {"FARCASTER_FID": "0"},
        {"FARCASTER_SIGNER_KEY": "ab" * 31},
        {"FARCASTER_POST_INTERVAL_MIN": "200"},
    ],
    ids=str,
)
async def test_wrong_variables_are_refused_without_their_values(values: dict[str, str], emulator: Emulator) -> None:
    with pytest.raises(SettingError) as raised:
        await check(emulator, **values)
    assert "abab" not in str(raised.value)


async def test_two_characters_cannot_share_an_account(emulator: Emulator) -> None:
    async with (
        running_agent(settings=emulator.environment) as first,
        running_agent(settings=emulator.environment) as second,
    ):
        with pytest.raises(ConfigError, match="the same FARCASTER_FID"):
            open_farcaster([first.agent_runtime.handle, second.agent_runtime.handle])
