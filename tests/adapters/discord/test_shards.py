"""A bot in many servers has several gateway connections, its shards: their number, their start and what they bring."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.config import DiscordSettings
from adapters.discord.emulator import Fault
from adapters.discord.sharding import ShardId, ShardStatus, all_shards
from bot import Character, Settings, derived_id
from bot.platform import AdapterSpec, ConnectionState, ConnectionStatus, DisconnectCause
from bot.runtime.character_reload import AgentConfig
from bot.runtime.runtime import Runtime
from bot.settings import Layer
from bot.store import InMemoryStore, Members, ProcessRole
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers
from bot.testing import ScriptedModel, model_answer
from bot.testing.harness import add_required
from tests.adapters.discord.server import LIMITS, TOKEN, EmulatedServer, receipts
from tests.adapters.discord.test_client_gateway import Failing

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


# Several gateways divide the shards of a bot among themselves, by leases in PostgreSQL.

ADA = derived_id("agent", "Ada")
SHARDS = 16
IDENTIFY_SECONDS = 0.05


async def sleep_between_sessions(seconds: float) -> None:
    """Wait between two sessions, and at once otherwise."""
    await (asyncio.sleep(seconds) if seconds == IDENTIFY_SECONDS else LIMITS.sleep(seconds))


class Cluster:
    """Processes with roles that run one bot on the emulated Discord; they differ in their connections only."""

    def __init__(self, url: str, server: EmulatedServer) -> None:
        self._address = parse_address(url, "the url")
        self._server = server

    @asynccontextmanager
    async def process(self, role: ProcessRole) -> AsyncIterator[Runtime]:
        """Run one process."""
        limits = replace(LIMITS, lease_interval=0.02, identify_interval=IDENTIFY_SECONDS, sleep=sleep_between_sessions)
        spec = AdapterSpec("discord", partial(DiscordAdapter, limits=limits), DiscordSettings, spreads_connections=True)
        variables = {
            "DISCORD_API_TOKEN": TOKEN,
            "DISCORD_API_BASE_URL": self._server.emulator.url,
            "STREAMING": "false",
            "AI_NOTICE": "off",
            "MESSAGES_PER_PERSON": "0",
        }
        async with OpenServers().open_store(self._address, ADA) as store:
            plugins = (*add_required(()), ScriptedModel(model_answer("Aye.")).plugin)
            settings = Settings((Layer("test", variables),))
            config = AgentConfig(Character(name="Ada"), plugins, settings, store, role=role)
            async with Runtime([config], [spec]) as runtime:
                yield runtime


def own_shards(runtime: Runtime) -> list[ShardId]:
    """Return the shards that a process has connected."""
    [adapter] = runtime.adapters
    assert isinstance(adapter, DiscordAdapter)
    [account] = adapter.accounts
    return [shard.id for shard in account.shards.values() if shard.status.is_connected]


def members_of(runtime: Runtime) -> Members:
    """Return the processes that a process knows."""
    sharing = runtime.agents[0].agent.store.sharing
    assert sharing is not None
    return sharing.members


async def until(runtime: Runtime, condition: Callable[[], bool]) -> None:
    """Read the processes again and again until a condition holds."""
    async with asyncio.timeout(30):
        while not condition():
            await members_of(runtime).find()


@pytest.mark.long
async def test_gateways_share_sixteen_shards_evenly_and_take_over_those_of_a_gateway_that_ends(
    server: EmulatedServer, postgres_url: str
) -> None:
    gateway, recorder = server.emulator.gateway, server.emulator.recorder
    gateway.recommended_shards, gateway.max_concurrency = SHARDS, 4
    gateway.identify_interval = IDENTIFY_SECONDS / 2
    channels = [*add_quays(server, SHARDS), server.direct(server.kim)]
    cluster = Cluster(postgres_url, server)
    async with AsyncExitStack() as stack, cluster.process(ProcessRole.GATEWAY) as first:
        await until(first, lambda: own_shards(first) == all_shards(SHARDS))
        await stack.enter_async_context(cluster.process(ProcessRole.WORKER))
        await stack.enter_async_context(cluster.process(ProcessRole.SENDER))
        await ask_in(server, channels)

        second = await stack.enter_async_context(cluster.process(ProcessRole.GATEWAY))
        await until(first, lambda: len(own_shards(second)) == SHARDS // 2)
        await ask_in(server, channels, "with two")
        assert sorted([*own_shards(first), *own_shards(second)]) == all_shards(SHARDS)
        listed, _ = await members_of(first).find()
        held = {item.number: [name for name in item.accounts if name.startswith("connection")] for item in listed}
        assert sorted(map(len, held.values())) == [0, 0, SHARDS // 2, SHARDS // 2]
        assert "connection to discord 3/16" in {name for names in held.values() for name in names}

        drained = next(item.number for item in listed if item.role == "gateway")
        assert await members_of(first).drain(drained)
        await until(first, lambda: len(own_shards(second)) == SHARDS and not own_shards(first))
        await ask_in(server, channels, "with one again")
        assert shards_of(server) == all_shards(SHARDS)
        assert first.connections() == []
    assert recorder.counts["identify_too_early"] == 0
    assert recorder.counts["identify"] == SHARDS  # all others were resumed
    assert [len(recorder.texts(channel)) for channel in channels] == [3] * len(channels)
