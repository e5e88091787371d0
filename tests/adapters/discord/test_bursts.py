"""Several messages of one person in a row, as the gateway brings them: one reply, and few model calls."""

import asyncio

import pytest

from bot import Outcome
from bot.events import MessageReceived
from bot.pipeline.turn_order import MAX_PAUSE_SECONDS
from bot.testing import AgentHarness
from tests.adapters.discord.server import EmulatedServer, outcomes, receipts
from tests.bursts import LINES, SlowModel


async def say_each_alone(harness: AgentHarness, server: EmulatedServer, channel: str, *lines: str) -> None:
    """Send lines in sequence, each when the work on the previous line has begun."""
    begun = asyncio.Semaphore(0)
    unsubscribe = harness.agent.events.subscribe(MessageReceived, lambda event: begun.release(), at_once=True)
    for line in lines:
        await server.emulator.people.say(channel, server.robin, line)
        await begun.acquire()
    unsubscribe()


async def test_five_messages_in_a_row_begin_two_model_calls_and_get_a_single_reply(server: EmulatedServer) -> None:
    slow, direct = SlowModel(), server.direct(server.robin)
    async with server.run_bot(slow.model) as (harness, _):
        await say_each_alone(harness, server, direct, LINES[0])
        await slow.wait_until_asked(LINES[0])
        await say_each_alone(harness, server, direct, *LINES[1:])
        await slow.wait_until_asked(LINES[-1])
        slow.released.set()
        ended = await outcomes(harness)
        assert await server.emulator.recorder.wait_for_texts(1, direct) == ["We do."]
    assert ended == [Outcome.SUPERSEDED] * 4 + [Outcome.ANSWERED]
    assert len(slow.calls) == 2
    assert all(line in slow.calls[-1] for line in LINES)


@pytest.mark.long
async def test_the_second_burst_of_a_person_begins_a_single_model_call(server: EmulatedServer) -> None:
    slow, direct = SlowModel(), server.direct(server.robin)
    async with server.run_bot(slow.model) as (harness, _):
        for count in (1, 2):
            await say_each_alone(harness, server, direct, *(f"{line} {count}" for line in LINES))
            await slow.wait_until_asked(f"{LINES[-1]} {count}")
            slow.released.set()
            await server.emulator.recorder.wait_for_texts(count, direct)
            await receipts(harness)
            slow.released.clear()
            begun, slow.calls = slow.calls, []
    assert len(begun) == 1
    assert all(f"{line} 2" in begun[0] for line in LINES)


@pytest.mark.long
async def test_a_person_who_types_on_is_waited_for_longer_than_by_their_rhythm(server: EmulatedServer) -> None:
    slow, direct = SlowModel(), server.direct(server.robin)
    now = asyncio.get_running_loop().time
    async with server.run_bot(slow.model) as (harness, _):
        await say_each_alone(harness, server, direct, *LINES)
        await slow.wait_until_asked(LINES[-1])
        slow.released.set()
        await server.emulator.recorder.wait_for_texts(1, direct)
        await receipts(harness)
        sent_at = now()
        await server.emulator.people.say(direct, server.robin, "and if it rains?")
        await server.emulator.people.type(direct, server.robin)
        await slow.wait_until_asked("and if it rains?")
        waited = now() - sent_at
    assert waited > MAX_PAUSE_SECONDS - 0.1
