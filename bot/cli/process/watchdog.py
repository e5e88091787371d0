"""A thread that the event loop cannot hold up: it tells what blocks the loop, and sees a stop to its end."""

import asyncio
import faulthandler
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bot.cli.process.exit_codes import Exit
from bot.cli.process.shutdown import Stop
from bot.runtime.runtime import STOP_BUDGET

logger = logging.getLogger(__name__)

TICK = 0.5
LIVELY = 1.0
FROZEN = 5.0
HOPELESS = 60.0
FRAMES = 6
LAST_WORDS = 0.4  # for what comes after the runtime's own stop
GRACE = 2.5


class Watchdog:
    """Asks the loop twice a second whether it still turns, from outside.

    A loop that does not turn for five seconds is told of, with what it stands in; where it does not for a
    minute, all stacks are shown and the program starts again, and takes up what was under way. Once a stop
    was asked for, the process ends in time whatever still runs: with the stop's own code, or with 75 and
    all stacks where a frozen loop could not do its part.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Stop) -> None:
        self._loop = loop
        self._stop = stop
        self._main = threading.get_ident()
        self._asked: float | None = None  # when the loop was asked; None once it has turned
        self._is_told = False
        self._looks = 0  # at a loop that stands still; not seconds: the process itself may have been halted
        self._is_over = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._watch, name="greenroom-watchdog", daemon=True).start()

    def end(self) -> None:
        """Watch no more."""
        self._is_over.set()

    def _watch(self) -> None:
        while not self._is_over.wait(self._pause()):
            silence = self._silence()
            if self._stop.by is not None:
                self._hurry(silence)
                continue
            self._looks = self._looks + 1 if silence else 0
            if self._looks * TICK >= HOPELESS:
                _start_again()
            elif silence >= FROZEN and not self._is_told:
                self._is_told = True
                logger.warning("the bot stands still for %.0f s already: %s", silence, self._standing())

    def _pause(self) -> float:
        if self._stop.by is None:
            return TICK
        left = self._stop.at + STOP_BUDGET + LAST_WORDS - time.monotonic()
        return min(TICK, left) if left > 0 else TICK

    def _silence(self) -> float:
        """Tell for how long the loop has not turned; one that is closed has done all it had to."""
        if self._asked is not None:
            return time.monotonic() - self._asked
        self._asked = time.monotonic()
        try:
            self._loop.call_soon_threadsafe(self._turned)
        except RuntimeError:
            self._asked = None
        return 0.0

    def _turned(self) -> None:
        if self._is_told and self._asked is not None:
            logger.warning("the bot goes on, after %.0f s", time.monotonic() - self._asked)
        self._asked, self._is_told = None, False

    def _hurry(self, silence: float) -> None:
        late = time.monotonic() - self._stop.at - STOP_BUDGET - LAST_WORDS
        if late >= 0 and silence < LIVELY:
            os._exit(self._stop.code)
        if late >= GRACE:
            _show_stacks("something blocks the stop")
            os._exit(Exit.TRY_AGAIN)

    def _standing(self) -> str:
        """Name the places in the code in which the loop's thread stands, the innermost first."""
        frame = sys._current_frames().get(self._main)
        places = [] if frame is None else traceback.extract_stack(frame)[-FRAMES:]
        return " in ".join(f"{one.name} ({one.filename}:{one.lineno})" for one in reversed(places))


def _start_again() -> None:
    """Become a new process of the same command: nothing else ends code that never waits."""
    _show_stacks(f"it stands still for {HOPELESS:.0f} s and starts again")
    if sys.platform != "win32":  # there the new process would not be this one
        with suppress(OSError, ValueError):
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    os._exit(Exit.TRY_AGAIN)


def _show_stacks(cause: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # nobody reads it
        os.write(2, f"bot: {cause}; these are the stacks of all threads\n".encode())
        faulthandler.dump_traceback(file=2)


@contextmanager
def watching(stop: Stop) -> Iterator[None]:
    """Watch the running loop as long as the block lasts; once it is to stop, until the process is gone."""
    watchdog = Watchdog(asyncio.get_running_loop(), stop)
    watchdog.start()
    try:
        yield
    finally:
        if stop.by is None:
            watchdog.end()
