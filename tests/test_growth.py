"""What is left in the process of messages that have their outcome: nothing but what the store keeps."""

import asyncio
import gc
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bot import ActionResult, Plugin, action
from bot.domain.ledger import State
from bot.models import Purpose, TextRequest
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, StreamedText, model_answer, running_agent
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


@action("NOTE", "Write something down.")
async def note(turn: Turn) -> ActionResult:
    return ActionResult(text="noted")


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage in the block, so that only what has no reference to it any more is freed."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "answer",
    [
        StreamedText("<response><actions>REPLY</actions><text>Hello", " there</text></response>"),
        model_answer("Noted.", actions=["REPLY", "NOTE"]),
        model_answer("Is it?", providers=["FACTS"]),
        model_answer("", actions=["IGNORE"]),
    ],
    ids=["streamed", "action", "providers", "silence"],
)
async def test_an_answered_turn_is_freed_without_the_garbage_collector(answer: str | StreamedText) -> None:
    def script(request: TextRequest) -> str | StreamedText:
        return answer if request.purpose is Purpose.REPLY else model_answer("Done.")

    plugin = Plugin("notes", "Notes.", actions=[note])
    adapter = RecordingAdapter(can_edit=True, stream_interval=0.0)
    async with running_agent(plugin, model=ScriptedModel(script), adapter=adapter) as harness:
        await harness.send("Hello")
        await settle(harness)
        with no_collection():
            for _ in range(3):
                await harness.send("Hello again")
            await harness.agent.outbox.drain(60)
            await harness.agent.events.wait_idle()
            await harness.agent_runtime.inbox.processor._tasks.wait()  # also for what follows an outcome
            await asyncio.sleep(0)
            left = [item for item in gc.get_objects() if isinstance(item, Turn) and item.agent is harness.agent]
    assert not left
