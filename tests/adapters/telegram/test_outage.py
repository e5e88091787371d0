"""Telegram fails several times in a row: the reply arrives all the same, and every possible double is marked."""

from typing import Any

import pytest

from adapters.telegram.config import Limits
from adapters.telegram.emulator import Emulator, Fault
from adapters.telegram.outgoing import DUPLICATE_NOTICE
from bot import Attachment, Content, MediaKind
from bot.models import TextRequest
from bot.outbound import sender
from bot.platform import DeliveryState
from bot.testing import model_answer
from tests.adapters.telegram.conftest import OpenHarness

FAILURES = 4
FAULTS: dict[str, dict[str, Any]] = {
    "500 before": {"status": 500, "body": "oops"},
    "500 after": {"status": 500, "body": "oops", "is_late": True},
    "cut before": {},
    "cut after": {"is_late": True},
    "hanging": {"is_hanging": True},
}


@pytest.fixture(autouse=True)
def skip_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the next attempt at once."""
    monkeypatch.setattr(sender, "FIRST_DELAY_SECONDS", 0.0)


def texts_of(telegram: Emulator) -> list[str]:
    return telegram.recorder.texts()


@pytest.mark.parametrize("details", FAULTS.values(), ids=FAULTS)
async def test_a_reply_that_failed_four_times_arrives_and_doubles_are_marked(
    open_harness: OpenHarness, details: dict[str, Any]
) -> None:
    fault = Fault("sendMessage", times=FAILURES, **details)
    async with open_harness(limits=Limits(response_timeout=0.2)) as harness:
        harness.telegram.faults.append(fault)
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        await harness.telegram.recorder.wait_until(lambda: not fault.times)
        [part] = await harness.wait_deliveries()
    assert (part.state, part.attempts) == (DeliveryState.SENT, FAILURES + 1)
    texts = texts_of(harness.telegram)
    assert {text.removeprefix(DUPLICATE_NOTICE) for text in texts} == {"You said: Hello"}
    assert sum(not text.startswith(DUPLICATE_NOTICE) for text in texts) == int(fault.is_late)


async def test_with_hold_an_unclear_reply_is_held_at_once(open_harness: OpenHarness) -> None:
    async with open_harness(settings={"TELEGRAM_UNCLEAR": "hold"}) as harness:
        harness.telegram.faults.append(Fault("sendMessage", 500, "oops", is_late=True))
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        harness.people.say(chat, alice, "Hello")
        [held] = await harness.wait_deliveries()
        assert (held.state, held.attempts) == (DeliveryState.UNKNOWN, 2)
        harness.people.say(chat, alice, "And?")
        assert await harness.wait_texts(2) == ["You said: Hello", "You said: And?"]


async def test_an_edit_is_repeated_until_telegram_confirms_it(open_harness: OpenHarness) -> None:
    async with open_harness(settings={"ON_EDIT": "rerun"}) as harness:
        alice = harness.people.add_user("Alice")
        question = harness.people.say(harness.people.open_private_chat(alice), alice, "Helo")
        await harness.wait_texts(1)
        await harness.wait_deliveries()
        fault = Fault("editMessageText", 502, "oops", times=FAILURES)
        harness.telegram.faults.append(fault)
        harness.people.edit(question, "Hello")
        await harness.telegram.recorder.wait_until(lambda: texts_of(harness.telegram) == ["You said: Hello"])
        assert not fault.times
        assert {part.state for part in await harness.wait_deliveries()} == {DeliveryState.SENT}


async def test_a_file_of_unknown_outcome_is_uploaded_again_with_a_notice(open_harness: OpenHarness) -> None:
    async with open_harness() as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        harness.people.say(chat, alice, "Hello")
        await harness.wait_deliveries()
        harness.telegram.faults.append(Fault("sendPhoto", 500, "oops", times=FAILURES))
        agent = harness.runtime.agents[0].agent
        [receipt] = await harness.store.ledger.receipts()
        room = await harness.store.worlds.room(receipt.room_id)
        assert room is not None
        chart = Attachment("1", MediaKind.IMAGE, name="chart.png", data=b"\x89PNG", content_type="image/png")
        await agent.say(room, Content(text="The chart.", attachments=(chart,)))
        assert (await harness.wait_texts(2))[1:] == [f"{DUPLICATE_NOTICE}The chart."]
        *_, part = await harness.wait_deliveries()
        assert part.state is DeliveryState.SENT


async def test_a_streamed_reply_is_finished_after_its_first_draft_was_unclear(open_harness: OpenHarness) -> None:
    def script(request: TextRequest) -> str:
        return model_answer("A story. " * 30)

    async with open_harness(script, settings={"STREAMING": "true"}) as harness:
        fault = Fault("sendMessage", 500, "oops", times=2, is_late=True)
        harness.telegram.faults.append(fault)
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "Tell me")
        await harness.telegram.recorder.wait_until(lambda: not fault.times)
        await harness.wait_deliveries()
        whole = ("A story. " * 30).strip()
        assert whole in [text.removeprefix(DUPLICATE_NOTICE) for text in texts_of(harness.telegram)]
