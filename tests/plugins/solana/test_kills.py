"""Killed sixty times around transfers that are ordered on Discord: each is made once, and reported once it is done."""

from pathlib import Path

import pytest

from adapters.discord.emulator import Emulator
from tests.plugins.solana.chain import FIRST_BLOCK, FRIEND, KEY, SOL, run_chain
from tests.plugins.transfers import KilledBot, fork_server_with


@pytest.mark.timeout(900)
@pytest.mark.long
@pytest.mark.parametrize("rounds", [1, 12])
async def test_a_transfer_is_made_once_and_reported_wherever_the_process_is_killed(tmp_path: Path, rounds: int) -> None:
    amounts = [f"0.0{number:02}" for number in range(1, rounds + 1)]
    with fork_server_with(tmp_path, "plugins.solana.transactions") as fork_server:
        async with Emulator() as emulator, run_chain() as chain:
            settings = {
                "SOLANA_RPC_URL": chain.url,
                "SOLANA_NETWORK": FIRST_BLOCK,
                "SOLANA_PRIVATE_KEY": str(KEY),
                "SOLANA_ALLOWED": FRIEND,
                "SOLANA_DAILY_LIMIT": "native:1",
            }
            bot = KilledBot(tmp_path, emulator, fork_server, FRIEND, settings)
            for number, amount in enumerate(amounts, 1):
                await bot.transfer(amount)
                assert len(chain.landed) == number
            await bot.finish()
            assert chain.balance(FRIEND) == sum(range(1, rounds + 1)) * SOL // 1000
    assert len(chain.landed) == rounds
    assert bot.reported == [amount.rstrip("0") for amount in amounts]
