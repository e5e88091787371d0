"""More messages are resumed after a crash than are processed at once: the order within a room holds all the same."""

import asyncio
import re

import pytest

from bot import system_clock
from bot.inbound.processing import MAX_CONCURRENT_RESUMED
from bot.models import TextRequest
from bot.platform import InboundMessage
from bot.store import InMemoryStore
from bot.testing import ScriptedModel, make_message, model_answer, running_agent

ROOMS = [f"room {number}" for number in range(MAX_CONCURRENT_RESUMED + 1)]
TO_WHOM = re.compile(r"The next message is .+'s, to (\w+)")


def written(author: str, room: str) -> InboundMessage:
    return make_message("Hello", sent_at=system_clock(), room=room, author=author)


@pytest.mark.long
async def test_a_new_message_waits_for_a_message_of_its_room_that_is_resumed_behind_many_others() -> None:
    store, are_many_asked, may_answer = InMemoryStore(), asyncio.Event(), asyncio.Event()
    asked: list[str] = []

    async def answer(request: TextRequest) -> str:
        asked.append(TO_WHOM.findall(request.prompt)[-1])
        if len(asked) == MAX_CONCURRENT_RESUMED:
            are_many_asked.set()
        await may_answer.wait()
        return model_answer(f"To {TO_WHOM.findall(request.prompt)[-1]}.")

    await store.ledger.receive([written("Kim", room) for room in ROOMS], system_clock())
    settings = {"LATEST_RESPONSE": "queue", "BURST_PAUSE": "0"}
    async with running_agent(store=store, model=ScriptedModel(answer), settings=settings) as harness:
        await are_many_asked.wait()
        await harness.agent_runtime.inbox.submit(written("Robin", ROOMS[-1]))
        for _ in range(100):
            await asyncio.sleep(0)
        may_answer.set()
        texts = await harness.adapter.wait_until_sent(len(ROOMS) + 1)
    assert texts == ["To Kim."] * len(ROOMS) + ["To Robin."]


@pytest.mark.long
async def test_resumed_messages_that_wait_for_their_room_do_not_delay_other_rooms() -> None:
    store, may_answer_robin = InMemoryStore(), asyncio.Event()

    async def answer(request: TextRequest) -> str:
        to = TO_WHOM.findall(request.prompt)[-1]
        if to == "Robin":
            await may_answer_robin.wait()
        return model_answer(f"To {to}.")

    waiting = [written("Robin", "porch") for _ in range(MAX_CONCURRENT_RESUMED)]
    await store.ledger.receive([*waiting, written("Kim", "kitchen")], system_clock())
    settings = {"LATEST_RESPONSE": "queue", "BURST_PAUSE": "0"}
    async with running_agent(store=store, model=ScriptedModel(answer), settings=settings) as harness:
        assert await harness.adapter.wait_until_sent(1) == ["To Kim."]
        may_answer_robin.set()
        texts = await harness.adapter.wait_until_sent(1 + len(waiting))
    assert texts == ["To Kim.", *["To Robin."] * len(waiting)]
