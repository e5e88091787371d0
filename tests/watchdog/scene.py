"""A running bot on a fast clock, with a platform whose connection the test sets, and an owner with a webhook."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from aiohttp import web

from bot import AgentConfig, Character, Entity, Plugin, Room, Runtime, Settings, World, derived_id
from bot.concurrency.clock import TimeSource
from bot.domain.environment import ChannelType
from bot.platform import ConnectionStatus, Delivery
from bot.settings import Layer
from bot.store import InMemoryStore
from bot.testing import ManualClock, RecordingAdapter, ScriptedModel
from bot.watchdog.channels import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from plugins.bootstrap import plugin as bootstrap

SECRET = "only-for-tests-of-the-owner"
SLEEPERS = 2  # the watchdog, and what measures the process


class FastClock(ManualClock):
    """A clock whose wall time can jump, and whose seconds can take longer."""

    offset = timedelta()

    def wall(self) -> datetime:
        """Return the wall time."""
        return self.now() + self.offset

    @property
    def time_source(self) -> TimeSource:
        """Return the clock in the form in which code under test takes it."""
        return TimeSource(self.wall, self.monotonic, self.sleep)


class Owner:
    """The program of the owner that receives the webhook; it refuses what is not signed."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.status = 200
        self.url = ""

    @property
    def texts(self) -> list[str]:
        """What was received."""
        return [message["text"] for message in self.messages]

    @asynccontextmanager
    async def listen(self) -> AsyncIterator["Owner"]:
        """Receive while the block lasts."""
        app = web.Application()
        app.router.add_post("/told", self._receive)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/told"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        body, timestamp = await request.read(), request.headers[TIMESTAMP_HEADER]
        assert request.headers[SIGNATURE_HEADER] == f"sha256={sign(SECRET, timestamp, body)}"
        if self.status == 200:
            self.messages.append(await request.json())
            self.ids.append(request.headers[ID_HEADER])
        return web.Response(status=self.status)


class Platform(RecordingAdapter):
    """A platform with one account, whose connection the test sets; direct messages go to any person."""

    platform = "telegram"

    def __init__(self, clock: FastClock, agent_id: UUID, name: str = "Ada") -> None:
        super().__init__()
        self.status = ConnectionStatus(self.platform, name, clock.wall, agent_id=agent_id)
        self.is_hanging = False
        self.status.connected()

    @property
    def connections(self) -> Sequence[ConnectionStatus]:
        """Return the connection of the account."""
        return (self.status,)

    async def deliver(self, delivery: Delivery) -> str:
        """Send a part, or never return."""
        if self.is_hanging:
            await asyncio.Event().wait()
        return await super().deliver(delivery)

    async def open_direct(self, agent_id: UUID, person: Entity) -> tuple[World, Room] | None:
        """Return the private chat with a person."""
        world = World(derived_id("telegram", "world", person.external_id), self.platform, person.external_id)
        room_id = derived_id("telegram", "room", person.external_id)
        return world, Room(room_id, world.id, ChannelType.DM, self.platform, person.external_id, "account")


@dataclass
class Scene:
    """A running bot, its platform, its clock and its owner."""

    runtime: Runtime
    platform: Platform
    clock: FastClock
    owner: Owner
    model: ScriptedModel
    store: Any
    lag: float = 0.0

    @property
    def agent(self) -> Any:
        """The agent."""
        return self.runtime.agents[0].agent

    async def run(self, seconds: int) -> None:
        """Let seconds pass, one after another; what they bring about is done before the next."""
        for _ in range(seconds):
            await self.clock.wait_for_sleepers(SLEEPERS)
            self.clock.advance(1.0 + self.lag)
        await self.clock.wait_for_sleepers(SLEEPERS)

    async def run_until_told(self, seconds: int) -> int | None:
        """Return after how many seconds the owner was told something; None if not within these."""
        count = len(self.owner.messages)
        for second in range(seconds):
            if len(self.owner.messages) > count:
                return second
            await self.run(1)
        return seconds if len(self.owner.messages) > count else None


@asynccontextmanager
async def open_scene(
    *plugins: Plugin,
    script: Any = "Well.",
    settings: Mapping[str, str] | None = None,
    store: Any = None,
    clock: FastClock | None = None,
    owner: Owner | None = None,
) -> AsyncIterator[Scene]:
    """Run a bot whose owner is told by the webhook, unless `settings` say otherwise."""
    clock, owner = clock or FastClock(), owner or Owner()
    model = ScriptedModel(script)
    store = store if store is not None else InMemoryStore(clock.wall)
    async with owner.listen():
        told = {"OWNER_WEBHOOK_URL": owner.url, "OWNER_WEBHOOK_SECRET": SECRET}
        layers = [Layer("the test", {**told, **(settings or {})})]
        config = AgentConfig(
            Character(name="Ada"), (bootstrap, model.plugin, *plugins), Settings(layers), store, clock.wall
        )
        async with Runtime([config], time_source=clock.time_source) as runtime:
            platform = Platform(clock, runtime.agents[0].agent.id)
            await runtime.connect(platform)
            yield Scene(runtime, platform, clock, owner, model, store)
