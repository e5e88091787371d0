"""Inline mode: a question after the bot's @name in any chat is answered to the person who types."""

from typing import Any

import pytest

from adapters.telegram.inline import MIN_LENGTH, PAUSE_SECONDS
from bot import Outcome
from bot.models import Purpose
from bot.platform import DeliveryState
from bot.testing import model_answer
from tests.adapters.telegram.conftest import OpenHarness, SkippingClock, TelegramHarness

ON = {"TELEGRAM_INLINE": "on"}


def answer(request: Any) -> str:
    """Answer every request with the same words."""
    return model_answer("Low at **six**.")


async def wait_answer(harness: TelegramHarness, query: str) -> Any:
    """Wait for the answer to an inline query and return its parameters."""
    answers = harness.telegram.recorder.inline_answers
    await harness.telegram.recorder.wait_until(lambda: query in answers)
    return answers[query]


async def test_an_inline_question_is_answered_with_an_article_for_its_person_only(open_harness: OpenHarness) -> None:
    async with open_harness(answer, settings=ON) as harness:
        kim = harness.people.add_user("Kim")
        shown = await wait_answer(harness, harness.people.type_inline(kim, "when is low tide?"))
        assert (shown["is_personal"], shown["cache_time"]) == (True, 300)
        [result] = shown["results"]
        assert (result["type"], result["input_message_content"]["message_text"]) == ("article", "Low at six.")
        await harness.wait_confirmed()
        assert await harness.store.ledger.receipts() == [], "an answer that is not sent leaves no receipt"
        [request] = harness.model.requests_for(Purpose.INLINE)
        assert "when is low tide?" in request.prompt


async def test_what_a_person_types_before_a_pause_reaches_no_model(open_harness: OpenHarness) -> None:
    clock = SkippingClock(held=frozenset({PAUSE_SECONDS}))
    async with open_harness(answer, settings=ON, clock=clock) as harness:
        kim = harness.people.add_user("Kim")
        first, *_, last = [harness.people.type_inline(kim, "when is low tide?"[:end]) for end in (MIN_LENGTH, 9, 17)]
        await harness.wait_confirmed()
        clock.released.set()
        await wait_answer(harness, last)
        assert first not in harness.telegram.recorder.inline_answers
        assert len(harness.model.requests) == 1


async def test_a_question_of_less_than_three_characters_reaches_no_model(open_harness: OpenHarness) -> None:
    async with open_harness(answer, settings=ON) as harness:
        shown = await wait_answer(harness, harness.people.type_inline(harness.people.add_user("Kim"), " hi "))
        assert (shown["results"], shown["cache_time"]) == ([], 0)
        assert harness.model.requests == []


async def test_the_same_question_of_a_person_is_answered_again_without_a_model(open_harness: OpenHarness) -> None:
    async with open_harness(answer, settings=ON) as harness:
        kim, robin = harness.people.add_user("Kim"), harness.people.add_user("Robin")
        ids = []
        for person in (kim, kim, robin):
            shown = await wait_answer(harness, harness.people.type_inline(person, "when is low tide?"))
            ids.append(shown["results"][0]["id"])
        assert ids[0] == ids[1] != ids[2]
        assert len(harness.model.requests) == 2


async def test_a_person_who_asks_more_than_the_limit_gets_no_answer_and_costs_no_model(
    open_harness: OpenHarness,
) -> None:
    async with open_harness(answer, settings={**ON, "MESSAGES_PER_PERSON": "1"}) as harness:
        kim = harness.people.add_user("Kim")
        shown = [
            await wait_answer(harness, harness.people.type_inline(kim, f"when is tide {number}?"))
            for number in range(3)
        ]
        assert [len(item["results"]) for item in shown] == [1, 1, 0]
        assert len(harness.model.requests) == 2


@pytest.mark.long
async def test_an_answer_that_is_sent_has_a_receipt_and_a_delivery_once(open_harness: OpenHarness) -> None:
    async with open_harness(answer, settings=ON) as harness:
        kim = harness.people.add_user("Kim")
        shown = await wait_answer(harness, harness.people.type_inline(kim, "when is low tide?"))
        harness.people.send_inline(kim, "when is low tide?", shown["results"][0]["id"])
        update = harness.bot.queue[-1][1]
        await harness.wait_confirmed()
        harness.telegram.state.enqueue(harness.bot, {**update, "update_id": harness.bot.next_update})
        deliveries = await harness.wait_deliveries()
        receipts = await harness.store.ledger.receipts()
        assert {receipt.outcome for receipt in receipts} == {Outcome.ANSWERED}
        assert {(part.state, part.content.text) for part in deliveries} == {(DeliveryState.SENT, "Low at **six**.")}
        assert not harness.telegram.recorder.calls_of("sendMessage")


async def test_the_cost_of_an_answer_that_is_not_sent_is_in_the_bill(open_harness: OpenHarness) -> None:
    async with open_harness(answer, settings=ON) as harness:
        await wait_answer(harness, harness.people.type_inline(harness.people.add_user("Kim"), "when is low tide?"))
        day = harness.runtime.agents[0].agent.clock().date()
        conversations = harness.runtime.handles[0].conversations
        lines = await conversations.costs(day, day)
        [line] = [line for line in lines if line.purpose == Purpose.INLINE]
        [room] = [room for room in await conversations.rooms() if room.id == line.room_id]
        assert room.name == "Inline questions"


@pytest.mark.parametrize("text", ["I want to kill myself", "when is low tide?"])
async def test_words_of_distress_get_no_inline_answer(open_harness: OpenHarness, text: str) -> None:
    async with open_harness(answer, settings=ON) as harness:
        shown = await wait_answer(harness, harness.people.type_inline(harness.people.add_user("Kim"), text))
        assert bool(shown["results"]) is ("tide" in text)


async def test_without_the_switches_neither_inline_questions_nor_those_of_guests_are_asked_for(
    harness: TelegramHarness,
) -> None:
    await harness.telegram.recorder.wait_until(lambda: harness.bot.allowed_updates)
    assert not {"guest_message", "inline_query", "chosen_inline_result"} & set(harness.bot.allowed_updates)
