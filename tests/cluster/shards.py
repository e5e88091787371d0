"""A bot with 16 shards on the emulated Discord: two gateways, a worker and a sender, disturbed while people write."""

import asyncio
import signal
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from adapters.discord.emulator import Emulator
from adapters.discord.sharding import all_shards
from tests.chaos.model import ModelServer
from tests.chaos.wire import Wire
from tests.cluster.roles import RoleProcesses, judge

SHARDS, GATEWAYS = 16, 2
TOKEN = "only-for-the-cluster"
WAIT_TIMEOUT, CALM_SECONDS, FROZEN_SECONDS = 60.0, 3.0, 7.0


class ShardedBot:
    """The processes, the emulated Discord, and people who write one message after the other in every server."""

    def __init__(self, url: str, emulator: Emulator, model: ModelServer, folder: Path) -> None:
        self._emulator = emulator
        settings = {"DISCORD_API_TOKEN": TOKEN, "DISCORD_API_BASE_URL": emulator.url}
        self._processes = RoleProcesses(url, model.url, folder, "discord", [{"name": "Ada"}], settings)
        self.gateways: list[Process] = []
        self.is_over = False
        self.sent: dict[str, list[str]] = {}  # by channel
        gateway = emulator.gateway
        gateway.recommended_shards = gateway.max_concurrency = SHARDS
        self._bot = emulator.add_bot("Ada", TOKEN)
        owner = emulator.state.add_user("Owner")
        start = datetime(2026, 1, 1, tzinfo=UTC)  # one server in each millisecond: one for each shard
        for number in range(SHARDS):
            created_at = start + timedelta(milliseconds=number)
            guild = emulator.state.add_guild(f"Server {number}", owner, [self._bot], created_at=created_at)
            self.sent[emulator.state.add_channel(guild, "talk")] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the processes, and wait until all shards are connected."""
        async with self._processes:
            await self.start_gateway()
            await self._until_connected()  # it creates the tables
            await self._processes.start("worker")
            await self._processes.start("sender")
            await self.start_gateway()
            await self._emulator.recorder.wait_until(
                lambda: self._emulator.recorder.counts["resume"] >= SHARDS // GATEWAYS, WAIT_TIMEOUT
            )
            yield

    async def start_gateway(self) -> None:
        """Start one more gateway."""
        self.gateways.append(await self._processes.start("gateway"))

    async def take_over(self, disturb: Callable[[Process], None]) -> float:
        """Disturb the gateway that was started last; return the seconds until its shards are connected elsewhere."""
        count = self._emulator.recorder.counts["resume"]
        began = time.monotonic()
        disturb(self.gateways[-1])
        await self._emulator.recorder.wait_until(
            lambda: self._emulator.recorder.counts["resume"] >= count + SHARDS // GATEWAYS, WAIT_TIMEOUT
        )
        return time.monotonic() - began

    async def write(self) -> None:
        """Write in every channel until it is over, the next message once the one before it is answered."""
        await asyncio.gather(*(self._write_in(channel) for channel in self.sent))

    def judge(self) -> tuple[int, int, int, int]:
        """Return how many messages were answered, lost and answered twice, and how many answers were out of order."""
        verdicts = [judge(sent, self._emulator.recorder.texts(channel)) for channel, sent in self.sent.items()]
        answered, lost, doubled, inversions = map(sum, zip(*verdicts, strict=True))
        return answered, lost, doubled, inversions

    async def _write_in(self, channel: str) -> None:
        recorder, sent = self._emulator.recorder, self.sent[channel]
        while not self.is_over:
            name = f"m{int(channel) & 0xFFF:04}{len(sent):04}"
            sent.append(name)
            author = self._emulator.state.add_user(name)
            await self._emulator.people.say(channel, author, f"<@{self._bot}> hello")
            with suppress(TimeoutError):
                await recorder.wait_until(lambda text=f"re {name}": text in recorder.texts(channel), WAIT_TIMEOUT)

    async def _until_connected(self) -> None:
        sessions = self._emulator.gateway.sessions.values()
        await self._emulator.recorder.wait_until(
            lambda: sorted(item.shard for item in sessions if item.line is not None) == all_shards(SHARDS), WAIT_TIMEOUT
        )


async def kill(bot: ShardedBot) -> float:
    """Kill a gateway, then start another."""
    taken = await bot.take_over(lambda process: process.kill())
    await bot.start_gateway()
    return taken


async def freeze(bot: ShardedBot) -> float:
    """Freeze a gateway for longer than its lease."""
    taken = await bot.take_over(lambda process: process.send_signal(signal.SIGSTOP))
    await asyncio.sleep(max(0.0, FROZEN_SECONDS - taken))
    bot.gateways[-1].send_signal(signal.SIGCONT)
    return taken


SHARD_FAULTS: dict[str, Callable[[ShardedBot], Awaitable[float]]] = {
    f"SIGKILL of one of {GATEWAYS} gateways": kill,
    f"SIGSTOP of one of {GATEWAYS} gateways": freeze,
}


async def disturb_shards(url: str, name: str) -> tuple[tuple[int, int, int, int], float]:
    """Run the bot on a database and let a fault happen; return the verdict and the seconds until the take-over."""
    with TemporaryDirectory(prefix="greenroom-shards-") as folder:
        async with Emulator() as emulator, ModelServer(Wire()) as model:
            bot = ShardedBot(url, emulator, model, Path(folder))
            async with bot.running():
                writing = asyncio.create_task(bot.write())
                await asyncio.sleep(CALM_SECONDS)
                taken = await SHARD_FAULTS[name](bot)
                await asyncio.sleep(CALM_SECONDS)
                bot.is_over = True
                await writing
            return bot.judge(), taken
