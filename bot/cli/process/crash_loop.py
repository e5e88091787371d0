"""Crash-loop detection: after several crashed starts the platforms are not connected for a while."""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bot.cli.process.exit_codes import Exit, exit_code
from bot.text import shorten

logger = logging.getLogger(__name__)

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
        temporary_path = self._path.with_name(f"{FILE_NAME}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump([asdict(record) for record in records], file)
            temporary_path.replace(self._path)
        except OSError as error:
            logger.debug("cannot write %s: %s", self._path, error)
            with suppress(OSError):
                temporary_path.unlink(missing_ok=True)
