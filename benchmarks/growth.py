"""Measure whether the cost of a message grows with the stored data."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection

from benchmarks.exchange import AGENT, make_exchanges, store_exchanges
from benchmarks.figures import Row, measure, report_progress
from benchmarks.filling import fill
from bot import MemoryKind
from bot.store.sql.sqlite.storage import OpenFiles, SqliteDatabase
from bot.store.sql.stores.memories import MEMORY, RECENT
from bot.store.sql.stores.store import SqlStore

FIRST_AGENT = 1  # its number in a new file
ROOMS = 1_000
ACTIVE_ROOMS = 50
RECENT_LIMIT = 20
MESSAGES = 6 * ACTIVE_ROOMS
ROUNDS = 5
SIZES = (1_000, 100_000, 1_000_000)
NAMES = [f"room {number}" for number in range(ROOMS)]


@dataclass(slots=True)
class SizedStore:
    """A store with `size` messages, and its measurements."""

    size: int
    store: SqlStore
    database: SqliteDatabase
    rooms: Sequence[str]
    costs: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)

    @property
    def cost(self) -> float:
        """The CPU time of one message, in µs."""
        return 1e6 * min(self.costs)


def measure_growth() -> list[Row]:
    """Fill files of several sizes, and measure them in turns."""
    return asyncio.run(_measure_growth())


async def _measure_growth() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            stores = [await _open_sized(stack, Path(folder, f"{size}.db"), size) for size in SIZES]
            report_progress("the store at each size, in turns")
            for _ in range(ROUNDS):
                for sized in stores:
                    await _measure(sized)
            return _rows(stores)


def _rows(stores: Sequence[SizedStore]) -> list[Row]:
    sizes = ", ".join(f"{sized.size:,}" for sized in stores)
    costs = ", ".join(f"{sized.cost:.0f}" for sized in stores)
    reads = ", ".join(f"{1e6 * statistics.median(sized.reads):.0f}" for sized in stores)
    worst = max(sized.cost for sized in stores) / stores[0].cost
    return [
        (f"store with {sizes} messages", f"{costs} µs CPU a message: {worst:.2f} × the first at most (goal ≤ 1.3)"),
        (f"the last {RECENT_LIMIT} of a room, likewise", f"{reads} µs (median; goal ≤ 100)"),
    ]


async def _open_sized(stack: AsyncExitStack, path: Path, size: int) -> SizedStore:
    """Fill a file; small sizes use fewer rooms, so that each has enough recent messages."""
    report_progress(f"filling a file with {size:,} messages")
    rooms = NAMES[: min(ROOMS, size // RECENT_LIMIT)]
    async with OpenFiles().open_store(path, AGENT) as store:
        await store.entities.save_entities([exchange.inbound.author for exchange in make_exchanges(rooms, len(rooms))])
        for exchange in make_exchanges(rooms, len(rooms)):
            await store.worlds.save_world(exchange.inbound.world, [exchange.inbound.room])
    await asyncio.to_thread(fill, path, FIRST_AGENT, rooms, range(size // 2))
    files = OpenFiles()
    store = await stack.enter_async_context(files.open_store(path, AGENT))
    database = await stack.enter_async_context(files.use(path))
    active = rooms[:: len(rooms) // ACTIVE_ROOMS]
    await store_exchanges(store, make_exchanges(active, ACTIVE_ROOMS), ACTIVE_ROOMS)
    return SizedStore(size, store, database, active)


async def _measure(sized: SizedStore) -> None:
    exchanges = make_exchanges(sized.rooms, MESSAGES)
    with measure() as usage:
        await store_exchanges(sized.store, exchanges, ACTIVE_ROOMS)
    sized.costs.append(usage.cpu / MESSAGES)
    rooms = [exchange.inbound.room.id for exchange in exchanges]
    sized.reads += await sized.database.read(lambda db: [_read(db, room) for room in rooms])


def _read(connection: Connection, room: UUID) -> float:
    started = time.perf_counter()
    key = {"agent": FIRST_AGENT, "room_id_": room, "kind_": MemoryKind.MESSAGE, "limit": RECENT_LIMIT}
    rows = connection.execute(RECENT, key).all()
    memories = [MEMORY.read(row) for row in rows]
    assert len(memories) == RECENT_LIMIT
    return time.perf_counter() - started
