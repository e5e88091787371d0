"""Tables, colour and a sign of long work, on terminals only; NO_COLOR turns colour off."""

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from bot.store.storage import listen_to_progress
from bot.text import strip_terminal_codes

LINE_SECONDS = 2.0  # before the first line about long work and between two, where there is no terminal
STATE_STYLES = {
    "ok": "green", "warn": "yellow", "fail": "bold red",
    "on": "green", "off": "dim", "held": "yellow", "failed": "bold red", "draining": "yellow",
}  # fmt: skip


def colour_state(line: str) -> str:
    """Return a line that begins with a state ("ok", "warn", "fail") with that word in its colour, on a terminal."""
    word, _, rest = line.partition(" ")
    style = STATE_STYLES.get(word.lower())
    if style is None or not sys.stdout.isatty():
        return line
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(word, style=style, end="")
    return f"{captured.get()} {rest}"


def print_rows(header: Sequence[str], rows: Iterable[Sequence[str]], plain_lines: Iterable[str]) -> None:
    """Print rows as a table on a terminal, with states in their colour; elsewhere the plain lines, for programs."""
    cells = [[strip_terminal_codes(cell) for cell in row] for row in rows] if sys.stdout.isatty() else []
    if not cells:
        print("\n".join(map(strip_terminal_codes, plain_lines)))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(header):
        table.add_column(name, no_wrap=index == 0, overflow="fold")  # the first one is copied into other commands
    for row in cells:
        table.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in row))
    Console(highlight=False).print(table)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on stderr that something takes a while, until the block ends: elsewhere than on a terminal as one line."""
    if not sys.stderr.isatty():
        line = threading.Timer(LINE_SECONDS, partial(print, f"{what} …", file=sys.stderr, flush=True))
        line.daemon = True
        line.start()
        try:
            yield
        finally:
            line.cancel()
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def announce_start(what: str) -> None:
    """Show at once on stderr of a terminal that a command has begun: its imports take a while."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"starting {what} …", file=sys.stderr, flush=True)


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show on stderr how far the storage's work in the block is: a bar on a terminal, elsewhere a line at times."""
    if not sys.stderr.isatty():
        with listen_to_progress(_LineProgress()):
            yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), *Progress.get_default_columns(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def show(step: str, done: int, total: int) -> None:
            bar.update(task, description=step, completed=done, total=total or None)

        with listen_to_progress(show):
            yield


class _LineProgress:
    """Prints a line about long work, two seconds after the last one at the earliest; short work prints nothing."""

    def __init__(self) -> None:
        self._printed_at = time.monotonic()

    def __call__(self, step: str, done: int, total: int) -> None:
        if time.monotonic() - self._printed_at < LINE_SECONDS:
            return
        self._printed_at = time.monotonic()
        share = f": {min(done / total, 1.0):.0%}" if total else ""
        print(f"{step}{share}", file=sys.stderr, flush=True)
