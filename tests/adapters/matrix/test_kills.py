"""Killed with messages in flight on a real Synapse: each message is answered, and answered once."""

import random
from pathlib import Path

import pytest

from tests.adapters.matrix.conftest import matrix_settings, wait_until
from tests.adapters.matrix.synapse import Person
from tests.chaos.program import ForkServer, Program

pytestmark = pytest.mark.long

KILLS, ROOMS, SEED = 60, 4, 51
NO_LIMITS = dict.fromkeys(("MESSAGES_PER_PERSON", "MESSAGES_PER_ROOM", "MESSAGES_PER_WORLD"), "100000")
STAGES = (
    "ingress.pre_commit",
    "ingress.post_commit",
    "turn.claimed",
    "outbox.committed",
    "send.pre_write",
    "send.post_write",
    "send.pre_record",
)


@pytest.fixture
def program(tmp_path: Path, fork_server: ForkServer, bot: Person) -> Program:
    """Return the program, which answers each message by itself."""
    settings = {**matrix_settings(bot), "STREAMING": "false", "LATEST_RESPONSE": "queue", **NO_LIMITS}
    return Program(fork_server, tmp_path, settings, "matrix", plugins=["sql"])


@pytest.mark.failure("A-01", "A-16")
@pytest.mark.timeout(1800)
async def test_after_60_kills_no_message_is_lost_and_no_answer_is_doubled(
    program: Program, bot: Person, kim: Person
) -> None:
    chance = random.Random(SEED)
    rooms = [await kim.create_room(bot.user_id, name=f"Room {number}") for number in range(ROOMS)]
    asked = []
    for number in range(KILLS):
        for room_id in chance.sample(rooms, 2):
            asked.append(await kim.say(room_id, "Ada: hello", bot.user_id))
        stage = STAGES[number % len(STAGES)]
        await program.run_until_killed(f"{stage}:{1 if stage.startswith('ingress') else chance.randint(1, 2)}")

    async def answered() -> list[str]:
        """Return the messages to which those of the bot reply."""
        sent = [event for room_id in rooms for event in await kim.messages_of(room_id, bot.user_id)]
        return [event["content"]["m.relates_to"]["m.in_reply_to"]["event_id"] for event in sent]

    async def is_done() -> bool:
        return len(await answered()) >= len(asked)

    async with program.running() as process:
        # It reads all rooms, which would keep the server from serving the bot if it did so all the time.
        await wait_until(is_done, timeout=300.0, pause=1.0)
        process.stop()
        await process.wait()
    assert sorted(await answered()) == sorted(asked)
