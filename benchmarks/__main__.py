"""Run all measurements of the README, or the named ones, and print a table."""

import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Mapping

from benchmarks.console import measure_console
from benchmarks.conversation import measure_conversation
from benchmarks.crowds import measure_crowds
from benchmarks.degrading import measure_degrading
from benchmarks.figures import Row
from benchmarks.growth import measure_growth
from benchmarks.memory import measure_memory
from benchmarks.otel import measure_otel
from benchmarks.program import measure_program
from benchmarks.recall import measure_recall
from benchmarks.remembering import measure_remembering
from benchmarks.speaking import measure_speaking
from benchmarks.starting import measure_start
from benchmarks.statements import measure_statements
from benchmarks.store import measure_store
from benchmarks.strangers import measure_strangers
from benchmarks.tabs import measure_tabs
from benchmarks.talking import measure_talking
from benchmarks.telegram import measure_telegram
from benchmarks.throughput import measure_throughput
from benchmarks.unanswerable import measure_unanswerable
from benchmarks.vectors import measure_vectors

MEASUREMENTS: Mapping[str, Callable[[], list[Row]]] = {
    "starting": measure_start,
    "talking": measure_talking,
    "conversation": measure_conversation,
    "store": measure_store,
    "statements": measure_statements,
    "growth": measure_growth,
    "crowds": measure_crowds,
    "throughput": measure_throughput,
    "program": measure_program,
    "telegram": measure_telegram,
    "otel": measure_otel,
    "vectors": measure_vectors,
    "memory": measure_memory,
    "recall": measure_recall,
    "remembering": measure_remembering,
    "unanswerable": measure_unanswerable,
    "speaking": measure_speaking,
    "console": measure_console,
    "tabs": measure_tabs,
    "strangers": measure_strangers,
    "degrading": measure_degrading,
}
WIDTH = 46
USAGE = 2


def main() -> int:
    """Run measurements, and print each figure when it is ready."""
    names = sys.argv[1:] or list(MEASUREMENTS)
    if unknown := [name for name in names if name not in MEASUREMENTS]:
        print(f"there is no measurement {unknown[0]!r}; choose from: {', '.join(MEASUREMENTS)}", file=sys.stderr)
        return USAGE
    _show("machine", f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {_machine_load()}")
    for name in names:
        for row in MEASUREMENTS[name]():
            _show(*row)
    _show("machine, at the end", _machine_load())
    return 0


def _show(name: str, figure: str) -> None:
    print(f"{name:<{WIDTH}}  {figure}", flush=True)


def _machine_load() -> str:
    return f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    sys.exit(main())
