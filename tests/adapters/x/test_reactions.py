"""Reactions of the bot on X: a post is liked, once, and the like is taken back."""

from dataclasses import replace

from adapters.x.emulator import Emulator
from bot import Content, Outcome
from bot.platform import DeliveryState
from bot.testing import model_answer
from tests.adapters.x.conftest import RunX


def react(emoji: str) -> str:
    return model_answer(actions=["REACT"], parameters={"emoji": emoji})


async def test_what_pleases_is_a_like_in_place_of_words_and_can_be_taken_back(emulator: Emulator, run_x: RunX) -> None:
    async with run_x(react("🎉")) as harness:
        post_id = emulator.say("kim", "@greenroom_bot it works, thank you")
        await harness.poll()
        receipt = (await harness.receipts())[post_id]
        assert receipt.turn_id is not None
        [delivery] = await harness.agent.store.ledger.deliveries(turn_id=receipt.turn_id)
        assert (receipt.outcome, delivery.state, delivery.content.text) == (Outcome.ANSWERED, DeliveryState.SENT, "❤")
        assert emulator.state.posts[post_id].likes == {emulator.user_id}
        for _ in range(2):
            await harness.adapter.react(replace(delivery, content=Content(), replaces_external_id="❤"))
        assert emulator.state.posts[post_id].likes == set()
    assert [call.endpoint for call in emulator.writes].count("POST /2/tweets") == 0


async def test_a_dry_run_likes_nothing(emulator: Emulator, run_x: RunX) -> None:
    async with run_x(react("🎉"), X_DRY_RUN="true") as harness:
        post_id = emulator.say("kim", "@greenroom_bot it works, thank you")
        await harness.poll()
        assert (await harness.receipts())[post_id].outcome is Outcome.ANSWERED
        assert await harness.unsent() == []
    assert emulator.state.posts[post_id].likes == set()
