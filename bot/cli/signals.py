"""The first signal asks for a quiet end, the second ends at once."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from bot.cli.exits import Exit

SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
Receive = Callable[[int, FrameType | None], None]


@dataclass(slots=True)
class Stop:
    """Whether the process was asked to end: by which signal, and when by the monotonic clock."""

    by: signal.Signals | None = None
    at: float = 0.0

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

    def receive(number: int, frame: FrameType | None) -> None:
        if stop.by is not None:
            os._exit(Exit.INTERRUPTED)
        stop.by, stop.at = signal.Signals(number), time.monotonic()
        loop.call_soon_threadsafe(begin)

    def begin() -> None:
        notice()
        if task is not None:
            task.cancel()

    # Not the loop's own way to hear signals: where something blocks the loop, they must be heard too.
    with _handled(receive):
        try:
            yield stop
        except asyncio.CancelledError:
            if stop.by is None:
                raise
            if task is not None:
                task.uncancel()


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Have any signal end the process: nothing is under way yet, or nothing any more."""

    def leave(number: int, frame: FrameType | None) -> None:
        os._exit(Stop(signal.Signals(number)).code)

    with _handled(leave):
        yield


@contextmanager
def _handled(receive: Receive) -> Iterator[None]:
    before = {}
    for number in set(SIGNALS):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, and a shell's background job, mean it
            with suppress(ValueError):  # not in a side thread
                before[number] = signal.signal(number, receive)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def aside(text: str) -> None:
    """Say something to the operator that is not the command's result."""
    with suppress(OSError):  # nobody reads it
        print(text, file=sys.stderr, flush=True)
