"""Killed at every stage of an answer: the mention is answered, and answered once."""

import asyncio
from pathlib import Path

import pytest

from adapters.x.emulator import Emulator
from adapters.x.emulator.state import PostRecord
from tests.chaos.program import TIMEOUT, ForkServer, Program

pytestmark = pytest.mark.long

LABEL = "🤖 AI: "
STAGES = (  # what is spent is kept three times before the mention is
    "ingress.pre_commit:4",
    "send.pre_write:1",
    "send.post_write:1",
    "send.pre_record:1",
)


async def answer_after_a_kill(program: Program, emulator: Emulator, stage: str, posts: int) -> list[PostRecord]:
    """Kill the bot at a stage, and start it again; return its posts once it has looked for mentions anew."""
    await program.run_until_killed(stage)
    looks = len(emulator.calls)
    async with program.running() as bot:
        await emulator.wait_until(
            lambda: len(emulator.bot_texts) >= posts and any("mentions" in call.path for call in emulator.calls[looks:])
        )
        bot.stop()
        assert await bot.wait() == 0, program.output_end
    return emulator.state.posts_by(emulator.user_id)


@pytest.mark.parametrize("stage", STAGES)
async def test_a_mention_is_answered_once_if_the_process_is_killed_at_any_stage(
    stage: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    async with Emulator() as emulator, asyncio.timeout(2 * TIMEOUT):
        program = Program(fork_server, tmp_path, emulator.environment, "x", plugins=["sql"])
        asked = emulator.say("bob", "@greenroom_bot hello Ada!")
        made = await answer_after_a_kill(program, emulator, stage, 1)
        assert [post.reply_to_id for post in made] == [asked], program.output_end


@pytest.mark.parametrize(
    "stage", ["outbox.committed:1", "care.referred:1", *STAGES[1:], "send.pre_write:2", "send.pre_record:2"]
)
async def test_a_person_in_distress_is_referred_once_and_each_post_labelled_if_the_process_is_killed_at_any_stage(
    stage: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    async with Emulator() as emulator, asyncio.timeout(2 * TIMEOUT):
        settings = {**emulator.environment, "CARE_TEXT": "Call Mary.", "AI_NOTICE_POSTS": "on"}
        program = Program(fork_server, tmp_path, settings, "x", plugins=["sql"])
        asked = emulator.say("bob", "@greenroom_bot I want to die")
        made = await answer_after_a_kill(program, emulator, stage, 2)
        assert [post.reply_to_id for post in made] == [asked, asked], program.output_end
        assert [post.text.count(LABEL) for post in made] == [1, 1]
        assert [post.text.endswith("Call Mary.") for post in made] == [True, False]
