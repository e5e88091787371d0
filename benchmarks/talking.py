"""Measure the cost of conversations without the models' time."""

import asyncio
import statistics
import time

from benchmarks.figures import Row, check_answered
from bot.models import TextRequest
from bot.testing import ScriptedModel, model_answer, running_agent

MODEL_SECONDS = 0.05
ROOMS = 100
TURNS = 300


def measure_talking() -> list[Row]:
    """Measure single messages, many rooms at once, and a burst of one person."""
    return asyncio.run(_measure_talking())


async def _measure_talking() -> list[Row]:
    return [await _measure_overhead(), await _measure_rooms(), await _measure_burst()]


async def _measure_overhead() -> Row:
    """Measure one direct message with a model that answers at once."""
    async with running_agent() as harness:
        times = []
        for number in range(TURNS):
            started = time.perf_counter()
            check_answered(await harness.send(f"message {number}", room=f"room {number}"))
            times.append(1000 * (time.perf_counter() - started))
    p50, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    return "one message, model at once", f"p50 {p50:.1f} ms, p95 {p95:.1f} ms"


async def _measure_rooms() -> Row:
    """Measure many rooms at once, each with one message and a slow model."""
    async with running_agent(model=ScriptedModel(_slow)) as harness:
        started = time.perf_counter()
        await asyncio.gather(*(harness.submit("Hello", room=f"room {number}") for number in range(ROOMS)))
        await harness.adapter.wait_until_sent(ROOMS)
        seconds = time.perf_counter() - started
    return f"{ROOMS} rooms at once, {1000 * MODEL_SECONDS:.0f} ms model", f"all answered in {seconds:.2f} s"


async def _measure_burst() -> Row:
    """Measure five quick messages of one person, which get one reply."""
    async with running_agent(model=ScriptedModel(_slow)) as harness:
        receipts = [await harness.submit(f"part {number}") for number in range(5)]
        await asyncio.gather(*(harness.agent_runtime.inbox.wait_outcome(receipt.id) for receipt in receipts))
        await harness.agent.outbox.drain(5)
        check_answered(await harness.agent_runtime.inbox.wait_outcome(receipts[-1].id))
        calls, replies = len(harness.model.requests), len(harness.texts)
    return "five quick messages", f"{replies} reply, {calls} model calls begun"


async def _slow(request: TextRequest) -> str:
    await asyncio.sleep(MODEL_SECONDS)
    return model_answer("Hello to you too.")
