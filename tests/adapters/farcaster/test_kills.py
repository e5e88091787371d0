"""Killed twenty-four times with mentions in flight: each is answered, and answered once."""

import asyncio
from pathlib import Path

import pytest

from adapters.farcaster.emulator import Emulator
from tests.chaos.program import TIMEOUT, ForkServer, Program

pytestmark = pytest.mark.long

STAGES = (
    "ingress.pre_commit",
    "ingress.post_commit",
    "outbox.committed",
    "send.pre_write",
    "send.post_write",
    "send.pre_record",
)
ROUNDS = 4


async def test_after_twenty_four_kills_no_mention_is_lost_and_none_is_answered_twice(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    async with Emulator() as emulator, asyncio.timeout(ROUNDS * len(STAGES) * TIMEOUT):
        environment = {**emulator.environment, "FARCASTER_POLL_INTERVAL": "1"}
        program = Program(fork_server, tmp_path, environment, "farcaster", plugins=["sql"])
        asked: list[str] = []
        for number in range(ROUNDS * len(STAGES)):
            stage = STAGES[number % len(STAGES)]
            asked += [emulator.say(f"{person}{number}", "@greenroom hello Ada!").hash for person in ("kim", "robin")]
            await program.run_until_killed(f"{stage}:1")
        async with program.running() as bot:
            await emulator.wait_until(
                lambda: {cast.parent[1] for cast in emulator.bot_casts if cast.parent} >= set(asked)
            )
            bot.stop()
            assert await bot.wait() == 0, program.output_end
    assert program.starts == len(STAGES) * ROUNDS + 1
    answered = [cast.parent[1] for cast in emulator.bot_casts if cast.parent]
    assert sorted(answered) == sorted(asked), program.output_end
    assert len(emulator.bot_casts) == len(asked)
    # Some parts were submitted again after a kill, as the same casts.
    assert len(emulator.submissions) > len(set(emulator.submissions)) == len(asked)
