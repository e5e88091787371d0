"""Measure what talking costs beside the models, and what is sent to them."""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile

from benchmarks.figures import Row, answered
from bot import ChannelType, Purpose, TextRequest
from bot.testing import ScriptedModel, Stage, answer, on_stage

MODEL_SECONDS = 0.05
ROOMS = 100
TURNS = 300
TALK = 40


def talked() -> list[Row]:
    """Talk with one person, with many at once, with a hasty one, and in a group."""
    return asyncio.run(_talked())


async def _talked() -> list[Row]:
    return [await _overhead(), await _rooms(), await _burst(), *await _prompts()]


async def _overhead() -> Row:
    """What one direct message costs beside its model call."""
    async with on_stage() as stage:
        times = []
        for number in range(TURNS):
            started = time.perf_counter()
            answered(await stage.say(f"message {number}", room=f"room {number}"))
            times.append(1000 * (time.perf_counter() - started))
    p50, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    return "one message, model at once", f"p50 {p50:.1f} ms, p95 {p95:.1f} ms"


async def _rooms() -> Row:
    """Many rooms at once, each with one message and a model that takes its time."""
    async with on_stage(model=ScriptedModel(_slow)) as stage:
        started = time.perf_counter()
        await asyncio.gather(*(stage.put("Hello", room=f"room {number}") for number in range(ROOMS)))
        await stage.adapter.until_sent(ROOMS)
        seconds = time.perf_counter() - started
    return f"{ROOMS} rooms at once, {1000 * MODEL_SECONDS:.0f} ms model", f"all answered in {seconds:.2f} s"


async def _burst() -> Row:
    """Five quick messages of one person: one reply."""
    async with on_stage(model=ScriptedModel(_slow)) as stage:
        receipts = [await stage.put(f"part {number}") for number in range(5)]
        await asyncio.gather(*(stage.resident.inbox.settled(receipt.id) for receipt in receipts))
        await stage.agent.outbox.drain(5)
        calls, replies = len(stage.model.requests), len(stage.texts)
    return "five quick messages", f"{replies} reply, {calls} model calls begun"


async def _prompts() -> list[Row]:
    """How large prompts are, and how much of each is what the one before it began with."""
    async with on_stage(model=ScriptedModel(_group)) as stage:
        await _talk(stage, lambda number: f"Ada, what about point {number}?")
        large = [request.prompt for request in stage.model.asked(Purpose.REPLY)]
        small = stage.model.asked(Purpose.SHOULD_RESPOND)
    shares = [_shared(*pair) / len(pair[1]) for pair in pairwise(large)]
    return [
        ("first prompt, bootstrap, plain character", f"{len(large[0].encode()) / 1024:.1f} KB"),
        (
            f"{TALK} messages of a group, {len(large)} answers",
            f"{len(large[-1].encode()) / 1024:.1f} KB at the end, {len(small)} small calls",
        ),
        ("the same beginning as the prompt before", f"{100 * statistics.mean(shares):.0f} % of each prompt"),
    ]


def _shared(first: str, second: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


async def _talk(
    stage: Stage, text: Callable[[int], str], people: Sequence[str] = ("Ann", "Bo", "Cy")
) -> None:
    for number in range(TALK):
        await stage.say(text(number), author=people[number % len(people)], kind=ChannelType.GROUP)


async def _slow(request: TextRequest) -> str:
    await asyncio.sleep(MODEL_SECONDS)
    return answer("Hello to you too.")


def _group(request: TextRequest) -> str:
    return answer(f"Well, since you ask, {len(request.prompt)} characters of thought went into it.")
