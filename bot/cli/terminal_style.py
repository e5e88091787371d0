"""Colour and a sign of long work, on terminals only: elsewhere, and with NO_COLOR, the lines are plain."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

STATE_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


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


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on stderr that something takes a while, until the block ends; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
