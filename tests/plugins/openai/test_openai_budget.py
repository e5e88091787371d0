"""What a budget lets a provider bill, with a server that counts like one."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot import ChannelType, Outcome
from tests.plugins.openai.wire import DONE, counted, delta, finish, open_harness

DOLLARS_IN, DOLLARS_OUT = 2.5, 10  # for a million tokens
ANSWER = "<response><thought>t</thought><actions>REPLY</actions><text>Once upon a time.</text></response>"


class Bill:
    """A server whose answers use the whole limit that a request sends, or 16,000 tokens without one."""

    def __init__(self) -> None:
        self.dollars = 0.0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or 16_000
        tokens_in = sum(len(message["content"].encode()) for message in body["messages"]) // 3
        self.dollars += (tokens_in * DOLLARS_IN + limit * DOLLARS_OUT) / 1_000_000
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in (delta(content=ANSWER), finish(), counted(tokens_in, limit)):
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
        await response.write(DONE.encode())
        return response


@pytest.mark.long
@pytest.mark.failure("O-02")
async def test_a_crowd_is_answered_within_the_budget_and_no_dollar_more_is_billed() -> None:
    bill, app = Bill(), web.Application()
    app.router.add_post("/v1/chat/completions", bill.answer)
    async with TestServer(app) as server:
        settings = {"BUDGET_USD": "1", "MODEL_PRICES": f"large*={DOLLARS_IN}/{DOLLARS_OUT}"}
        async with open_harness(str(server.make_url("")).rstrip("/"), **settings) as harness:
            receipts = await asyncio.gather(
                *(
                    harness.send("Tell me a long story", room=f"room {number}", kind=ChannelType.DM, author=str(number))
                    for number in range(120)
                )
            )
    answered = [receipt for receipt in receipts if receipt.outcome is Outcome.ANSWERED]
    assert len(answered) >= 60
    assert bill.dollars <= 1
    assert {receipt.rule for receipt in receipts if receipt not in answered} <= {"BUDGET_USD"}
