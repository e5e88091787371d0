"""A-01, A-16: a process killed at any stage answers each message once."""

from pathlib import Path

import pytest

from adapters.discord.emulator import Emulator
from tests.adapters.discord.server import TOKEN, EmulatedServer
from tests.chaos.program import ForkServer, Program

SECONDS = 60.0
STAGES = ["ingress.pre_commit", "send.pre_write", "send.post_write", "send.pre_record"]


@pytest.mark.long
@pytest.mark.failure("A-16")
async def test_killed_at_every_stage_nothing_is_lost_or_sent_twice(tmp_path: Path, fork_server: ForkServer) -> None:
    async with Emulator() as emulator:
        server = EmulatedServer(emulator)
        ledger, say = emulator.recorder, emulator.people.say
        settings = {
            "STREAMING": "false",
            "DISCORD_API_TOKEN": TOKEN,
            "DISCORD_API_BASE_URL": emulator.url,
            "PYTHONWARNINGS": "ignore",
        }
        program = Program(fork_server, tmp_path, settings, "discord", plugins=["sql"])
        async with program.running():
            await ledger.wait_until(lambda: ledger.counts["ready"] > 0, SECONDS)
            await say(server.direct(server.kim), server.kim, "hello")
            await ledger.wait_until(lambda: len(ledger.texts()) == 1, SECONDS)
        for stage in STAGES:
            async with program.running_until_killed(f"{stage}:1"):
                await say(server.direct(server.kim), server.kim, f"hello before {stage}")
        async with program.running() as bot:
            await ledger.wait_until(lambda: len(ledger.texts()) > len(STAGES), SECONDS)
            bot.stop()
            await bot.wait()
    answered = [message.room for message in ledger.messages]
    assert len(set(answered)) == len(answered) == 1 + len(STAGES)


@pytest.mark.failure("A-08", "A-16")
async def test_a_command_that_was_answered_before_its_response_was_marked_as_sent_is_shown_once(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    async with Emulator() as emulator:
        server = EmulatedServer(emulator)
        recorder, interactions = emulator.recorder, emulator.interactions
        settings = {"DISCORD_API_TOKEN": TOKEN, "DISCORD_API_BASE_URL": emulator.url, "PYTHONWARNINGS": "ignore"}
        program = Program(fork_server, tmp_path, settings, "discord", plugins=["sql"])
        async with program.running_until_killed("send.pre_record:1"):
            await recorder.wait_until(lambda: recorder.counts["ready"] > 0, SECONDS)
            interaction = await interactions.run_command(server.bot, server.robin, server.lobby, "forget-me")
        async with program.running() as bot:
            await recorder.wait_until(lambda: recorder.counts["answered"] == 2, SECONDS)
            bot.stop()
            await bot.wait()
    [shown] = recorder.responses[interaction]
    assert "cannot be undone" in shown["content"]
