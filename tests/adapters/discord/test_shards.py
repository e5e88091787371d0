"""A bot in many servers has several gateway connections, its shards: their number, their start and what they bring."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from adapters.discord.emulator import Fault
from adapters.discord.sharding import ShardId, ShardStatus, all_shards
from bot.platform import ConnectionState, ConnectionStatus, DisconnectCause
from bot.store import InMemoryStore
from tests.adapters.discord.server import LIMITS, EmulatedServer, receipts
from tests.adapters.discord.test_receiving_waiting import Failing

START = datetime(2026, 1, 1, tzinfo=UTC)


def add_quays(server: EmulatedServer, count: int) -> list[str]:
    """Add a server with a channel for each of so many shards; return the channels."""
    state = server.emulator.state
    quays = []
    for shard in all_shards(count):
        offset = (shard.number - state_number(count)) % count
        guild = state.add_guild(
            f"Harbour {shard.number}", server.kim, [server.bot], created_at=START + timedelta(milliseconds=offset)
        )
        assert shard.has_guild(int(guild))
        quays.append(state.add_channel(guild, "quay"))
    return quays


def state_number(count: int) -> int:
    """Return the shard of a server that was created at START."""
    return (int(START.timestamp() * 1000) - 1_420_070_400_000) % count


def shards_of(server: EmulatedServer) -> list[ShardId]:
    """Return the shards that are connected."""
    return sorted(session.shard for session in server.emulator.gateway.sessions.values() if session.line is not None)


async def ask_in(server: EmulatedServer, channels: Sequence[str], text: str = "ahoy") -> None:
    """Write in channels, and wait until each has one answer more."""
    counts = {channel: len(server.emulator.recorder.texts(channel)) for channel in channels}
    for channel in channels:
        await server.emulator.people.say(channel, server.kim, f"{server.call} {text}")
    for channel, count in counts.items():
        await server.emulator.recorder.wait_for_texts(count + 1, channel)


async def test_a_bot_in_many_servers_answers_in_each_over_the_recommended_number_of_shards(
    server: EmulatedServer,
) -> None:
    server.emulator.gateway.recommended_shards = 4
    channels = [*add_quays(server, 4), server.direct(server.kim)]
    async with server.run_bot() as (harness, adapter):
        await ask_in(server, channels)
        assert shards_of(server) == all_shards(4)
        assert len(await receipts(harness)) == len(channels)
        [connection] = adapter.connections
        assert connection.snapshot.state is ConnectionState.CONNECTED
    assert [len(server.emulator.recorder.texts(channel)) for channel in channels] == [1] * 5


@pytest.mark.long
async def test_after_a_restart_every_shard_resumes_its_session_and_brings_what_was_missed(
    server: EmulatedServer,
) -> None:
    server.emulator.gateway.recommended_shards = 4
    channels, store = add_quays(server, 4), InMemoryStore()
    async with server.run_bot(store=store):
        await ask_in(server, channels)
    for channel in channels:
        await server.emulator.people.say(channel, server.kim, f"{server.call} again")
    async with server.run_bot(store=store) as (harness, _):
        for channel in channels:
            await server.emulator.recorder.wait_for_texts(2, channel)
        assert len(await receipts(harness)) == 8
    assert (server.emulator.recorder.counts["identify"], server.emulator.recorder.counts["resume"]) == (4, 4)


@pytest.mark.parametrize("max_concurrency", [1, 2])
async def test_sessions_of_a_group_start_in_sequence(server: EmulatedServer, max_concurrency: int) -> None:
    gateway, recorder = server.emulator.gateway, server.emulator.recorder
    gateway.recommended_shards, gateway.max_concurrency = 4, max_concurrency
    turns = asyncio.Semaphore(0)

    async def sleep(seconds: float) -> None:
        await (turns.acquire() if seconds == LIMITS.identify_interval else LIMITS.sleep(seconds))

    async with server.run_bot(limits=replace(LIMITS, sleep=sleep), is_awaited=False):
        for started in range(max_concurrency, 5):
            await recorder.wait_until(lambda count=started: recorder.counts["ready"] == count)
            assert recorder.counts["identify"] == started
            assert sum(path.endswith("/gateway/bot") for _, path, _ in recorder.requests) == 1 + started
            turns.release()


@pytest.mark.parametrize(
    ("recommended", "configured", "expected"), [(4, "", 2), (5, "", 5), (1, "", 2), (5, "3", 3), (1, "1", 1)]
)
async def test_the_number_is_kept_until_discord_recommends_more_than_twice_as_many(
    server: EmulatedServer, recommended: int, configured: str, expected: int
) -> None:
    gateway, store = server.emulator.gateway, InMemoryStore()
    gateway.recommended_shards = 2
    async with server.run_bot(store=store):
        assert shards_of(server) == all_shards(2)
    gateway.recommended_shards = recommended
    async with server.run_bot(store=store, settings={"DISCORD_SHARD_COUNT": configured}):
        assert shards_of(server) == all_shards(expected)


async def test_the_number_is_chosen_once_the_store_works(server: EmulatedServer) -> None:
    server.emulator.gateway.recommended_shards = 4
    failing = Failing()
    failing.is_down = True
    async with server.run_bot(store=failing.store, is_awaited=False) as (_, adapter):
        [connection] = adapter.connections
        async with asyncio.timeout(30):
            while connection.snapshot.state is not ConnectionState.DEGRADED:
                await LIMITS.sleep(0)
        failing.is_down = False
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["ready"] == 4)
        assert shards_of(server) == all_shards(4)


async def test_an_impossible_number_is_refused_until_discord_tells_another(server: EmulatedServer) -> None:
    server.emulator.gateway.recommended_shards = 10**12
    async with server.run_bot(is_awaited=False) as (_, adapter):
        [connection] = adapter.connections
        async with asyncio.timeout(30):
            while connection.snapshot.state is not ConnectionState.DEGRADED:
                await LIMITS.sleep(0)
        server.emulator.gateway.recommended_shards = 2
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["ready"] == 2)
        assert shards_of(server) == all_shards(2)


async def test_a_bot_that_grows_while_it_runs_takes_as_many_shards_as_discord_requires(server: EmulatedServer) -> None:
    gateway, recorder = server.emulator.gateway, server.emulator.recorder
    channels = add_quays(server, 4)
    async with server.run_bot():
        await ask_in(server, channels)
        gateway.required_shards = gateway.recommended_shards = 4
        await gateway.invalidate()
        await recorder.wait_until(lambda: shards_of(server) == all_shards(4))
        await ask_in(server, channels)


async def test_a_number_that_discord_refuses_is_named_with_its_setting(server: EmulatedServer) -> None:
    server.emulator.gateway.required_shards = server.emulator.gateway.recommended_shards = 4
    async with server.run_bot(settings={"DISCORD_SHARD_COUNT": "2"}, is_awaited=False) as (_, adapter):
        [account] = adapter.accounts
        async with asyncio.timeout(30):
            await account.is_connected.wait()
        assert "unset DISCORD_SHARD_COUNT" in account.problem


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [(1, 3), (4, 1), (2, 5)])
async def test_a_channel_that_could_not_be_read_is_read_by_the_shard_that_has_it_later(
    server: EmulatedServer, before: int, after: int
) -> None:
    people, recorder, gateway = server.emulator.people, server.emulator.recorder, server.emulator.gateway
    channels, store = add_quays(server, 4), InMemoryStore()

    def run(count: int):  # type: ignore[no-untyped-def]
        return server.run_bot(store=store, settings={"DISCORD_SHARD_COUNT": str(count)})

    async with run(before):
        await ask_in(server, channels)
    gateway.sessions.clear()
    for channel in channels:
        await people.say(channel, server.kim, f"{server.call} missed", is_announced=False)
    outage = Fault(r"GET .*/channels/\d+/messages", 503, times=1000)
    server.emulator.faults.append(outage)
    async with run(before):
        await ask_in(server, channels, "live")
    outage.times = 0
    gateway.sessions.clear()
    async with run(after) as (harness, _):
        for channel in channels:
            assert len(await recorder.wait_for_texts(3, channel)) == 3
        assert len(await receipts(harness)) == 3 * len(channels)


def test_an_account_is_connected_while_all_its_shards_are(caplog: pytest.LogCaptureFixture) -> None:
    account = ConnectionStatus("discord", "Ada")
    shards: set[ShardStatus] = set()
    first, second = (ShardStatus(shard, account, shards) for shard in all_shards(2))
    first.connected()
    assert account.snapshot.state is ConnectionState.CONNECTING
    second.connected()
    assert account.snapshot.state is ConnectionState.CONNECTED
    second.failed(DisconnectCause.PLATFORM, "closed")
    first.connected()
    assert account.snapshot.state is ConnectionState.DEGRADED
    assert "shard 1/2: closed" in caplog.text
    second.note_unheard(START)
    first.note_unheard(None)
    assert account.unheard_since == START
    second.close()
    assert (account.snapshot.state, account.unheard_since) == (ConnectionState.CONNECTED, None)
