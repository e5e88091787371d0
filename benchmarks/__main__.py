"""Measure what the README claims, and print it as a table: all of it, or what is named."""

import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Mapping

from benchmarks.conversation import conversed
from benchmarks.figures import Row
from benchmarks.growth import flat
from benchmarks.memory import grown
from benchmarks.starting import started
from benchmarks.store import compared
from benchmarks.talking import talked
from benchmarks.throughput import whole_road
from benchmarks.vectors import nearest

MEASUREMENTS: Mapping[str, Callable[[], list[Row]]] = {
    "starting": started,
    "talking": talked,
    "conversation": conversed,
    "store": compared,
    "growth": flat,
    "throughput": whole_road,
    "vectors": nearest,
    "memory": grown,
}
WIDTH = 46
USAGE = 2


def main() -> int:
    """Run measurements, and print a line for each figure as soon as it is there."""
    names = sys.argv[1:] or list(MEASUREMENTS)
    if unknown := [name for name in names if name not in MEASUREMENTS]:
        print(f"there is no {unknown[0]!r}; there is: {', '.join(MEASUREMENTS)}", file=sys.stderr)
        return USAGE
    _show("machine", f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {_load()}")
    for name in names:
        for row in MEASUREMENTS[name]():
            _show(*row)
    _show("machine, at the end", _load())
    return 0


def _show(name: str, figure: str) -> None:
    print(f"{name:<{WIDTH}}  {figure}", flush=True)


def _load() -> str:
    return f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    sys.exit(main())
