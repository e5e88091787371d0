"""Measure whether a process that answers many messages keeps its size.

`python -m benchmarks.memory` is the measured process; `measure_memory` starts it and reads its output.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.doubles import DiscardingAdapter, StatelessModel
from benchmarks.figures import Row, check_answered, report_progress
from bot.plugin_system.loading import find_plugin
from bot.testing import AgentHarness, running_agent

MARKS = (5_000, 20_000, 100_000)
ROOMS, PEOPLE, IN_FLIGHT = 2_000, 5_000, 50


def measure_memory() -> list[Row]:
    """Answer 100,000 messages in a new process; report its size after 5,000 messages and at the end."""
    report_progress(f"{MARKS[-1]:,} messages through one process")
    process = subprocess.run([sys.executable, "-m", "benchmarks.memory"], capture_output=True, text=True, check=True)
    sizes = [int(line.split()[1]) for line in process.stdout.splitlines()]
    figures = " → ".join(f"{size / 1024:.0f} MB" for size in sizes)
    marks = ", ".join(f"{mark:,}" for mark in MARKS)
    growth = 100 * (sizes[1] - sizes[0]) / sizes[0]
    what = f"memory after {marks} messages of {PEOPLE:,} people in {ROOMS:,} rooms"
    return [(what, f"{figures} (to {MARKS[1]:,}: {growth:+.1f} %, goal ≤ 10)")]


async def main() -> None:
    """Answer the messages, and print the resident size in KB at each mark."""
    sql = find_plugin("sql")
    if sql is None:
        raise SystemExit("the sql plugin is not installed")
    with tempfile.TemporaryDirectory() as folder:
        settings = {"DATABASE_URL": f"sqlite:///{Path(folder, 'bench.db')}"}
        async with running_agent(
            sql, model=StatelessModel(), adapter=DiscardingAdapter(), settings=settings
        ) as harness:
            done = 0
            for mark in MARKS:
                await _exchange_messages(harness, range(done, mark))
                done = mark
                print(mark, _resident_kb(), flush=True)


async def _exchange_messages(harness: AgentHarness, numbers: range) -> None:
    """Send messages in turn in all rooms, IN_FLIGHT at once."""
    waiting = iter(numbers)

    async def send() -> None:
        for number in waiting:
            receipt = await harness.submit(
                f"Message number {number}", room=f"room {number % ROOMS}", author=f"person {number % PEOPLE}"
            )
            check_answered(await harness.agent_runtime.inbox.wait_outcome(receipt.id))

    await asyncio.gather(*(send() for _ in range(IN_FLIGHT)))
    await harness.agent.outbox.drain(10.0)


def _resident_kb() -> int:
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 1024
    process = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, check=True)
    return int(process.stdout)


if __name__ == "__main__":
    asyncio.run(main())
