"""A thread that reports what blocks the event loop, and enforces the end of a stop.

Crash-loop detection: after several crashed starts the platforms are not connected for a while.
"""

import asyncio
import faulthandler
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile

from bot.cli.process.shutdown import Exit, StopRequest, exit_code, write_within
from bot.files import replace_file
from bot.text import shorten

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
        from bot.runtime.runtime import STOP_TIMEOUT  # here, because help needs no pipeline

        self._loop = loop
        self._stop_timeout = STOP_TIMEOUT + FLUSH_TIMEOUT
        self._only_reports = only_reports
        self._stop_request = stop_request
        self._main_thread_id = threading.get_ident()
        self._pinged_at: float | None = None  # time of an unanswered ping of the loop
        self._is_reported = False
        self._blocked_polls = 0  # polls, not seconds: the process itself may have been halted
        self.stopped = threading.Event()

    def watch(self) -> None:
        """Watch until `stopped` is set."""
        while not self.stopped.wait(self._poll_seconds()):
            blocked_seconds = self._blocked_seconds()
            if self._stop_request.received_signal is not None and not self._only_reports:
                self._enforce_stop(blocked_seconds)
                continue
            self._blocked_polls = self._blocked_polls + 1 if blocked_seconds and not self._only_reports else 0
            if self._blocked_polls * POLL_SECONDS >= RESTART_SECONDS:
                _restart_process()
            elif blocked_seconds >= BLOCKED_WARNING_SECONDS and not self._is_reported:
                self._is_reported = True
                # In a thread of its own: the blocking code may hold the lock of the log.
                message = ("event loop blocked for %.0f s at %s", blocked_seconds, self._blocking_location())
                threading.Thread(target=logger.warning, args=message, name="greenroom-report", daemon=True).start()

    def _poll_seconds(self) -> float:
        if self._stop_request.received_signal is None or self._only_reports:
            return POLL_SECONDS
        remaining = self._stop_request.received_at + self._stop_timeout - time.monotonic()
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
        overdue_seconds = time.monotonic() - self._stop_request.received_at - self._stop_timeout
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
    threading.Thread(target=watchdog.watch, name="greenroom-watchdog", daemon=True).start()
    try:
        yield
    finally:
        if stop_request.received_signal is None or only_reports:
            watchdog.stopped.set()


FILE_NAME = "boots.json"
WINDOW_SECONDS = 300.0
UNKNOWN_CAUSE = "killed, out of memory, or the machine went down"


@dataclass(frozen=True, slots=True)
class StartRecord:
    """A start that crashed or still runs: its time in epoch seconds, process id and cause if known."""

    at: float
    process: int
    cause: str = ""


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """`count` starts crashed; the platforms are connected again at `retry_at` (epoch seconds)."""

    count: int
    cause: str
    retry_at: float

    def __str__(self) -> str:
        retry_time = time.strftime("%H:%M:%S", time.localtime(self.retry_at))
        return f"{self.count} starts within 5 minutes crashed ({self.cause}); next attempt at {retry_time}"


class StartHistory:
    """The starts of the last five minutes, in a small file in the data folder.

    `limit` crashed starts are a crash loop; with 0 nothing is written and none is detected.
    """

    def __init__(self, folder: Path, *, limit: int, clock: Callable[[], float] = time.time) -> None:
        self._path = folder / FILE_NAME
        self._limit = limit
        self._clock = clock
        self._current: StartRecord | None = None

    def find_crash_loop(self) -> CrashLoop | None:
        """Return the current crash loop, if any."""
        records = self._read()
        if not self._limit or len(records) < self._limit:
            return None
        cause = records[-1].cause or UNKNOWN_CAUSE
        return CrashLoop(len(records), cause, records[-self._limit].at + WINDOW_SECONDS)

    def record_start(self) -> None:
        """Record this start; it counts as crashed unless `clear` is called."""
        if self._limit:
            self._current = StartRecord(self._clock(), os.getpid())
            self._write([*self._read(), self._current])

    def clear(self) -> None:
        """Remove the record of this start, because it ends on request."""
        if self._current is not None:
            self._write([record for record in self._read() if record != self._current])
            self._current = None

    @contextmanager
    def track_outcome(self) -> Iterator[None]:
        """Clear the record when the block ends; after an internal error record its cause instead."""
        try:
            yield
        finally:
            error = sys.exception()
            if isinstance(error, Exception) and exit_code(error) is Exit.INTERNAL and self._current:
                cause = shorten(f"{type(error).__name__}: {error}", 200)
                other_records = [record for record in self._read() if record != self._current]
                self._write([*other_records, replace(self._current, cause=cause)])
                self._current = None
            self.clear()

    def _read(self) -> list[StartRecord]:
        now = self._clock()
        try:
            records = [StartRecord(**fields) for fields in json.loads(self._path.read_bytes())]
            return [record for record in records if now - WINDOW_SECONDS < record.at <= now]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:  # an unreadable file counts as empty
            logger.debug("cannot read %s: %s", self._path, error)
            return []

    def _write(self, records: list[StartRecord]) -> None:
        """Replace the file; a failure is only logged, so that the bot can start."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, json.dumps([asdict(record) for record in records]).encode())
        except OSError as error:
            logger.debug("cannot write %s: %s", self._path, error)
