"""Measure CPU and wall time, and format figures. CPU time is preferred: other programs share the machine."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bot import Outcome, Receipt

Row = tuple[str, str]


@dataclass(slots=True)
class ResourceUsage:
    """The time that a block took, in seconds; `cpu` counts all threads of this process."""

    cpu: float = 0.0
    wall: float = 0.0


@contextmanager
def measure() -> Iterator[ResourceUsage]:
    """Measure a block; the result is filled in after it."""
    usage = ResourceUsage()
    cpu, wall = time.process_time(), time.perf_counter()
    yield usage
    usage.cpu, usage.wall = time.process_time() - cpu, time.perf_counter() - wall


def report_progress(text: str) -> None:
    """Print progress to stderr."""
    print(f"  … {text}", file=sys.stderr, flush=True)


def format_microseconds(seconds: float) -> str:
    """Return a time in microseconds as text."""
    return f"{1e6 * seconds:.0f} µs"


def format_milliseconds(seconds: float) -> str:
    """Return a time in milliseconds as text."""
    return f"{1e3 * seconds:.2f} ms"


def check_answered(receipt: Receipt) -> None:
    """Exit if a message was not answered: a failure is fast and would look like a good figure."""
    if receipt.outcome is not Outcome.ANSWERED:
        raise SystemExit(f"the measurement is invalid, a message was not answered: {receipt.reason}")


def find_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return an interval that contains the median with 95 %, by the order of the values."""
    ordered = sorted(values)
    count = len(ordered)
    rank = max(0, round(count / 2 - 0.98 * count**0.5) - 1)
    return ordered[rank], ordered[count - 1 - rank]
