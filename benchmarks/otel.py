"""Measure what the otel plugin costs: two programs that answer in turn, one exporting to a server on the loopback."""

import asyncio
import os
import statistics
from pathlib import Path

from aiohttp import ClientSession

from benchmarks.figures import Row, find_interval, format_microseconds, format_milliseconds, report_progress
from benchmarks.program import ROOMS, WARM_UP_MESSAGES, Program, model_server, running_program

MESSAGES = int(os.environ.get("MESSAGES", "2000"))  # of each program
AT_A_TIME = ROOMS  # short turns: the machine is faster in one minute than in the next
PAIRS = int(os.environ.get("PAIRS", "12"))
DELAY_SECONDS = 5.0  # until what was noted is sent, by default
SIGNALS = {"traces", "logs"}


def measure_otel() -> list[Row]:
    """Run pairs of programs, with and without the plugin, that answer in turn."""
    return asyncio.run(_measure_otel())


async def _measure_otel() -> list[Row]:
    pairs = []
    for number in range(PAIRS):
        report_progress(f"pair {number + 1} of {PAIRS}")
        without, exporting = await _run_pair(is_exporting_first=number % 2 == 1)
        report_progress(f"{format_milliseconds(without)}, exporting {format_milliseconds(exporting)}")
        pairs.append((without, exporting))
    ratios = [100 * (exporting / without - 1) for without, exporting in pairs]
    low, high = find_interval(ratios)
    ratio = f"{statistics.median(ratios):+.1f} % (95 % interval {low:+.1f} to {high:+.1f}, {PAIRS} pairs)"
    extra = format_microseconds(statistics.median(exporting - without for without, exporting in pairs))
    alone = format_milliseconds(statistics.median(without for without, _ in pairs))
    return [("OpenTelemetry: CPU time of a message", f"{ratio}, {extra} on {alone}")]


async def _run_pair(*, is_exporting_first: bool) -> tuple[float, float]:
    """Return the CPU seconds of a message without and with the plugin.

    The time is that of the whole run, since what was noted of a message is sent up to five seconds later.
    """
    here = str(Path(__file__).parents[1])
    async with model_server() as server:
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": server}
        async with running_program(here, server) as without, running_program(here, server, settings) as exporting:
            programs = [without, exporting]
            for program in programs:
                await program.exchange(WARM_UP_MESSAGES)
            await asyncio.sleep(DELAY_SECONDS)
            before = [program.cpu_seconds() for program in programs]
            for program in _take_turns(programs, is_exporting_first=is_exporting_first):
                await program.exchange(AT_A_TIME)
            await asyncio.sleep(DELAY_SECONDS)
            await _check_received(server)
            used = [program.cpu_seconds() - earlier for program, earlier in zip(programs, before, strict=True)]
    return used[0] / MESSAGES, used[1] / MESSAGES


def _take_turns(programs: list[Program], *, is_exporting_first: bool) -> list[Program]:
    order = programs[::-1] if is_exporting_first else programs
    return (order + order[::-1]) * (MESSAGES // (2 * AT_A_TIME))


async def _check_received(server: str) -> None:
    async with ClientSession() as session, session.get(f"{server}/received") as response:
        if missing := SIGNALS - set(await response.json()):
            raise SystemExit(f"the measurement is invalid, nothing was exported of {', '.join(missing)}")
