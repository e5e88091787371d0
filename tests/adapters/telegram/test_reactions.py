"""Reactions of the bot on Telegram: those that a chat allows, replaced, removed, refused."""

import pytest

from bot import Outcome
from bot.platform import DeliveryState
from bot.testing import model_answer
from tests.adapters.telegram.conftest import OpenHarness


def react(emoji: str) -> str:
    return model_answer(actions=["REACT"], parameters={"emoji": emoji})


@pytest.mark.parametrize(
    ("allowed", "meant", "shown"),
    [
        (None, "👍", "👍"),
        (None, "❤️", "❤"),
        (None, "🥳", "🔥"),
        (("❤", "🔥"), "🎉", "🔥"),
        (("👎",), "🎉", ""),
        ((), "👍", ""),
    ],
)
async def test_the_nearest_reaction_that_the_chat_allows_is_set(
    open_harness: OpenHarness, allowed: tuple[str, ...] | None, meant: str, shown: str
) -> None:
    async with open_harness(react(meant)) as harness:
        alice, state = harness.people.add_user("Alice"), harness.telegram.state
        group = harness.people.add_group("The pier", alice)
        if allowed is not None:
            state.available_reactions[group["id"]] = allowed
        message = harness.people.say(group, alice, "@ada_bot thank you")
        [delivery] = await harness.wait_deliveries()
        assert delivery.state is (DeliveryState.SENT if shown else DeliveryState.FAILED)
        assert [receipt.outcome for receipt in await harness.wait_receipts()] == [Outcome.ANSWERED]
        reactions = state.reactions.get((group["id"], message["message_id"]), {})
        assert reactions == ({harness.bot.id: shown} if shown else {})
        assert harness.telegram.recorder.messages == []


async def test_prompts_name_what_a_chat_allows_once_it_has_refused_a_reaction(open_harness: OpenHarness) -> None:
    async with open_harness(react("😱")) as harness:
        alice, state = harness.people.add_user("Alice"), harness.telegram.state
        group, silent = (harness.people.add_group(name, alice) for name in ("The pier", "The lock"))
        state.available_reactions = {group["id"]: ("👍", "🔥"), silent["id"]: ()}
        for chat in (group, group, silent, silent):
            harness.people.say(chat, alice, "@ada_bot thank you")
            await harness.wait_deliveries()
        offered = [("React to" in request.prompt, "👍 🔥" in request.prompt) for request in harness.model.requests]
    assert [is_offered for is_offered, _ in offered] == [True, True, True, False]


@pytest.mark.parametrize("second", ["🔥", ""])
async def test_the_answer_to_an_edit_replaces_or_removes_the_reaction(open_harness: OpenHarness, second: str) -> None:
    answers = [react("👍"), react(second) if second else model_answer("Oh no.")]
    async with open_harness(answers, settings={"ON_EDIT": "rerun"}) as harness:
        alice = harness.people.add_user("Alice")
        message = harness.people.say(harness.people.open_private_chat(alice), alice, "it works")
        await harness.wait_deliveries()
        harness.people.edit(message, "it does not work")
        await harness.wait_deliveries()
        reactions = harness.telegram.state.reactions[message["chat"]["id"], message["message_id"]]
        assert list(reactions.values()) == [second] * bool(second)
        assert harness.telegram.recorder.texts() == ([] if second else ["Oh no."])


async def test_a_message_that_is_gone_gets_no_reaction(open_harness: OpenHarness) -> None:
    async with open_harness(lambda request: harness.telegram.state.messages.clear() or react("👍")) as harness:
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "thank you")
        [delivery] = await harness.wait_deliveries()
        assert delivery.state is DeliveryState.CANCELLED
