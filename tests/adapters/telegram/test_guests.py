"""Guest mode: a question in a chat of which the bot is no member is answered there, once."""

from collections.abc import AsyncIterator

import pytest

from bot import ChannelType, Outcome
from bot.platform import DeliveryState
from bot.testing import model_answer
from tests.adapters.telegram.conftest import OpenHarness, TelegramHarness

ON = {"TELEGRAM_GUEST": "on"}


@pytest.fixture
async def harness(open_harness: OpenHarness) -> AsyncIterator[TelegramHarness]:
    async with open_harness(settings=ON) as harness:
        yield harness


async def test_a_question_to_a_guest_is_answered_once_in_a_room_of_its_own(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    group = harness.people.add_group("Strangers", alice)
    del harness.telegram.state.members[group["id"]][harness.bot.id]
    asked = harness.people.ask_guest(group, alice, "@ada_bot ahoy")
    assert await harness.wait_texts(1, group) == ["You said: @ada_bot ahoy"]
    [receipt] = await harness.wait_receipts()
    assert (receipt.outcome, receipt.rule) == (Outcome.ANSWERED, "mention")
    [call] = harness.telegram.recorder.calls_of("answerGuestQuery")
    assert call["guest_query_id"] == asked["guest_query_id"]
    assert not harness.telegram.recorder.calls_of("sendMessage")
    assert not harness.telegram.recorder.calls_of("getChatAdministrators")
    room = await harness.store.worlds.room(receipt.room_id)
    assert room is not None
    assert room.type is ChannelType.GROUP


@pytest.mark.parametrize("words", ["tide " * 2000, "x" * 5000])
async def test_a_guest_sends_only_the_first_part_of_a_long_answer(open_harness: OpenHarness, words: str) -> None:
    async with open_harness(lambda request: model_answer(words), settings=ON) as harness:
        alice = harness.people.add_user("Alice")
        private = {"id": alice["id"], "type": "private", "first_name": "Alice"}
        harness.people.ask_guest(private, alice, "@ada_bot the tides, please")
        deliveries = await harness.wait_deliveries()
        assert [part.state for part in deliveries][:2] == [DeliveryState.SENT, DeliveryState.FAILED]
        assert "one message only" in deliveries[1].cause
        assert len(harness.telegram.recorder.texts()) == 1
