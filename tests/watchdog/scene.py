"""A running bot on a fast clock, with a platform whose connection the test sets, and an owner with a webhook."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from aiohttp import web

from bot import (
    AgentConfig,
    Character,
    Entity,
    Outcome,
    Plugin,
    Room,
    Runtime,
    Settings,
    World,
    derived_id,
    system_clock,
)
from bot.concurrency.clock import TimeSource
from bot.domain.environment import ChannelType
from bot.platform import ConnectionStatus, Delivery
from bot.settings import Layer
from bot.store import InMemoryStore
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import ManualClock, RecordingAdapter, ScriptedModel, make_message
from bot.watchdog.channels import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from bot.watchdog.watchdog import find_token_ends
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
    """A running bot, its platform, its clock and its owner; `path` is the file of its store, if that is one."""

    runtime: Runtime
    platform: Platform
    clock: FastClock
    owner: Owner
    store: Any
    closing: ExitStack
    path: Path = Path()
    database: Any = None
    lag: float = 0.0

    @property
    def agent(self) -> Any:
        """The agent."""
        return self.runtime.agents[0].agent

    @property
    def monitor(self) -> Any:
        """What measures the process."""
        return self.runtime.handles[0].process_monitor

    def renew_tokens(self, values: Mapping[str, str]) -> None:
        """Use other tokens, as after a restart."""
        self.monitor.ends.update(find_token_ends(values))

    async def settle_history(self, comes: Callable[[datetime], bool], days: int = 7) -> None:
        """Store what came in during the last days: the minutes for which `comes` is true."""
        now = self.clock.wall()
        for minutes in range(days * 24 * 60, 0, -1):
            at = now - timedelta(minutes=minutes)
            if comes(at):
                message = make_message("Hello", sent_at=at, platform="telegram", message_id=f"old-{minutes}")
                [event] = await self.store.ledger.receive([message], at)
                closed = replace(event.receipt, outcome=Outcome.IGNORED, closed_at=at)
                await self.store.ledger.save_receipts([closed])

    async def run(self, seconds: int) -> None:
        """Advance the clock second by second; everything due is done before the next second."""
        for _ in range(seconds):
            await self.clock.wait_for_sleepers(SLEEPERS)
            self.clock.advance(1.0 + self.lag)
        await self.clock.wait_for_sleepers(SLEEPERS)

    async def run_until_notified(self, seconds: int) -> int | None:
        """Return after how many seconds the owner was notified; None if not within `seconds`."""
        count, start = len(self.owner.messages), self.clock.monotonic()
        while len(self.owner.messages) == count:
            if self.clock.monotonic() - start >= seconds:
                return None
            await self.run(1)
        return round(self.clock.monotonic() - start)


@asynccontextmanager
async def open_scene(
    *plugins: Plugin,
    script: Any = "Well.",
    settings: Mapping[str, str] | None = None,
    store: Any = None,
    clock: FastClock | None = None,
    owner: Owner | None = None,
) -> AsyncIterator[Scene]:
    """Run a bot whose owner is notified by the webhook, unless `settings` say otherwise."""
    clock, owner = clock or FastClock(), owner or Owner()
    model = ScriptedModel(script)
    store = store if store is not None else InMemoryStore(clock.wall)
    async with owner.listen():
        webhook_settings = {"OWNER_WEBHOOK_URL": owner.url, "OWNER_WEBHOOK_SECRET": SECRET}
        layers = [Layer("the test", {"AI_NOTICE": "off", **webhook_settings, **(settings or {})})]
        config = AgentConfig(
            Character(name="Ada"), (bootstrap, model.plugin, *plugins), Settings(layers), store, clock.wall
        )
        async with Runtime([config], time_source=clock.time_source) as runtime:
            platform = Platform(clock, runtime.agents[0].agent.id)
            await runtime.connect(platform)
            with ExitStack() as closing:
                yield Scene(runtime, platform, clock, owner, store, closing)


@asynccontextmanager
async def open_file_scene(folder: Path, **details: Any) -> AsyncIterator[Scene]:
    """Run a bot as `open_scene` does, with a store in a SQLite file."""
    path, files, clock = folder / "bot.db", OpenFiles(), FastClock(system_clock())
    async with (
        files.open_store(path, derived_id("agent", "Ada"), clock=clock.wall) as store,
        files.use(path) as database,
        open_scene(store=store, clock=clock, **details) as scene,
    ):
        scene.path, scene.database = path, database
        yield scene
