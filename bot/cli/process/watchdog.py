"""A thread that reports what blocks the event loop, and enforces the end of a stop."""

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
from tempfile import TemporaryFile

from bot.cli.process.exit_codes import Exit
from bot.cli.process.output import write_within
from bot.cli.process.shutdown import StopRequest
from bot.runtime.runtime import STOP_TIMEOUT

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
RESPONSIVE_SECONDS = 1.0
BLOCKED_WARNING_SECONDS = 5.0
RESTART_SECONDS = 60.0
MAX_FRAMES = 6
FLUSH_TIMEOUT = 0.4  # seconds for the work after the runtime's own stop
EXIT_GRACE_SECONDS = 2.5
STACKS_TIMEOUT = 0.5


class Watchdog:
    """Checks the event loop twice a second from its own thread.

    If the loop is blocked for five seconds, the blocking code is logged; after a minute all stacks are
    printed and the program restarts itself. After a requested stop the process always ends in time: with the
    stop's exit code, or with 75 and all stacks if the loop is blocked. One that `only_reports` ends nothing.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stop_request: StopRequest, *, only_reports: bool = False
    ) -> None:
        self._loop = loop
        self._only_reports = only_reports
        self._stop_request = stop_request
        self._main_thread_id = threading.get_ident()
        self._pinged_at: float | None = None  # time of an unanswered ping of the loop
        self._is_reported = False
        self._blocked_polls = 0  # polls, not seconds: the process itself may have been halted
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._watch, name="greenroom-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._poll_seconds()):
            blocked_seconds = self._blocked_seconds()
            if self._stop_request.received_signal is not None and not self._only_reports:
                self._enforce_stop(blocked_seconds)
                continue
            self._blocked_polls = self._blocked_polls + 1 if blocked_seconds and not self._only_reports else 0
            if self._blocked_polls * POLL_SECONDS >= RESTART_SECONDS:
                _restart_process()
            elif blocked_seconds >= BLOCKED_WARNING_SECONDS and not self._is_reported:
                self._is_reported = True
                logger.warning("event loop blocked for %.0f s at %s", blocked_seconds, self._blocking_location())

    def _poll_seconds(self) -> float:
        if self._stop_request.received_signal is None or self._only_reports:
            return POLL_SECONDS
        remaining = self._stop_request.received_at + STOP_TIMEOUT + FLUSH_TIMEOUT - time.monotonic()
        return min(POLL_SECONDS, remaining) if remaining > 0 else POLL_SECONDS

    def _blocked_seconds(self) -> float:
        """Return for how many seconds the loop has been blocked; 0 for a closed loop."""
        if self._pinged_at is not None:
            return time.monotonic() - self._pinged_at
        self._pinged_at = time.monotonic()
        try:
            self._loop.call_soon_threadsafe(self._on_heartbeat)
        except RuntimeError:
            self._pinged_at = None
        return 0.0

    def _on_heartbeat(self) -> None:
        if self._is_reported and self._pinged_at is not None:
            logger.warning("event loop continues after %.0f s", time.monotonic() - self._pinged_at)
        self._pinged_at, self._is_reported = None, False

    def _enforce_stop(self, blocked_seconds: float) -> None:
        overdue_seconds = time.monotonic() - self._stop_request.received_at - STOP_TIMEOUT - FLUSH_TIMEOUT
        if overdue_seconds >= 0 and blocked_seconds < RESPONSIVE_SECONDS:
            os._exit(self._stop_request.exit_code)
        if overdue_seconds >= EXIT_GRACE_SECONDS:
            _dump_stacks("the event loop is blocked during the stop")
            os._exit(Exit.TRY_AGAIN)

    def _blocking_location(self) -> str:
        """Return the code locations on the stack of the loop's thread, the innermost first, and its task's name.

        The task of a plugin's code is named after the action or other component.
        """
        task = asyncio.current_task(self._loop)
        frame = sys._current_frames().get(self._main_thread_id)
        frames = [] if frame is None else traceback.extract_stack(frame)[-MAX_FRAMES:]
        location = " in ".join(f"{entry.name} ({entry.filename}:{entry.lineno})" for entry in reversed(frames))
        return f"{location}; the task is {task.get_name()}" if task is not None else location


def _restart_process() -> None:
    """Replace this process by a new one of the same command; blocking code cannot be stopped otherwise."""
    _dump_stacks(f"event loop blocked for {RESTART_SECONDS:.0f} s, restarting")
    if sys.platform != "win32":  # Windows would start a second process instead
        with suppress(OSError, ValueError):
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    os._exit(Exit.TRY_AGAIN)


def _dump_stacks(cause: str) -> None:
    # Not into stderr itself: a dump to a full pipe would wait, and hold the lock of the interpreter.
    with suppress(OSError), TemporaryFile() as file:
        file.write(f"bot: {cause}; these are the stacks of all threads\n".encode())
        file.flush()
        faulthandler.dump_traceback(file=file)
        file.seek(0)
        write_within(2, file.read(), STACKS_TIMEOUT)


@contextmanager
def run_watchdog(stop_request: StopRequest, *, only_reports: bool = False) -> Iterator[None]:
    """Watch the running loop during the block; after a requested stop, until the process ends.

    With `only_reports` it says what blocks the loop, and neither restarts nor ends the process.
    """
    watchdog = Watchdog(asyncio.get_running_loop(), stop_request, only_reports=only_reports)
    watchdog.start()
    try:
        yield
    finally:
        if stop_request.received_signal is None or only_reports:
            watchdog.stop()
