"""Killed at every stage of an answer: the mention is answered, and answered once."""

import asyncio
from pathlib import Path

import pytest

from adapters.x.emulator import Emulator
from tests.chaos.program import TIMEOUT, ForkServer, Program

pytestmark = pytest.mark.long

STAGES = (  # what is spent is kept three times before the mention is
    "ingress.pre_commit:4",
    "send.pre_write:1",
    "send.post_write:1",
    "send.pre_record:1",
)


@pytest.mark.parametrize("stage", STAGES)
async def test_a_mention_is_answered_once_if_the_process_is_killed_at_any_stage(
    stage: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    async with Emulator() as emulator, asyncio.timeout(2 * TIMEOUT):
        program = Program(fork_server, tmp_path, emulator.environment, "x", plugins=["sql"])
        asked = emulator.say("bob", "@greenroom_bot hello Ada!")
        await program.run_until_killed(stage)
        looks = len(emulator.calls)
        async with program.running() as bot:
            await emulator.wait_until(
                lambda: bool(emulator.bot_texts) and any("mentions" in call.path for call in emulator.calls[looks:])
            )
            bot.stop()
            assert await bot.wait() == 0, program.output_end
        made = emulator.state.posts_by(emulator.user_id)
        assert [post.reply_to_id for post in made] == [asked], program.output_end
