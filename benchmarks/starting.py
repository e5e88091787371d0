"""Measure the time to import the framework and to run `bot --help`."""

import statistics
import subprocess
import sys
import time

from benchmarks.figures import Row

PROCESSES = 5


def measure_start() -> list[Row]:
    """Start processes one after another."""
    return [
        ("import bot", _time_process("import bot")),
        ("bot --help", _time_process("from bot.cli.main import main; main(['--help'])")),
    ]


def _time_process(code: str) -> str:
    times = []
    for _ in range(PROCESSES):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        times.append(time.perf_counter() - started)
    return f"{statistics.median(times):.2f} s (median of {PROCESSES} processes)"
