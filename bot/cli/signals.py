"""The first signal asks for a quiet end, the second ends at once."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from bot.cli.exits import Exit

SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))


@dataclass(slots=True)
class Stop:
    """Whether, and by which signal, the process was asked to end."""

    by: signal.Signals | None = None

    @property
    def code(self) -> int:
        """The exit code that goes with it: 130 for Ctrl-C, 0 for a service that was told to stop."""
        return Exit.INTERRUPTED if self.by is signal.SIGINT else Exit.OK


@contextmanager
def stoppable(notice: Callable[[], None]) -> Iterator[Stop]:
    """Have the first signal cancel the block, after `notice`, and the second end the process.

    The block's clean-up runs before this returns; a cancellation by a signal goes no further.
    """
    loop, task, stop = asyncio.get_running_loop(), asyncio.current_task(), Stop()

    def receive(number: signal.Signals) -> None:
        if stop.by is not None:
            os._exit(Exit.INTERRUPTED)
        stop.by = number
        notice()
        if task is not None:
            task.cancel()

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, and a shell's background job, mean it
            with suppress(NotImplementedError, RuntimeError):  # not on Windows, not in a side thread
                loop.add_signal_handler(number, receive, number)
    try:
        yield stop
    except asyncio.CancelledError:
        if stop.by is None:
            raise
        if task is not None:
            task.uncancel()
    finally:
        for number in SIGNALS:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(number)


def aside(text: str) -> None:
    """Say something to the operator that is not the command's result."""
    with suppress(OSError):  # nobody reads it
        print(text, file=sys.stderr, flush=True)
