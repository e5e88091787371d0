"""Events that the library cannot read are recorded; everything else is read, and the position moves on."""

import pytest

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.emulator import Fault
from bot.store import InMemoryStore, Store
from bot.testing import AgentHarness
from tests.adapters.discord.server import EmulatedServer, receipts
from tests.adapters.discord.test_away import seen_once

LISTEN_ONLY = "DISCORD_LISTEN_CHANNEL_IDS"


async def texts_of(harness: AgentHarness) -> list[str]:
    """Return the texts of all stored messages of people."""
    found = [await harness.agent.store.memories.memories([receipt.memory_id]) for receipt in await receipts(harness)]
    return [memory.content.text for memories in found for memory in memories.values()]


async def unreadable_ids(store: Store) -> list[str]:
    """Return the ids of the recorded events, oldest first."""
    return [event.event_id for event in await store.ledger.unreadable_events()][::-1]


@pytest.mark.long
@pytest.mark.failure("B-15")
async def test_an_unreadable_history_message_costs_no_other_of_any_channel(server: EmulatedServer) -> None:
    people = server.emulator.people
    other = server.emulator.state.add_channel(server.guild, "pier")
    store = await seen_once(server, server.lobby, other)
    bad = []
    for number in range(60):
        broken = {"thread": None} if number == 10 else {}
        for channel in (server.lobby, other):
            message_id = await people.say(channel, server.kim, f"number {number}", is_announced=False, **broken)
            bad += [message_id] if broken else []
    async with server.run_bot(store=store, settings={LISTEN_ONLY: f"{server.lobby},{other}"}) as (harness, _):
        await people.say(server.direct(server.kim), server.kim, "ahoy")
        await server.emulator.recorder.wait_for_texts(3)
        texts = await texts_of(harness)
    assert sum(text.startswith("number") for text in texts) == 2 * 59
    assert sorted(await unreadable_ids(store)) == sorted(f"message {message_id}" for message_id in bad)
    [first, _] = await store.ledger.unreadable_events()
    assert "number 10" in first.raw
    assert "TypeError" in first.cause


@pytest.mark.failure("B-15")
async def test_an_unreadable_gateway_event_is_recorded_once(server: EmulatedServer) -> None:
    store = InMemoryStore()
    people = server.emulator.people
    async with server.run_bot(store=store) as (_, adapter):
        bad = await people.say(server.lobby, server.kim, f"{server.call} lost?", thread=None)
        await people.say(server.lobby, server.kim, f"{server.call} here?")
        await server.emulator.recorder.wait_for_texts(1)
        await reconnect(server, adapter)
    assert await unreadable_ids(store) == [f"message {bad}"]
    [event] = await store.ledger.unreadable_events()
    assert "lost?" in event.raw


async def test_a_message_that_cannot_be_converted_is_recorded(server: EmulatedServer) -> None:
    store = InMemoryStore()
    attachment = {"id": "1", "filename": "a.bin", "size": 1, "url": "u", "proxy_url": "u", "content_type": 7}
    async with server.run_bot(store=store):
        bad = await server.emulator.people.say(server.lobby, server.kim, "with a file", attachments=[attachment])
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} here?")
        await server.emulator.recorder.wait_for_texts(1)
    assert await unreadable_ids(store) == [f"message {bad}"]
    [event] = await store.ledger.unreadable_events()
    assert "with a file" in event.raw


@pytest.mark.failure("B-15")
@pytest.mark.parametrize("is_restarted", [False, True], ids=["on the same day", "after a restart"])
async def test_a_channel_that_cannot_be_read_for_a_while_is_read_later(
    server: EmulatedServer, is_restarted: bool
) -> None:
    """Messages that arrive meanwhile do not move the position past the missed ones."""
    people, recorder = server.emulator.people, server.emulator.recorder
    store = await seen_once(server, server.lobby)
    await people.say(server.lobby, server.kim, f"{server.call} missed", is_announced=False)
    outage = Fault(rf"GET .*/{server.lobby}/messages", 500, {"message": "down"}, times=1000)
    server.emulator.faults.append(outage)
    async with server.run_bot(store=store) as (_, _):
        await people.say(server.lobby, server.kim, f"{server.call} live")
        await recorder.wait_for_texts(2)
        if not is_restarted:
            outage.times = 0
            await recorder.wait_for_texts(3)
    if is_restarted:
        outage.times = 0
        async with server.run_bot(store=store) as (harness, _):
            await recorder.wait_for_texts(3)
    async with server.run_bot(store=store) as (harness, _):
        texts = await texts_of(harness)
    assert sum("missed" in text for text in texts) == 1
    assert len(recorder.texts()) == 3


async def reconnect(server: EmulatedServer, adapter: DiscordAdapter) -> None:
    """Drop the connection, and wait until it is resumed."""
    [account] = adapter.accounts
    account.is_connected.clear()
    await server.emulator.gateway.drop()
    await account.is_connected.wait()
