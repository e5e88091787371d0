"""How figures are taken: as CPU rather than time where that can be, for other programs share the machine."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bot import Outcome, Receipt

Row = tuple[str, str]


@dataclass(slots=True)
class ResourceUsage:
    """What something has cost, in seconds; `cpu` is that of all threads of this process."""

    cpu: float = 0.0
    wall: float = 0.0


@contextmanager
def measure() -> Iterator[ResourceUsage]:
    """Measure a block; the figures are there after it."""
    usage = ResourceUsage()
    cpu, wall = time.process_time(), time.perf_counter()
    yield usage
    usage.cpu, usage.wall = time.process_time() - cpu, time.perf_counter() - wall


def report_progress(text: str) -> None:
    """Say what is being done, beside the table."""
    print(f"  … {text}", file=sys.stderr, flush=True)


def format_microseconds(seconds: float) -> str:
    """Write a time in microseconds."""
    return f"{1e6 * seconds:.0f} µs"


def format_milliseconds(seconds: float) -> str:
    """Write a time in milliseconds."""
    return f"{1e3 * seconds:.2f} ms"


def check_answered(receipt: Receipt) -> None:
    """See that a message was answered: what fails is quick, and would pass for a good figure."""
    if receipt.outcome is not Outcome.ANSWERED:
        raise SystemExit(f"a message came to nothing, and so does the figure: {receipt.reason}")
