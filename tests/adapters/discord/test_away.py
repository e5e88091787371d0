"""B-10: missed messages are fetched up to a limit, and only recent ones are answered."""

from datetime import timedelta

import pytest

from adapters.discord.emulator.server import Fault, too_many_requests
from adapters.discord.emulator.state import THREAD
from bot import Outcome, system_clock
from bot.store import InMemoryStore
from tests.adapters.discord.server import EmulatedServer, receipts


async def seen_once(server: EmulatedServer, *channels: str) -> InMemoryStore:
    """Store a message per channel from two hours ago, and delete the session."""
    store = InMemoryStore()
    async with server.run_bot(store=store) as (harness, _):
        for number, channel in enumerate(channels, 1):
            await server.emulator.people.say(channel, server.kim, f"{server.call} before")
            await server.emulator.recorder.wait_for_texts(number)
        await receipts(harness)
    server.emulator.gateway.sessions.clear()
    return store


@pytest.mark.failure("B-10")
async def test_after_an_hour_offline_all_is_stored_and_only_the_last_quarter_is_answered(
    server: EmulatedServer,
) -> None:
    direct = server.direct(server.robin)
    store = await seen_once(server, server.lobby, direct)
    later = system_clock() + timedelta(hours=1)
    for minutes in (50, 40, 16, 5):
        at = later - timedelta(minutes=minutes)
        await server.emulator.people.say(
            server.lobby, server.kim, f"{server.call} {minutes} ago", timestamp=at, is_announced=False
        )
    at = later - timedelta(minutes=1)
    await server.emulator.people.say(direct, server.robin, "and I?", timestamp=at, is_announced=False)
    async with server.run_bot(store=store, clock=lambda: later) as (harness, _):
        await server.emulator.recorder.wait_for_texts(4)
        all_receipts = await receipts(harness)
    assert [(receipt.outcome, receipt.rule) for receipt in all_receipts[2:5]] == [(Outcome.EXPIRED, "backfill")] * 3
    assert [receipt.outcome for receipt in all_receipts[5:]] == [Outcome.ANSWERED] * 2
    assert server.emulator.recorder.counts["identify"] == 2


@pytest.mark.long
@pytest.mark.failure("B-10")
async def test_no_more_than_the_last_hundred_of_a_channel_are_fetched(server: EmulatedServer) -> None:
    store = await seen_once(server, server.lobby)
    for number in range(130):
        await server.emulator.people.say(server.lobby, server.kim, f"number {number}", is_announced=False)
    listen = {"DISCORD_LISTEN_CHANNEL_IDS": server.lobby}
    async with server.run_bot(store=store, settings=listen) as (harness, _):
        await server.emulator.people.say(server.direct(server.kim), server.kim, "ahoy")
        await server.emulator.recorder.wait_for_texts(2)
        all_receipts = await receipts(harness)
        memories = await harness.agent.store.memories.recent(all_receipts[0].room_id, 1)
    assert len(all_receipts) == 1 + 100 + 1
    assert [memory.content.text for memory in memories] == ["number 129"]


@pytest.mark.failure("B-10")
async def test_a_thread_opened_meanwhile_is_read_and_unchanged_channels_are_not(server: EmulatedServer) -> None:
    state, people = server.emulator.state, server.emulator.people
    quiet = state.add_channel(server.guild, "never spoken in")
    await people.say(quiet, server.kim, f"{server.call} long before the bot came", is_announced=False)
    store = await seen_once(server, server.lobby)
    thread = state.add_channel(server.guild, "news", THREAD, server.lobby)
    await people.say(thread, server.kim, f"{server.call} here", is_announced=False)
    async with server.run_bot(store=store) as (harness, _):
        await server.emulator.recorder.wait_for_texts(1, thread)
        assert len(await receipts(harness)) == 2
    assert server.emulator.recorder.texts(quiet) == []


@pytest.mark.failure("B-10")
async def test_a_guild_that_becomes_available_late_is_read_then(server: EmulatedServer) -> None:
    store = await seen_once(server, server.lobby)
    await server.emulator.people.say(server.lobby, server.kim, f"{server.call} back?", is_announced=False)
    server.emulator.gateway.skips_guilds = True
    async with server.run_bot(store=store) as (harness, _):
        payload = server.emulator.state.to_guild_create(server.guild, server.bot)
        await server.emulator.gateway.dispatch_event("GUILD_CREATE", payload)
        assert await server.emulator.recorder.wait_for_texts(2) == ["Aye.", "Aye."]
        assert len(await receipts(harness)) == 2


@pytest.mark.failure("B-10")
async def test_messages_during_the_backfill_are_stored_after_it_and_once(server: EmulatedServer) -> None:
    store = await seen_once(server, server.lobby)
    people = server.emulator.people
    await people.say(server.lobby, server.kim, "first", is_announced=False)
    async with server.run_bot(store=store, settings={"DISCORD_LISTEN_CHANNEL_IDS": server.lobby}, is_awaited=False) as (
        harness,
        _,
    ):
        ledger = server.emulator.recorder
        await ledger.wait_until(lambda: ledger.counts["identify"] == 2)
        await people.say(server.lobby, server.kim, "second")
        await people.say(server.direct(server.kim), server.kim, "ahoy")
        await ledger.wait_for_texts(2)
        all_receipts = await receipts(harness)
        memories = await harness.agent.store.memories.recent(all_receipts[0].room_id, 10)
    assert [memory.content.text for memory in memories][-2:] == ["first", "second"]
    assert len(all_receipts) == 4


@pytest.mark.failure("B-10")
async def test_backfill_waits_for_rate_limits_and_skips_closed_channels(server: EmulatedServer) -> None:
    other = server.emulator.state.add_channel(server.guild, "pier")
    store = await seen_once(server, server.lobby, other)
    for channel in (server.lobby, other):
        await server.emulator.people.say(channel, server.kim, f"{server.call} back?", is_announced=False)
    server.emulator.faults.append(Fault(rf"GET .*/{other}/messages", 403, {"code": 50001}))
    server.emulator.faults.append(too_many_requests(rf"GET .*/{server.lobby}/messages", 0))
    async with server.run_bot(store=store) as (_harness, _):
        assert await server.emulator.recorder.wait_for_texts(2, server.lobby) == ["Aye.", "Aye."]
    assert len(server.emulator.recorder.texts(other)) == 1
