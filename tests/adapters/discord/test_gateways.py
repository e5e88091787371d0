"""Several gateways divide the shards of a bot among themselves, by leases in PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.config import DiscordSettings
from adapters.discord.sharding import ShardId, all_shards
from bot import Character, Settings, derived_id
from bot.platform import AdapterSpec
from bot.runtime.character_reload import AgentConfig
from bot.runtime.runtime import Runtime
from bot.settings import Layer
from bot.store import Members, ProcessRole
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers
from bot.testing import ScriptedModel, model_answer
from bot.testing.harness import add_required
from tests.adapters.discord.server import LIMITS, TOKEN, EmulatedServer
from tests.adapters.discord.test_shards import add_quays, ask_in, shards_of

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
