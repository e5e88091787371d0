"""Measure what the store costs beside plain sqlite3 that writes the same rows."""

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.exchange import AGENT, Exchange, keep_all, make_exchanges
from benchmarks.figures import Row, measured, micro, tell
from benchmarks.recording import Said, open_plainly, recording, say_again, statements, transactions
from plugins.sql.sqlite.connection import Synchronous
from plugins.sql.sqlite.database import OpenFiles

ROOMS = 64
MESSAGES = 10 * ROOMS
ROUNDS = 3
NAMES = [f"room {number}" for number in range(ROOMS)]


def compared() -> list[Row]:
    """Keep the same messages in turns by the store and by replaying its statements; the least CPU counts."""
    return asyncio.run(_compared())


async def _compared() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder, "base.db")
        await _kept(base, Synchronous.NORMAL, make_exchanges(NAMES, 10 * ROOMS))
        return [await _row(base, level) for level in (Synchronous.NORMAL, Synchronous.FULL)]


async def _row(base: Path, level: Synchronous) -> Row:
    tell(f"the store beside plain sqlite3, synchronous = {level}")
    exchanges = make_exchanges(NAMES, ROOMS + MESSAGES)
    first, script = await _recorded(base, level, exchanges)
    plain, alone, at_once = [], [], []
    for _ in range(ROUNDS):
        plain.append(await asyncio.to_thread(_replayed, _copied(base), level, first, script))
        alone.append(await _kept(_copied(base), level, exchanges))
        at_once.append(await _kept(_copied(base), level, exchanges, ROOMS))
    count = f"{statements(script) / MESSAGES:.0f} statements, {transactions(script) / MESSAGES:.0f} commits"
    floor = min(plain)
    figures = [f"plain sqlite3 {micro(floor)} CPU a message ({count})"]
    for name, costs in (("alone", alone), (f"{ROOMS} rooms at once", at_once)):
        figures.append(f"{name} {micro(min(costs))} = {min(costs) / floor:.2f} ×")
    return f"store, synchronous={level} (goal ≤ 2 ×)", ", ".join(figures)


def _copied(base: Path) -> Path:
    return Path(shutil.copy(base, base.with_name("copy.db")))


async def _recorded(
    base: Path, level: Synchronous, exchanges: Sequence[Exchange]
) -> tuple[list[Said], list[Said]]:
    """Write down what the store says about the first message of each room, and about those after them."""
    script: list[Said] = []
    async with OpenFiles(recording(script)).store_in(_copied(base), AGENT, synchronous=level) as store:
        script.clear()
        await keep_all(store, exchanges[:ROOMS])
        first = script.copy()
        script.clear()
        await keep_all(store, exchanges[ROOMS:])
        return first, script.copy()


def _replayed(path: Path, level: Synchronous, first: Sequence[Said], script: Sequence[Said]) -> float:
    connection = open_plainly(path, level)
    try:
        say_again(connection, first)
        with measured() as spent:
            say_again(connection, script)
    finally:
        connection.close()
    return spent.cpu / MESSAGES


async def _kept(path: Path, level: Synchronous, exchanges: Sequence[Exchange], lanes: int = 1) -> float:
    """Keep the first message of each room, then the others: those are measured."""
    async with OpenFiles().store_in(path, AGENT, synchronous=level) as store:
        await keep_all(store, exchanges[:ROOMS], lanes)
        with measured() as spent:
            await keep_all(store, exchanges[ROOMS:], lanes)
    return spent.cpu / (len(exchanges) - ROOMS)
