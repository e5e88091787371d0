"""Reactions of the bot on Mastodon: a post is favourited, once, and the favourite is taken back."""

from adapters.mastodon.emulator import Emulator
from bot import Outcome
from bot.platform import DeliveryState
from bot.testing import model_answer
from tests.adapters.mastodon.conftest import RunMastodon


def react(emoji: str) -> str:
    return model_answer(actions=["REACT"], parameters={"emoji": emoji})


async def test_what_pleases_is_a_favourite_in_place_of_words(emulator: Emulator, run_mastodon: RunMastodon) -> None:
    async with run_mastodon(react("🎉")) as mastodon:
        post_id = emulator.say("kim", f"@{emulator.username} it works, thank you")
        await mastodon.settle()
        receipt = await mastodon.receipt_of(post_id)
        [delivery] = await mastodon.deliveries()
    assert (receipt.outcome, delivery.state, delivery.content.text) == (Outcome.ANSWERED, DeliveryState.SENT, "⭐")
    assert emulator.posts[post_id].favourites == {emulator.username}
    assert emulator.posts_by(emulator.username) == []


async def test_what_does_not_please_is_no_favourite(emulator: Emulator, run_mastodon: RunMastodon) -> None:
    async with run_mastodon(react("👎")) as mastodon:
        post_id = emulator.say("kim", f"@{emulator.username} it broke")
        await mastodon.settle()
        assert (await mastodon.receipt_of(post_id)).outcome is Outcome.IGNORED
    assert emulator.posts[post_id].favourites == set()
