"""Several messages of one person in a row, as the Bot API brings them: one reply, and few model calls."""

from bot import Outcome
from tests.adapters.telegram.conftest import OpenHarness
from tests.bursts import LINES, SlowModel


async def test_five_messages_in_a_row_begin_two_model_calls_and_get_a_single_reply(open_harness: OpenHarness) -> None:
    slow = SlowModel()
    async with open_harness(slow.write) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        first, *rest = LINES
        harness.people.say(chat, alice, first)
        await slow.wait_until_asked(first)
        for line in rest:
            harness.people.say(chat, alice, line)
            await harness.wait_confirmed()  # each comes alone
        await slow.wait_until_asked(LINES[-1])
        slow.released.set()
        ended = [receipt.outcome for receipt in await harness.wait_receipts()]
        assert await harness.wait_texts(1, chat) == ["We do."]
    assert ended == [Outcome.SUPERSEDED] * 4 + [Outcome.ANSWERED]
    assert len(slow.calls) == 2
    assert all(line in slow.calls[-1] for line in LINES)


async def test_a_person_who_writes_single_lines_begins_a_call_for_each_and_waits_for_none(
    open_harness: OpenHarness,
) -> None:
    slow = SlowModel()
    slow.released.set()
    async with open_harness(slow.write) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        for count, line in enumerate(LINES, 1):
            harness.people.say(chat, alice, line)
            await harness.wait_texts(count, chat)
        ended = [receipt.outcome for receipt in await harness.wait_receipts()]
    assert ended == [Outcome.ANSWERED] * len(LINES)
    assert len(slow.calls) == len(LINES)
