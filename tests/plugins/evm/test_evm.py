"""Balances, names and transfers on a local Ethereum, with the real library."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import SecretStr

from bot import ChannelType, Content, Role, TemporaryError
from bot.models import Purpose
from bot.platform import NodeClient, fetch_price
from bot.plugin_system.loading import find_plugin, import_library
from bot.testing import AgentHarness, ScriptedModel, check_plugin_contract, model_answer, running_agent
from plugins.evm.network import EvmAccount
from tests.plugins.evm.anvil import (
    CHAIN_ID,
    ETHER,
    FRIEND,
    IDLE_TOKEN_CODE,
    KEY,
    NAME,
    SENDER,
    STRANGER,
    TOKEN,
    TOKEN_CODE,
    Anvil,
    needs_anvil,
    run_anvil,
)
from tests.plugins.transfers import ask, confirm, hostile_messages, model_of, obedient_model, play

Account = import_library("eth_account").Account

pytestmark = needs_anvil
HALF = ETHER // 2
ORDER = f"Send 0.5 to {FRIEND}"


@pytest.fixture
async def node() -> AsyncIterator[Anvil]:
    async with run_anvil() as running:
        yield running


def order(to: str = FRIEND, amount: str = "0.5", **arguments: str) -> ScriptedModel:
    """Return a model that orders one transfer, whatever it reads."""
    return model_of("EVM_TRANSFER", to=to, amount=amount, **arguments)


@asynccontextmanager
async def running(
    node: Anvil, folder: Path, model: ScriptedModel | None = None, **settings: str
) -> AsyncIterator[AgentHarness]:
    given = {
        "BOT_DATA_DIR": str(folder),
        "EVM_PROVIDER_URL": node.url,
        "EVM_CHAIN_ID": str(CHAIN_ID),
        "EVM_PRIVATE_KEY": KEY,
        "EVM_OPERATORS": "test:Alice",
        "EVM_ALLOWED": FRIEND,
        "EVM_DAILY_LIMIT": f"native:1,{TOKEN}:100",
        "EVM_CONFIRMATIONS": "1",
        **settings,
    }
    plugin = find_plugin("evm")  # as the loader does: only then is it trusted to report itself
    assert plugin is not None
    async with running_agent(plugin, model=model, settings=given) as harness:
        harness.agent.services[EvmAccount].poll_seconds = 0.02
        yield harness


@pytest.mark.long
async def test_a_transfer_shows_network_address_amount_and_fee_and_is_made_once_its_code_is_written(
    node: Anvil, tmp_path: Path
) -> None:
    async with running(node, tmp_path, order()) as harness:
        before = await node.balance(FRIEND)
        code = await ask(harness, ORDER)
        [question] = harness.texts
        assert all(part in question for part in (FRIEND, "0.5", f"chain {CHAIN_ID}", "a fee of at most 0.0", code))
        assert await node.transactions() == []
        report = await confirm(harness, code)
        assert await node.balance(FRIEND) == before + HALF
    [transaction] = await node.transactions()
    assert transaction["hash"] in report
    assert report.startswith(f"Transferred 0.5 of the native coin to {FRIEND}")


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("settings", "details", "arguments"),
    [
        ({}, {"role": Role.ADMIN}, {}),
        ({}, {"author": "Mallory"}, {}),
        ({"EVM_OPERATORS": ""}, {}, {}),
        ({"EVM_ALLOWED": ""}, {}, {}),
        ({"EVM_ALLOWED": STRANGER}, {}, {}),
        ({"EVM_DAILY_LIMIT": ""}, {}, {}),
        ({"EVM_DAILY_LIMIT": "native:0.4"}, {}, {}),
        ({"EVM_DAILY_LIMIT": f"{TOKEN}:100"}, {}, {}),
        ({"EVM_PRIVATE_KEY": ""}, {}, {}),
        ({"EVM_CHAIN_ID": "1"}, {}, {}),
        ({}, {}, {"amount": "-0.5"}),
        ({}, {}, {"amount": "0.5e0"}),
        ({}, {}, {"amount": "0.0000000000000000001"}),
        ({}, {}, {"amount": "0"}),
        ({}, {}, {"to": FRIEND[:-1]}),
        ({}, {}, {"to": FRIEND.replace("C8", "c8")}),  # its checksum is wrong
        ({}, {}, {"to": "nowhere.eth"}),
        ({}, {"text": "Send some"}, {}),
        ({}, {"text": f"Send 0.5 to my friend\n> {FRIEND}"}, {}),
    ],
)
async def test_an_order_outside_of_the_rules_is_refused_without_a_question(
    node: Anvil, tmp_path: Path, settings: dict[str, str], details: dict[str, Any], arguments: dict[str, str]
) -> None:
    text = details.pop("text", f"Send {arguments.get('amount', '0.5')} to {arguments.get('to', FRIEND)}")
    async with running(node, tmp_path, order(**arguments), **settings) as harness:
        assert await ask(harness, text, **details) == ""
    assert await node.transactions() == []


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty database of each kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'greenroom.db'}"


@pytest.mark.long
async def test_what_left_in_a_day_counts_against_the_limit_also_after_a_restart(
    node: Anvil, tmp_path: Path, database: str
) -> None:
    for _ in range(2):
        async with running(node, tmp_path, order(), DATABASE_URL=database) as harness:
            assert (await confirm(harness, await ask(harness, ORDER))).startswith("Transferred")
    async with running(node, tmp_path, order(amount="0.1"), DATABASE_URL=database) as harness:
        report = await confirm(harness, await ask(harness, f"Send 0.1 to {FRIEND}"))
    assert "the daily limit is 1, and 0 of it is left" in report
    assert len(await node.transactions()) == 2


async def price(request: web.Request) -> web.Response:
    return web.json_response({"ethereum": {"usd": 2100.5}})


async def deep(request: web.Request) -> web.Response:
    return web.Response(text="[" * (5 << 20))


async def test_a_price_is_read_exactly_and_a_response_that_is_too_large_or_no_response_is_an_outage() -> None:
    app = web.Application()
    app.router.add_get("/price", price)
    app.router.add_post("/", deep)
    async with TestServer(app) as server, running_agent() as harness:
        url = str(server.make_url("/price"))
        assert await fetch_price(harness.agent, url, "ethereum.usd") == "2,100.5 usd"
        assert await fetch_price(harness.agent, url, "ethereum.eur") == ""
        for path in ("/", "/price"):
            async with NodeClient(SecretStr(str(server.make_url(path))), {}) as client:
                with pytest.raises(TemporaryError, match="cannot be read"):
                    await client.call("eth_chainId")


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "report"), [(TOKEN_CODE, "Transferred 12 of token"), (IDLE_TOKEN_CODE, "did not move")]
)
async def test_a_token_is_transferred_and_a_token_that_does_not_move_is_not_reported_as_transferred(
    node: Anvil, tmp_path: Path, code: str, report: str
) -> None:
    await node.add_token(code)
    async with running(node, tmp_path, order(amount="12", token=TOKEN)) as harness:
        assert report in await confirm(harness, await ask(harness, f"Send 12 of {TOKEN} to {FRIEND}"))
    if code == TOKEN_CODE:
        assert await node.token_balance(FRIEND) == 12 * 10**6


@pytest.mark.long
async def test_a_name_is_shown_as_its_address(node: Anvil, tmp_path: Path) -> None:
    await node.add_name(FRIEND)
    async with running(node, tmp_path, order(to=NAME)) as harness:
        code = await ask(harness, f"Send 0.5 to {NAME}")
        assert FRIEND in harness.texts[0]
        await node.add_name(STRANGER)
        assert FRIEND in await confirm(harness, code)
    assert [item["to"] for item in await node.transactions()] == [FRIEND.lower()]


@pytest.mark.long
async def test_a_dry_run_sends_nothing(node: Anvil, tmp_path: Path) -> None:
    async with running(node, tmp_path, order(), EVM_DRY_RUN="true") as harness:
        code = await ask(harness, ORDER)
        assert harness.texts[0].startswith("Dry run")
        assert "nothing was sent" in await confirm(harness, code)
    assert await node.transactions() == []


@pytest.mark.long
async def test_a_fee_above_the_confirmed_fee_is_refused(node: Anvil, tmp_path: Path) -> None:
    async with running(node, tmp_path, order()) as harness:
        code = await ask(harness, ORDER)
        await node.call("anvil_setNextBlockBaseFeePerGas", hex(10**12))
        await node.call("evm_mine")
        assert "the fee has risen" in await confirm(harness, code)
    assert await node.transactions() == []


@asynccontextmanager
async def unconfirmed(folder: Path) -> AsyncIterator[tuple[Anvil, AgentHarness]]:
    """Run a bot that has sent a transfer to a node which makes no blocks."""
    async with run_anvil("--no-mining") as node, running(node, folder, order()) as harness:
        assert "under way" in await confirm(harness, await ask(harness, ORDER), is_final=False)
        await node.wait_for_pending()
        yield node, harness


@pytest.mark.long
async def test_a_transfer_that_no_block_contains_is_not_called_done_delays_the_next_transfer_and_is_reported_later(
    tmp_path: Path,
) -> None:
    async with unconfirmed(tmp_path) as (node, harness):
        assert "try again after" in await confirm(harness, await ask(harness, ORDER))
        count = len(harness.texts)
        await node.call("evm_mine")
        assert (await harness.adapter.wait_until_sent(count + 1))[-1].startswith("Transferred 0.5")
        assert len(await node.transactions()) == 1


@pytest.mark.long
async def test_a_transfer_that_the_node_has_forgotten_is_sent_again_with_the_same_bytes(tmp_path: Path) -> None:
    async with unconfirmed(tmp_path) as (node, harness):
        count = len(harness.texts)
        [[forgotten]] = [found.values() for found in (await node.call("txpool_content"))["pending"].values()]
        await node.call("anvil_dropTransaction", forgotten["hash"])
        await node.wait_for_pending()
        await node.call("evm_mine")
        await harness.adapter.wait_until_sent(count + 1)
        assert [item["hash"] for item in await node.transactions()] == [forgotten["hash"]]


@pytest.mark.long
async def test_a_transfer_whose_nonce_another_wallet_has_used_has_failed(tmp_path: Path) -> None:
    async with unconfirmed(tmp_path) as (node, harness):
        count = len(harness.texts)
        other = {"to": STRANGER, "value": 1, "nonce": 0, "gas": 21_000, "chainId": CHAIN_ID}
        fees = {"maxFeePerGas": 10**12, "maxPriorityFeePerGas": 10**12}
        signed = Account.sign_transaction(other | fees, KEY)
        await node.call("eth_sendRawTransaction", signed.raw_transaction.to_0x_hex())
        await node.call("anvil_mine", hex(20))
        assert "has taken its place" in (await harness.adapter.wait_until_sent(count + 1))[-1]
        assert [item["to"] for item in await node.transactions()] == [STRANGER.lower()]


@pytest.mark.long
@pytest.mark.parametrize("address", ["", FRIEND])
async def test_balances_need_no_key(node: Anvil, tmp_path: Path, address: str) -> None:
    call = model_answer(actions=["EVM_BALANCE"], parameters={"address": address})
    async with running(node, tmp_path, ScriptedModel([call, model_answer("So much.")]), EVM_PRIVATE_KEY="") as harness:
        await harness.send("How much is it?", author="Robin")
        [request] = harness.model.requests_for(Purpose.SUMMARY)
    expected = f"{FRIEND} has 10000 of the native coin" if address else "no account of its own here"
    assert expected in request.prompt


async def test_the_key_is_read_from_an_encrypted_file_and_shown_nowhere(node: Anvil, tmp_path: Path) -> None:
    keystore = tmp_path / "key.json"
    keystore.write_text(json.dumps(Account.encrypt(KEY, "a long password", iterations=2)))
    settings = {"EVM_PRIVATE_KEY": "", "EVM_KEYSTORE": str(keystore), "EVM_KEYSTORE_PASSWORD": "a long password"}
    async with running(node, tmp_path, order(), **settings) as harness:
        assert harness.agent.services[EvmAccount].address == SENDER
    settings |= {"EVM_KEYSTORE_PASSWORD": "a wrong one"}
    with pytest.raises(LookupError, match="EVM_KEYSTORE: the key cannot be read"):
        async with running(node, tmp_path, order(), **settings):
            pass


@pytest.mark.matrix(3)
@pytest.mark.parametrize(("text", "kind"), hostile_messages(FRIEND))
async def test_a_model_that_obeys_injected_text_in_the_owners_turns_moves_nothing(
    node: Anvil, tmp_path: Path, text: Content, kind: ChannelType
) -> None:
    async with running(node, tmp_path, obedient_model("EVM_TRANSFER", FRIEND)) as harness:
        await play(harness, FRIEND, text, kind)
    assert await node.transactions() == []


async def test_the_plugin_obeys_the_contract_of_all_plugins() -> None:
    plugin = find_plugin("evm")
    assert plugin is not None
    settings = {"EVM_PROVIDER_URL": "http://127.0.0.1:9"}
    assert [result for result in await check_plugin_contract(plugin, settings) if result.problems] == []
