"""Killed sixty times around transfers that are ordered on Discord: each is made once, and reported once it is done."""

from pathlib import Path

import pytest

from adapters.discord.emulator import Emulator
from tests.plugins.evm.anvil import CHAIN_ID, FRIEND, KEY, needs_anvil, run_anvil
from tests.plugins.transfers import KilledBot, fork_server_with


@needs_anvil
@pytest.mark.timeout(900)
@pytest.mark.long
@pytest.mark.parametrize("rounds", [1, 12])
async def test_a_transfer_is_made_once_and_reported_wherever_the_process_is_killed(tmp_path: Path, rounds: int) -> None:
    amounts = [f"0.0{number:02}" for number in range(1, rounds + 1)]
    with fork_server_with(tmp_path, "eth_account", "eth_utils.address") as fork_server:
        async with Emulator() as emulator, run_anvil() as node:
            settings = {
                "EVM_PROVIDER_URL": node.url,
                "EVM_CHAIN_ID": str(CHAIN_ID),
                "EVM_PRIVATE_KEY": KEY,
                "EVM_ALLOWED": FRIEND,
                "EVM_DAILY_LIMIT": "native:1",
                "EVM_CONFIRMATIONS": "1",
            }
            bot = KilledBot(tmp_path, emulator, fork_server, FRIEND, settings)
            before = await node.balance(FRIEND)
            for amount in amounts:
                await bot.transfer(amount)
            await bot.finish()
            values = [int(item["value"], 16) for item in await node.transactions()]
            assert await node.balance(FRIEND) - before == sum(values)
    assert values == [number * 10**15 for number in range(1, rounds + 1)]
    assert bot.reported == [amount.rstrip("0") for amount in amounts]
