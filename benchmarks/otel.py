"""Measure what the otel plugin costs, with a receiver on the loopback in another process.

In process the plugin is on and off in turn, which shows small differences; then two real programs answer in turn.
"""

import asyncio
import os
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

from aiohttp import ClientSession

from benchmarks.doubles import DiscardingAdapter, StatelessModel
from benchmarks.exchange import AGENT
from benchmarks.figures import Row, find_interval, format_microseconds, format_milliseconds, measure, report_progress
from benchmarks.program import ROOMS, WARM_UP_MESSAGES, model_server, running_program
from benchmarks.throughput import exchange_messages
from bot.cli.process.shutdown import reduce_gc_frequency
from bot.logs import configure_logging
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import AgentHarness, running_agent
from plugins.otel.service import Telemetry

MESSAGES = int(os.environ.get("MESSAGES", "1000"))  # of each program
PAIRS = int(os.environ.get("PAIRS", "30"))
PROGRAM_PAIRS = int(os.environ.get("PROGRAM_PAIRS", "10"))
TURNS_IN_PROCESS, MESSAGES_PER_ROOM = 2, 4  # of each side
DELAY_SECONDS = 5.0  # until a program sends what was noted
SIGNALS = {"traces", "logs"}
Side = TypeVar("Side")
Pair = tuple[float, float]  # CPU seconds of a message without and with the plugin


def measure_otel() -> list[Row]:
    """Run pairs of agents, then pairs of programs."""
    with open(os.devnull, "wb") as log, configure_logging(fd=log.fileno()):
        return asyncio.run(_measure_otel())


async def _measure_otel() -> list[Row]:
    rows = []
    if pairs := await _run_agent():
        rows.append(("OpenTelemetry, in process: CPU of a message", _describe(pairs)))
    if pairs := [await _run_programs(number) for number in range(PROGRAM_PAIRS)]:
        rows.append(("OpenTelemetry, real program: CPU of a message", _describe(pairs)))
    return rows


def _describe(pairs: list[Pair]) -> str:
    ratios = [100 * (exporting / without - 1) for without, exporting in pairs]
    low, high = find_interval(ratios)
    ratio = f"{statistics.median(ratios):+.1f} % (95 % interval {low:+.1f} to {high:+.1f}, {len(pairs)} pairs)"
    extra = format_microseconds(statistics.median(exporting - without for without, exporting in pairs))
    return f"{ratio}, {extra} on {format_milliseconds(statistics.median(without for without, _ in pairs))}"


async def _run_agent() -> list[Pair]:
    """Run one agent, for which the plugin's service is started and ended in turn."""
    reduce_gc_frequency()
    with tempfile.TemporaryDirectory() as folder:
        async with (
            model_server() as server,
            OpenFiles().open_store(Path(folder, "a.db"), AGENT) as store,
            running_agent(
                settings={"OTEL_EXPORTER_OTLP_ENDPOINT": server},
                store=store,
                model=StatelessModel(),
                adapter=DiscardingAdapter(),
            ) as harness,
        ):
            await exchange_messages(harness, MESSAGES_PER_ROOM)
            return [await _run_turns(harness, number) for number in range(PAIRS)]


async def _run_turns(harness: AgentHarness, number: int) -> Pair:
    cpu, turns = {False: 0.0, True: 0.0}, _take_turns([False, True], number, TURNS_IN_PROCESS)
    for is_exporting in turns:
        async with Telemetry(harness.agent) if is_exporting else nullcontext() as telemetry:
            with measure() as usage:
                await exchange_messages(harness, MESSAGES_PER_ROOM)
                if telemetry is not None:
                    await asyncio.to_thread(telemetry.flush)
        cpu[is_exporting] += usage.cpu / (ROOMS * MESSAGES_PER_ROOM * TURNS_IN_PROCESS)
    return _report("in process", number, (cpu[False], cpu[True]))


async def _run_programs(number: int) -> Pair:
    """Run two programs at the same time; the CPU time is that of the whole run, with what is sent at its end."""
    here = str(Path(__file__).parents[1])
    async with model_server() as server:
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": server}
        async with running_program(here, server) as without, running_program(here, server, settings) as exporting:
            programs = [without, exporting]
            for program in programs:
                await program.exchange(WARM_UP_MESSAGES)
            await asyncio.sleep(DELAY_SECONDS)
            before = [program.cpu_seconds() for program in programs]
            for program in _take_turns(programs, number, MESSAGES // ROOMS):
                await program.exchange(ROOMS)
            await asyncio.sleep(DELAY_SECONDS)
            await _check_received(server)
            used = [program.cpu_seconds() - earlier for program, earlier in zip(programs, before, strict=True)]
    return _report("real program", number, (used[0] / MESSAGES, used[1] / MESSAGES))


def _report(name: str, number: int, pair: Pair) -> Pair:
    without, exporting = map(format_milliseconds, pair)
    report_progress(f"{name}, pair {number + 1}: {without}, with the plugin {exporting}")
    return pair


def _take_turns(sides: Sequence[Side], number: int, count: int) -> list[Side]:
    """Return who takes each of `count` turns of both: short ones, because the machine's speed changes."""
    order = [*sides, *reversed(sides)] if number % 2 else [*reversed(sides), *sides]
    return order * (count // 2)


async def _check_received(server: str) -> None:
    async with ClientSession() as session, session.get(f"{server}/received") as response:
        if missing := SIGNALS - set(await response.json()):
            raise SystemExit(f"the measurement is invalid, nothing was exported of {', '.join(missing)}")
