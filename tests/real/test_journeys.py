"""User journeys with a real model of 135 million parameters and a context of 2,048 tokens.

It writes nonsense, so that only the structure is asserted: every message is answered, once, with a text without markup.
"""

import re
from collections.abc import Sequence

import pytest

from bot import Outcome
from bot.testing.emulator import ShownMessage
from tests.chaos.database import BotDatabase, ReceiptRow
from tests.real.conftest import RealHarness, RealModel, RunProgram

MAX_LENGTH = 4096  # of a message on Telegram
# What belongs to the form of an answer or to the template of a model, and is not for people.
MARKUP = re.compile(r"</?(?:response|text|thought|actions?|think|reasoning)\b|<\|\w*\|?>|\"thought\"\s*:", re.I)
QUESTIONS = (
    "Hello! How are you?",
    "Tell me about the sea.",
    "What do you like to eat?",
    "Tell me a story about a lighthouse.",
    "Why is the sky blue?",
    "What is 2 + 2?",
    "Where do you live?",
    "Name three animals.",
    "What did I ask you first?",
    "Good night!",
)
LONG_LINE = "The keeper of the lighthouse went up the stairs, lit the lamp, wrote the weather down and waited. "
PARAGRAPH = LONG_LINE * 12  # about 300 tokens


def check_answered(harness: RealHarness, receipts: Sequence[ReceiptRow], count: int) -> None:
    """Assert that `count` messages were answered, each by one turn whose texts may be shown to people."""
    outcomes = [(receipt.outcome, receipt.reason) for receipt in receipts]
    assert [outcome for outcome, _ in outcomes] == [Outcome.ANSWERED] * count, outcomes
    states = [part.state for part in BotDatabase(harness.program.database).deliveries()]
    assert set(states) == {"sent"}, states
    assert {receipt.turn for receipt in receipts} == {
        part.turn for part in BotDatabase(harness.program.database).deliveries()
    }
    check_shown(harness.telegram.recorder.messages)


def check_shown(messages: Sequence[ShownMessage]) -> None:
    """Assert that every text that was ever shown is one for people, and fits into a message."""
    for text in (text for message in messages for text in message.texts):
        assert text.strip()
        assert len(text.encode("utf-16-le")) // 2 <= MAX_LENGTH
        assert not MARKUP.search(text), text


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_ten_messages_of_a_person_get_ten_answers(run_program: RunProgram, model: RealModel) -> None:
    async with run_program(model, STREAMING="false") as harness:
        kim = harness.telegram.people.add_user("Kim")
        chat = harness.telegram.people.open_private_chat(kim)
        for number, question in enumerate(QUESTIONS, start=1):
            harness.telegram.people.say(chat, kim, question)
            await harness.wait_texts(number, chat)
        receipts = await harness.stop()
        check_answered(harness, receipts, len(QUESTIONS))
        assert len(harness.telegram.recorder.messages) == len(QUESTIONS)


@pytest.mark.long
async def test_in_a_group_who_addresses_the_bot_is_answered_with_a_reply(
    run_program: RunProgram, model: RealModel
) -> None:
    async with run_program(model, STREAMING="false") as harness:
        people = harness.telegram.people
        kim, robin = people.add_user("Kim"), people.add_user("Robin")
        group = people.add_group("The group", kim, robin)
        asked = people.say(group, robin, "@ada_bot when does the sun rise?")
        await harness.wait_texts(1, group)
        [shown] = harness.telegram.recorder.messages
        people.say(group, kim, "So late?", reply_to=asked)
        people.say(group, kim, "Are you sure?", reply_to=shown.message)
        await harness.wait_texts(2, group)
        receipts = await harness.stop()
        assert [receipt.rule for receipt in receipts] == ["mention", "not addressed", "reply"]
        check_answered(harness, [receipts[0], receipts[2]], 2)
        [first, _] = harness.telegram.recorder.calls_of("sendMessage")
        assert first["reply_parameters"]["message_id"] == asked["message_id"]


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_messages_longer_than_the_context_together_are_all_answered(
    run_program: RunProgram, model: RealModel
) -> None:
    async with run_program(model, STREAMING="false") as harness:
        kim = harness.telegram.people.add_user("Kim")
        chat = harness.telegram.people.open_private_chat(kim)
        for number, question in enumerate(QUESTIONS[:6], start=1):
            harness.telegram.people.say(chat, kim, f"{PARAGRAPH}{question}")
            await harness.wait_texts(number, chat)
        check_answered(harness, await harness.stop(), 6)


@pytest.mark.real
@pytest.mark.timeout(900)
async def test_a_message_longer_than_the_context_is_answered(run_program: RunProgram, model: RealModel) -> None:
    async with run_program(model, STREAMING="false") as harness:
        kim = harness.telegram.people.add_user("Kim")
        chat = harness.telegram.people.open_private_chat(kim)
        for _ in range(4):  # Telegram splits what a person pastes
            harness.telegram.people.say(chat, kim, (LONG_LINE * 40)[:MAX_LENGTH])
        await harness.wait_texts(1, chat)
        receipts = await harness.stop()
        assert receipts[-1].outcome == Outcome.ANSWERED, receipts
        check_shown(harness.telegram.recorder.messages)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_two_rooms_are_answered_by_a_server_that_works_on_a_single_request_at_a_time(
    run_program: RunProgram, model: RealModel
) -> None:
    async with run_program(model, STREAMING="false") as harness:
        people = harness.telegram.people
        persons = [people.add_user(name) for name in ("Kim", "Robin")]
        chats = [people.open_private_chat(person) for person in persons]
        for number, question in enumerate(QUESTIONS[:3], start=1):
            for chat, person in zip(chats, persons, strict=True):
                people.say(chat, person, question)
            for chat in chats:
                await harness.wait_texts(number, chat)
        check_answered(harness, await harness.stop(), 6)
        assert [len(harness.telegram.recorder.texts(chat["id"])) for chat in chats] == [3, 3]


@pytest.mark.real
@pytest.mark.timeout(900)
async def test_a_conversation_of_a_hundred_messages_has_no_error(run_program: RunProgram, model: RealModel) -> None:
    async with run_program(model, STREAMING="false") as harness:
        kim = harness.telegram.people.add_user("Kim")
        chat = harness.telegram.people.open_private_chat(kim)
        for number in range(50):  # and as many answers
            harness.telegram.people.say(chat, kim, f"{QUESTIONS[number % len(QUESTIONS)]} ({number + 1})")
            await harness.wait_texts(number + 1, chat)
        check_answered(harness, await harness.stop(), 50)
        assert " ERROR " not in harness.program.output
        assert len(harness.telegram.recorder.messages) == 50
