"""Hostile payloads neither stop the bot nor affect later messages."""

import asyncio
import copy
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from adapters.discord.sharding import WHOLE_ACCOUNT
from bot.store import InMemoryStore
from bot.store.sql.sqlite.memory import ALL_AGENTS
from bot.store.sql.stores.ledger import SqlLedger
from tests.adapters.discord.server import TOKEN, EmulatedServer, receipts

pytestmark = pytest.mark.long

SEEDS = (1, 2)
A_SEED = 5000
EVENTS = (
    "MESSAGE_CREATE",
    "MESSAGE_UPDATE",
    "MESSAGE_DELETE",
    "MESSAGE_DELETE_BULK",
    "MESSAGE_REACTION_ADD",
    "THREAD_CREATE",
    "THREAD_UPDATE",
    "THREAD_DELETE",
    "CHANNEL_CREATE",
    "CHANNEL_UPDATE",
    "CHANNEL_DELETE",
    "GUILD_MEMBER_REMOVE",
    "GUILD_UPDATE",
    "INTERACTION_CREATE",
    "NO_SUCH_EVENT",
)
NASTY: tuple[Any, ...] = (
    None,
    -1,
    0,
    2**70,
    1.5,
    True,
    "",
    "0",
    "not a number",
    "\ud800",
    "\x00",
    "@everyone" * 50,
    [],
    [None],
    {},
    {"id": None},
    [[[[]]]],
    "9" * 30,
)


def spoiled(chance: random.Random, value: Any) -> Any:
    """Return a payload with one random value replaced."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(list(value))
        if chance.random() < 0.15:
            del value[name]
        else:
            value[name] = spoiled(chance, value[name])
        return value
    return copy.deepcopy(chance.choice(NASTY))


@pytest.mark.parametrize("seed", SEEDS)
async def test_5000_hostile_payloads_lose_nothing_but_themselves(
    server: EmulatedServer, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(seed)
    state, people, gateway = server.emulator.state, server.emulator.people, server.emulator.gateway
    caplog.set_level(logging.CRITICAL)
    listen = {"DISCORD_LISTEN_CHANNEL_IDS": server.lobby}
    async with server.run_bot(settings=listen) as (harness, _):
        message_id = await people.say(server.lobby, server.kim, "ahoy")
        whole = state.messages[server.lobby][message_id]
        channel = state.channels[server.lobby]
        for _ in range(A_SEED):
            event = chance.choice(EVENTS)
            base = {**copy.deepcopy(whole), "id": state.new_id(), "user_id": server.kim, "message_id": message_id}
            base |= {
                "emoji": {"id": None, "name": "⚓"},
                "ids": [message_id],
                "token": "x",
                "type": 0,
                "user": base["author"],
            }
            if "CHANNEL" in event or "THREAD" in event:
                base = {**copy.deepcopy(channel), "id": state.new_id(), "guild_id": server.guild, "type": 11}
            await gateway.dispatch_event(event, spoiled(chance, base))
        direct = server.direct(server.robin)
        await people.say(direct, server.robin, "still there?")
        assert await server.emulator.recorder.wait_for_texts(1, direct) == ["Aye."]
        assert all(receipt.outcome.is_final for receipt in await receipts(harness))
    assert server.emulator.recorder.counts["identify"] == 1


async def test_neither_token_nor_message_text_is_logged(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.emulator.gateway.closes_after = 5
    async with server.run_bot():
        for number in range(3):
            await server.emulator.people.say(server.lobby, server.kim, f"{server.call} my hidden words")
            await server.emulator.recorder.wait_for_texts(number + 1)
        await server.emulator.gateway.dispatch_event("MESSAGE_CREATE", {"content": "my hidden words"})
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} last")
        await server.emulator.recorder.wait_for_texts(4)
    assert TOKEN not in caplog.text
    assert "hidden words" not in caplog.text


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if is_so():
                return
            await asyncio.sleep(0)


class Picky(SqlLedger):
    """A store that rejects batches with a poisoned message."""

    def __init__(self, store: InMemoryStore) -> None:
        super().__init__(store.database, ALL_AGENTS)
        self.is_asked, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.texts: list[str] = []

    async def receive(self, messages: Any, now: Any, cursor: Any = None) -> Any:
        texts = [message.message.content.text for message in messages]
        if texts:
            self.is_asked.set()
            await self.may_go_on.wait()
        if "poison" in texts:
            raise ValueError("no database takes this")
        self.texts += texts
        return await super().receive(messages, now, cursor)


async def test_a_message_that_cannot_be_stored_does_not_affect_its_batch(server: EmulatedServer) -> None:
    store = InMemoryStore()
    store.ledger = picky = Picky(store)
    async with server.run_bot(store=store) as (_, adapter):
        [account] = adapter.accounts
        await server.emulator.people.say(server.lobby, server.kim, "first")
        await picky.is_asked.wait()
        for text in ("before", "poison", "after"):
            await server.emulator.people.say(server.lobby, server.kim, text)
        await until(lambda: len(account.shards[WHOLE_ACCOUNT].receivers[0].queue) == 4)
        picky.may_go_on.set()
        await until(lambda: len(picky.texts) == 3)
    assert picky.texts == ["first", "before", "after"]
