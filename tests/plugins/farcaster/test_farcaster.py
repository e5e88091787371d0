"""Reading casts of an account, on the emulated hub."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.farcaster.emulator import Emulator
from bot import ActionResult, Settings, system_clock
from bot.plugin_system.loading import find_plugin
from bot.settings import CHARACTER_FILE, Layer
from bot.testing import (
    AgentHarness,
    FaultResponse,
    ScriptedModel,
    check_plugin_contract,
    make_turn,
    model_answer,
    running_agent,
)
from plugins.farcaster import plugin
from plugins.farcaster.reading import read_casts


@pytest.fixture
async def hub() -> AsyncIterator[Emulator]:
    async with Emulator() as running:
        yield running


@asynccontextmanager
async def reading(hub: Emulator, folder: Path, account: str, **settings: str) -> AsyncIterator[AgentHarness]:
    """Run an agent whose model looks an account up once for each message."""
    model = ScriptedModel(lambda _: model_answer(actions=["FARCASTER_CASTS"], parameters={"account": account}))
    values = {"BOT_DATA_DIR": str(folder), "FARCASTER_HUB": hub.url, **settings}
    async with running_agent(find_plugin("farcaster") or plugin, model=model, settings=values) as harness:
        yield harness


@pytest.mark.parametrize("account", ["kim", "@Kim", "FID"])
async def test_casts_of_a_user_are_shown_newest_first_as_quotations(
    account: str, hub: Emulator, tmp_path: Path
) -> None:
    hub.say("robin", "Not this.")
    first = hub.say("kim", 'The "sea"\nis high.', created_at=system_clock() - timedelta(minutes=1))
    second = hub.say("kim", "Look.", urls=("https://example.org/a.png",))
    async with reading(hub, tmp_path, account.replace("FID", str(first.fid))) as harness:
        await harness.send("What did kim publish?")
        shown = "\n".join(harness.texts)
    address = "https://farcaster.xyz/~/conversations/"
    assert shown.splitlines() == [
        "@kim on Farcaster:",
        f'• "Look. https://example.org/a.png" {address}{second.hash}',
        f"• \"The 'sea' is high.\" {address}{first.hash}",
    ]


async def test_reading_needs_no_key_of_an_account_and_publishes_nothing(hub: Emulator, tmp_path: Path) -> None:
    hub.say("kim", "Hello.")
    async with reading(hub, tmp_path, "kim") as harness:
        await harness.send("What did kim publish?")
    assert {call.endpoint.partition(" ")[0] for call in hub.calls} == {"GET"}
    assert len(hub.casts) == 1


@pytest.mark.parametrize(
    ("account", "reason"),
    [("somewhere else", "name an account"), ("../info", "name an account"), ("nemo", "no account called 'nemo'")],
)
async def test_an_account_that_is_not_there_is_an_error_that_says_so(
    account: str, reason: str, hub: Emulator, tmp_path: Path
) -> None:
    async with reading(hub, tmp_path, account) as harness:
        result = await read_casts(make_turn(harness.agent), account)
    assert isinstance(result, ActionResult)
    assert not result.success
    assert reason in result.error


async def test_a_hub_that_wants_a_key_gets_it_and_no_message_shows_it(hub: Emulator, tmp_path: Path) -> None:
    hub.api_key = "key-of-the-hub"
    hub.say("kim", "Hello.")
    async with reading(hub, tmp_path, "kim") as harness:
        await harness.send("What did kim publish?")
        assert "Hello." not in "\n".join(harness.texts)
    async with reading(hub, tmp_path, "kim", FARCASTER_API_KEY="key-of-the-hub") as harness:
        await harness.send("What did kim publish?")
        shown = "\n".join(harness.texts)
    assert "Hello." in shown
    assert "key-of-the-hub" not in shown


@pytest.mark.parametrize(
    "fault",
    [FaultResponse("GET /v1/castsByFid", 503), FaultResponse("GET /v1/castsByFid", 200, "[1]")],
    ids=["503", "list"],
)
async def test_a_hub_that_fails_costs_only_the_action(fault: FaultResponse, hub: Emulator, tmp_path: Path) -> None:
    hub.faults.append(fault)
    hub.say("kim", "Hello.")
    async with reading(hub, tmp_path, "kim") as harness:
        result = await read_casts(make_turn(harness.agent), "kim")
    assert isinstance(result, ActionResult)
    assert not result.success
    assert "the hub answered" in result.error


def test_it_is_off_without_a_hub_which_a_character_file_cannot_name() -> None:
    for layers in ([], [Layer(CHARACTER_FILE, {"FARCASTER_HUB": "http://127.0.0.1:1"}, is_operator=False)]):
        assert plugin.missing_settings(Settings(layers)) == "set FARCASTER_HUB to the HTTP address of a hub"


async def test_it_obeys_the_contract_of_plugins(hub: Emulator) -> None:
    results = await check_plugin_contract(plugin, {"FARCASTER_HUB": hub.url})
    assert {result.rule: result.problems for result in results if result.problems} == {}
