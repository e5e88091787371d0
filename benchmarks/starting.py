"""Measure how long it takes until there is something to see."""

import statistics
import subprocess
import sys
import time

from benchmarks.figures import Row

PROCESSES = 5


def started() -> list[Row]:
    """Start processes, one after another."""
    return [
        ("import bot", _process("import bot")),
        ("bot --help", _process("from bot.cli.main import main; main(['--help'])")),
    ]


def _process(code: str) -> str:
    times = []
    for _ in range(PROCESSES):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        times.append(time.perf_counter() - began)
    return f"{statistics.median(times):.2f} s (median of {PROCESSES} processes)"
