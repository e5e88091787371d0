"""Measure the time to import the framework and to run `bot --help`."""

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.figures import Row

PROCESSES = 5
COMMANDS = {"import all of bot": ("-c", "from bot import *"), "bot --help": ("-m", "bot", "--help")}


def measure_start() -> list[Row]:
    """Start processes one after another."""
    return [(name, _time_processes(arguments)) for name, arguments in COMMANDS.items()]


def _time_processes(arguments: Sequence[str]) -> str:
    times = [time_process(arguments) for _ in range(PROCESSES)]
    return f"{statistics.median(times):.2f} s (median of {PROCESSES} processes)"


def time_process(arguments: Sequence[str]) -> float:
    """Run Python with arguments; return the seconds it took. Exits if the process fails: failures are fast."""
    started = time.perf_counter()
    process = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"the measurement is invalid, {arguments} exited with {process.returncode}: {process.stderr}")
    return seconds
