"""Killed sixty times with mentions in flight: each is answered, and answered once."""

import asyncio
from pathlib import Path

import pytest

from adapters.mastodon.emulator import Emulator
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
ROUNDS = 10


async def test_after_sixty_kills_no_mention_is_lost_and_none_is_answered_twice(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    async with Emulator() as emulator, asyncio.timeout(ROUNDS * len(STAGES) * TIMEOUT):
        program = Program(fork_server, tmp_path, emulator.environment, "mastodon", plugins=["sql"])
        asked: list[str] = []
        for number in range(ROUNDS * len(STAGES)):
            stage = STAGES[number % len(STAGES)]
            for person in ("kim", "robin"):
                visibility = ("public", "unlisted", "private", "direct")[number % 4]
                asked.append(emulator.say(f"{person}{number}", "@greenroom_bot hello Ada!", visibility=visibility))
            await program.run_until_killed(f"{stage}:1")
        async with program.running() as bot:
            await emulator.wait_until(lambda: {post.reply_to_id for post in emulator.bot_posts} >= set(asked))
            bot.stop()
            assert await bot.wait() == 0, program.output_end
    assert program.starts == len(STAGES) * ROUNDS + 1
    assert sorted(post.reply_to_id for post in emulator.bot_posts) == sorted(asked), program.output_end
    assert all(post.visibility == emulator.posts[post.reply_to_id].visibility for post in emulator.bot_posts)
