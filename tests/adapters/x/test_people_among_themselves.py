"""People answer each other below a mention, which X repeats in every reply: the account does not interrupt."""

import random

import pytest

from adapters.x.emulator import Emulator
from benchmarks.seeded_rooms import ANSWERS
from bot.models import Purpose, TextRequest
from bot.testing import model_answer
from tests.adapters.x.conftest import RunX

pytestmark = pytest.mark.long

PEOPLE = ("ines", "tobias", "keiko")
ROUNDS, ROUND = 20, 10
NO_LIMITS = {"MESSAGES_PER_PERSON": "100000", "MESSAGES_PER_ROOM": "100000", "MESSAGES_PER_WORLD": "100000"}


def decide(request: TextRequest) -> str:
    is_decision = request.purpose is Purpose.SHOULD_RESPOND
    return "<response><action>IGNORE</action></response>" if is_decision else model_answer("At six.")


async def test_on_x_people_are_undisturbed_below_a_mention_and_a_new_mention_is_answered(
    run_x: RunX, emulator: Emulator
) -> None:
    chance, sent = random.Random(3), 0
    async with run_x(decide, X_THREAD_DEPTH="0", **NO_LIMITS) as harness:
        emulator.say("sam", "@greenroom_bot when does it begin?")
        await harness.poll()
        newest = author = ""
        for _ in range(ROUNDS):
            for _ in range(ROUND):
                author = chance.choice([person for person in PEOPLE if person != author])
                above = newest or next(iter(emulator.state.posts))
                newest, sent = emulator.say(author, f"{chance.choice(ANSWERS)} {sent}", reply_to_id=above), sent + 1
            await harness.poll()
        assert emulator.bot_texts == ["At six."]
        emulator.say("keiko", "@greenroom_bot and when does it end?")
        await harness.poll()
        assert len(emulator.bot_texts) == 2
        receipts = list((await harness.receipts()).values())
        asked = [
            receipt for receipt in receipts if any(call.purpose == "should_respond" for call in receipt.model_calls)
        ]
        assert len(receipts) >= ROUNDS * ROUND * 0.9  # the newest 200
        assert len(asked) <= 0.05 * len(receipts)
