"""Measure how many messages are answered within a small budget, without and with the steps of DEGRADE.

Both models write as many tokens as they may, so that the budget is soon spent.
"""

import asyncio
from collections import Counter

from benchmarks.figures import Row
from bot import Outcome, Plugin, Receipt, model
from bot.models import ModelType, TextRequest, TextResult, Usage
from bot.testing import AgentHarness, running_agent
from bot.turn import Agent

MESSAGES = 120
BYTES_PER_TOKEN, MODEL_SECONDS, MAX_TOKENS = 4, 0.05, 16_000
PRICES = "large=2.5/10,small=0.15/0.6"  # dollars for a million tokens
WAYS = ("off", "80:history,95:small,100:silent", "80:history,95:small,100:offline")


def _build_models() -> Plugin:
    async def write(name: str, request: TextRequest) -> TextResult:
        await asyncio.sleep(MODEL_SECONDS)
        tokens_in = (len(request.prompt) + len(request.system)) // BYTES_PER_TOKEN
        usage = Usage(tokens_in, request.max_tokens or MAX_TOKENS)
        return TextResult("<response><text>Hello.</text></response>", name, usage)

    @model(ModelType.TEXT_LARGE)
    async def write_large(agent: Agent, request: TextRequest) -> TextResult:
        return await write("large", request)

    @model(ModelType.TEXT_SMALL)
    async def write_small(agent: Agent, request: TextRequest) -> TextResult:
        return await write("small", request)

    return Plugin("spenders", "Write as much as they may.", models=[write_large, write_small])


def measure_degrading() -> list[Row]:
    """Send messages at once and one after another, and count the answers and what they cost."""
    rows: list[Row] = []
    for budget, size, name in (("1", MESSAGES, "at once"), ("0.5", MESSAGES, "at once"), ("1", 1, "one by one")):
        for degrade in WAYS:
            title = f"${budget}, {MESSAGES} messages {name}, {degrade}"
            rows.append((title, asyncio.run(_run(budget, size, degrade))))
    return rows


async def _run(budget: str, size: int, degrade: str) -> str:
    settings = {"MODEL_PRICES": PRICES, "BUDGET_USD": budget, "DEGRADE": degrade}
    async with running_agent(_build_models(), settings=settings) as harness:
        receipts: list[Receipt] = []
        for start in range(0, MESSAGES, size):
            receipts += await asyncio.gather(*(_send(harness, number) for number in range(start, start + size)))
    answered = [receipt for receipt in receipts if receipt.outcome is Outcome.ANSWERED]
    writers = Counter(receipt.model_calls[-1].model for receipt in answered)
    cost = sum(call.cost or 0 for receipt in receipts for call in receipt.model_calls)
    listed = ", ".join(f"{count} by {name}" for name, count in sorted(writers.items()))
    return f"{len(answered)} answered ({listed}) for ${cost:.3f}"


async def _send(harness: AgentHarness, number: int) -> Receipt:
    return await harness.send("Ada, hello", room=f"room {number}", author=f"person {number}")
