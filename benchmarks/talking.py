"""Measure what talking costs beside the models."""

import asyncio
import statistics
import time

from benchmarks.figures import Row, answered
from bot.models import TextRequest
from bot.testing import ScriptedModel, answer, on_stage

MODEL_SECONDS = 0.05
ROOMS = 100
TURNS = 300


def talked() -> list[Row]:
    """Talk with one person, with many at once, and with a hasty one."""
    return asyncio.run(_talked())


async def _talked() -> list[Row]:
    return [await _overhead(), await _rooms(), await _burst()]


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


async def _slow(request: TextRequest) -> str:
    await asyncio.sleep(MODEL_SECONDS)
    return answer("Hello to you too.")
