"""What is left in the process of messages that have their outcome: nothing but what the store keeps."""

import asyncio
import gc
import os
import threading
from collections import Counter

import pytest

from bot.domain.ledger import State
from bot.testing import AgentHarness, running_agent
from bot.turn import Turn, TurnInput

FLEETING = (Turn, TurnInput, State)
COUNT = 60


def at_work() -> Counter[str]:
    """Count tasks, threads and open files."""
    files = len(os.listdir("/proc/self/fd"))
    return Counter(tasks=len(asyncio.all_tasks()), threads=threading.active_count(), files=files)


async def settle(harness: AgentHarness) -> None:
    """Wait until nothing is under way any more."""
    await harness.agent.outbox.drain(60)
    await harness.agent.events.wait_idle()
    gc.collect()


@pytest.mark.long
@pytest.mark.failure("K-13")
async def test_a_message_that_has_its_outcome_leaves_nothing_in_memory() -> None:
    async with running_agent() as harness:
        await harness.send("Hello", room="first")
        await settle(harness)
        before = at_work()
        for number in range(COUNT):
            await harness.send("Hello", room=f"room {number}", author=f"person {number}")
        await settle(harness)

        grown = at_work() - before
        assert all(more < COUNT / 3 for more in grown.values()), grown  # some end a moment later
        left = Counter(type(instance).__name__ for instance in gc.get_objects() if isinstance(instance, FLEETING))
        assert all(count < COUNT / 3 for count in left.values()), left
        assert len(harness.texts) == COUNT + 1
