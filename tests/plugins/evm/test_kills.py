"""Killed sixty times around transfers that are ordered on Discord: each is made once, and reported once it is done."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from adapters.discord.emulator import Emulator
from tests.adapters.discord.server import TOKEN as BOT_TOKEN
from tests.adapters.discord.server import EmulatedServer
from tests.chaos.program import ForkServer, Program
from tests.conftest import PRELOADED
from tests.plugins.evm.anvil import CHAIN_ID, FRIEND, KEY, Anvil, needs_anvil, run_anvil

SECONDS = 30.0
POINTS = ("transfer.reserved", "transfer.signed", "transfer.sent", "transfer.final", "transfer.reported")


def settings(emulator: Emulator, server: EmulatedServer, node: Anvil) -> dict[str, str]:
    return {
        "DISCORD_API_TOKEN": BOT_TOKEN,
        "DISCORD_API_BASE_URL": emulator.url,
        "STREAMING": "false",
        "SHOULD_RESPOND_BYPASS_SOURCES": "discord",  # a mention would come first
        "PYTHONWARNINGS": "ignore",
        "EVM_PROVIDER_URL": node.url,
        "EVM_CHAIN_ID": str(CHAIN_ID),
        "EVM_PRIVATE_KEY": KEY,
        "EVM_OPERATORS": f"discord:{server.kim}",
        "EVM_ALLOWED": FRIEND,
        "EVM_DAILY_LIMIT": "native:1",
        "EVM_CONFIRMATIONS": "1",
    }


def find_codes(texts: Iterable[str]) -> list[str]:
    """Return the codes of the questions that show the recipient."""
    return [code for text in texts if FRIEND in text for code in re.findall(r"confirm ([A-Z0-9]{5})", text)]


async def order(server: EmulatedServer, amount: str) -> None:
    """Order a transfer as the owner of the server, and write the code of the question."""
    recorder, say = server.emulator.recorder, server.emulator.people.say
    asked = len(find_codes(recorder.texts()))
    text = f"EVM_TRANSFER to={FRIEND} amount={amount}"  # the offline model calls what a message begins with
    await say(server.lobby, server.kim, text)
    await recorder.wait_until(lambda: len(find_codes(recorder.texts())) > asked, SECONDS)
    code = find_codes(recorder.texts())[-1]
    await say(server.lobby, server.kim, f"{server.call} confirm {code}")


@needs_anvil
@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.long)])
async def test_a_transfer_is_made_once_and_reported_wherever_the_process_is_killed(tmp_path: Path, rounds: int) -> None:
    modules = (*PRELOADED, "eth_account", "eth_utils.address")  # they take seconds to import
    with ForkServer(tmp_path / "server", *modules) as fork_server:
        await kill_and_check(tmp_path, fork_server, rounds)


async def kill_and_check(tmp_path: Path, fork_server: ForkServer, rounds: int) -> None:
    """Kill the bot at each point of each transfer, and check what is on the chain and in the room."""
    async with Emulator() as emulator, run_anvil() as node:
        server, recorder = EmulatedServer(emulator), emulator.recorder
        program = Program(fork_server, tmp_path, settings(emulator, server, node), "discord", plugins=["sql"])
        before, amounts = await node.balance(FRIEND), [f"0.0{number:02}" for number in range(1, rounds + 1)]
        for amount in amounts:
            for point in POINTS:
                recorder.counts["ready"] = recorder.counts["resume"] = 0
                async with program.running_until_killed(f"{point}:1"):
                    if point == POINTS[0]:
                        await recorder.wait_until(lambda: recorder.counts["ready"] + recorder.counts["resume"], SECONDS)
                        await order(server, amount)
            done = [text for text in recorder.texts() if text.startswith("Transferred")]
            assert len(done) <= amounts.index(amount)  # this one is not reported yet
        async with program.running() as bot:
            await recorder.wait_until(
                lambda: sum(text.startswith("Transferred") for text in recorder.texts()) >= rounds, SECONDS
            )
            bot.stop()
            assert await bot.wait() == 0, program.output_end
        values = [int(item["value"], 16) for item in await node.transactions()]
        assert await node.balance(FRIEND) - before == sum(values)
    assert values == [number * 10**15 for number in range(1, rounds + 1)]
    reported = [text for text in recorder.texts() if text.startswith("Transferred")]
    assert [text.split()[1] for text in reported] == [amount.rstrip("0") for amount in amounts]
