"""Compare the cost of the store with plain sqlite3 that writes the same rows."""

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.exchange import AGENT, Exchange, make_exchanges, store_exchanges
from benchmarks.figures import Row, format_microseconds, measure, report_progress
from benchmarks.recording import (
    SqlCall,
    count_statements,
    count_transactions,
    open_plain_connection,
    recording_connection,
    replay,
)
from bot.store.sql.core.base import Synchronous
from bot.store.sql.sqlite.storage import OpenFiles

ROOMS = 64
MESSAGES = 10 * ROOMS
ROUNDS = 3
NAMES = [f"room {number}" for number in range(ROOMS)]


def measure_store() -> list[Row]:
    """Store the same messages in turns by the store and by a replay of its statements; minimum CPU counts."""
    return asyncio.run(_measure_store())


async def _measure_store() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder, "base.db")
        await _measure_storing(base, Synchronous.NORMAL, make_exchanges(NAMES, 10 * ROOMS))
        return [await _row(base, level) for level in (Synchronous.NORMAL, Synchronous.FULL)]


async def _row(base: Path, level: Synchronous) -> Row:
    report_progress(f"the store and plain sqlite3, synchronous = {level}")
    exchanges = make_exchanges(NAMES, ROOMS + MESSAGES)
    first, script = await _record(base, level, exchanges)
    plain_costs, sequential_costs, concurrent_costs = [], [], []
    for _ in range(ROUNDS):
        plain_costs.append(await asyncio.to_thread(_measure_replay, _copy(base), level, first, script))
        sequential_costs.append(await _measure_storing(_copy(base), level, exchanges))
        concurrent_costs.append(await _measure_storing(_copy(base), level, exchanges, ROOMS))
    per_message = count_statements(script) / MESSAGES, count_transactions(script) / MESSAGES
    count = f"{per_message[0]:.0f} statements, {per_message[1]:.0f} commits"
    baseline = min(plain_costs)
    figures = [f"plain sqlite3 {format_microseconds(baseline)} CPU a message ({count})"]
    for name, costs in (("alone", sequential_costs), (f"{ROOMS} rooms at once", concurrent_costs)):
        figures.append(f"{name} {format_microseconds(min(costs))} = {min(costs) / baseline:.2f} ×")
    return f"store, synchronous={level} (goal ≤ 2 ×)", ", ".join(figures)


def _copy(base: Path) -> Path:
    return Path(shutil.copy(base, base.with_name("copy.db")))


async def _record(base: Path, level: Synchronous, exchanges: Sequence[Exchange]) -> tuple[list[SqlCall], list[SqlCall]]:
    """Return the recorded calls for the first message of each room, and for the others."""
    script: list[SqlCall] = []
    async with OpenFiles(recording_connection(script)).open_store(_copy(base), AGENT, synchronous=level) as store:
        script.clear()
        await store_exchanges(store, exchanges[:ROOMS])
        first = script.copy()
        script.clear()
        await store_exchanges(store, exchanges[ROOMS:])
        return first, script.copy()


def _measure_replay(path: Path, level: Synchronous, first: Sequence[SqlCall], script: Sequence[SqlCall]) -> float:
    connection = open_plain_connection(path, level)
    try:
        replay(connection, first)
        with measure() as usage:
            replay(connection, script)
    finally:
        connection.close()
    return usage.cpu / MESSAGES


async def _measure_storing(
    path: Path, level: Synchronous, exchanges: Sequence[Exchange], concurrency: int = 1
) -> float:
    """Store the first message of each room, then measure the others."""
    async with OpenFiles().open_store(path, AGENT, synchronous=level) as store:
        await store_exchanges(store, exchanges[:ROOMS], concurrency)
        with measure() as usage:
            await store_exchanges(store, exchanges[ROOMS:], concurrency)
    return usage.cpu / (len(exchanges) - ROOMS)
