"""Measure whether a message costs more the more is stored."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection

from benchmarks.exchange import AGENT, keep_all, make_exchanges
from benchmarks.figures import Row, measured, tell
from benchmarks.filling import fill
from bot import MemoryKind
from plugins.sql.sqlite.database import Database, OpenFiles
from plugins.sql.stores.memories import RECENT, memory_of
from plugins.sql.stores.store import SqlStore

FIRST_AGENT = 1  # its number in a new file
ROOMS = 1_000
TALKING = 50
LAST = 20
MESSAGES = 6 * TALKING
ROUNDS = 5
SIZES = (1_000, 100_000, 1_000_000)
NAMES = [f"room {number}" for number in range(ROOMS)]


@dataclass(slots=True)
class Sized:
    """A store that holds so many messages, and what was measured of it."""

    size: int
    store: SqlStore
    database: Database
    rooms: Sequence[str]
    costs: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)

    @property
    def cost(self) -> float:
        """The CPU of one message, in µs."""
        return 1e6 * min(self.costs)


def flat() -> list[Row]:
    """Fill files of several sizes, and measure them in turns."""
    return asyncio.run(_flat())


async def _flat() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            sized = [await _sized(stack, Path(folder, f"{size}.db"), size) for size in SIZES]
            tell("the store at each size, in turns")
            for _ in range(ROUNDS):
                for one in sized:
                    await _measure(one)
            return _rows(sized)


def _rows(sized: Sequence[Sized]) -> list[Row]:
    sizes = ", ".join(f"{one.size:,}" for one in sized)
    costs = ", ".join(f"{one.cost:.0f}" for one in sized)
    reads = ", ".join(f"{1e6 * statistics.median(one.reads):.0f}" for one in sized)
    most = max(one.cost for one in sized) / sized[0].cost
    return [
        (
            f"store with {sizes} messages",
            f"{costs} µs CPU a message: {most:.2f} × the first at most (goal ≤ 1.3)",
        ),
        (f"the last {LAST} of a room, likewise", f"{reads} µs (median; goal ≤ 100)"),
    ]


async def _sized(stack: AsyncExitStack, path: Path, size: int) -> Sized:
    """Fill a file; what is little stands in so few rooms that each has its last messages."""
    tell(f"filling a file with {size:,} messages")
    rooms = NAMES[: min(ROOMS, size // LAST)]
    async with OpenFiles().store_in(path, AGENT) as store:
        await store.entities.save_entities([one.arrival.author for one in make_exchanges(rooms, len(rooms))])
        for one in make_exchanges(rooms, len(rooms)):
            await store.worlds.save_world(one.arrival.world, [one.arrival.room])
    await asyncio.to_thread(fill, path, FIRST_AGENT, rooms, range(size // 2))
    files = OpenFiles()
    store = await stack.enter_async_context(files.store_in(path, AGENT))
    database = await stack.enter_async_context(files.use(path))
    talking = rooms[:: len(rooms) // TALKING]
    await keep_all(store, make_exchanges(talking, TALKING), TALKING)
    return Sized(size, store, database, talking)


async def _measure(one: Sized) -> None:
    exchanges = make_exchanges(one.rooms, MESSAGES)
    with measured() as spent:
        await keep_all(one.store, exchanges, TALKING)
    one.costs.append(spent.cpu / MESSAGES)
    rooms = [exchange.arrival.room.id.bytes for exchange in exchanges]
    one.reads += await one.database.read(lambda db: [_read(db, room) for room in rooms])


def _read(connection: Connection, room: bytes) -> float:
    started = time.perf_counter()
    rows = RECENT.rows(connection, FIRST_AGENT, room, MemoryKind.MESSAGE.value, LAST)
    found = [memory_of(row) for row in rows]
    assert len(found) == LAST
    return time.perf_counter() - started
