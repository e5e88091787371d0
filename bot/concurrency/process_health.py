"""The health of the process: how late its event loop reacts, jumps of the wall clock, free space of its disk."""

import asyncio
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Self

from bot.concurrency.clock import TimeSource
from bot.concurrency.tasks import TaskSet

TICK_SECONDS = 1.0
DISK_TICKS = 15  # between two readings of the free space
LAG_TICKS = 15  # of which the median counts: a single long call is logged, and is no state of the process
MAX_LAGS = 60  # of a minute
CLOCK_JUMP_SECONDS = 5.0  # what differs less is a slow tick or the correction of a clock
CLOCK_JUMP_MEMORY_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The free bytes of a disk, and its size."""

    free_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessHealth:
    """How late the event loop reacts, by how much the clock jumped in the last ten minutes, and the free space.

    `longest_lag_seconds` is the longest of the last minute. `clock_jump` is None where it did not jump; `free_bytes`
    is None where it cannot be read. `ends` says when the certificates and tokens end that are watched, by name.
    """

    lag_seconds: float = 0.0
    clock_jump: timedelta | None = None
    free_bytes: int | None = None
    disk_bytes: int = 0
    ends: Mapping[str, datetime] = field(default_factory=dict)
    longest_lag_seconds: float = 0.0


def read_disk_space(folder: Path) -> DiskSpace | None:
    """Return the space of the disk of a folder, or of the nearest one above that exists; None where it is unknown."""
    existing = next((path for path in (folder, *folder.absolute().parents) if path.exists()), None)
    if existing is not None:
        with suppress(OSError):
            usage = shutil.disk_usage(existing)
            return DiskSpace(usage.free, usage.total)
    return None


class ProcessMonitor:
    """Measures the health of the process every second, while it is entered; `folder` is on the disk that is watched.

    `ends` is set by those who know when certificates and tokens end.
    """

    def __init__(
        self,
        folder: Path,
        time_source: TimeSource | None = None,
        read_disk: Callable[[Path], DiskSpace | None] = read_disk_space,
    ) -> None:
        self._folder = folder
        self._time = time_source or TimeSource()
        self._read_disk = read_disk
        self._tasks = TaskSet("measuring the process")
        self._lags = deque[float](maxlen=MAX_LAGS)
        self._jump: tuple[float, timedelta] | None = None  # with the monotonic time of it
        self._disk: DiskSpace | None = None
        self.ends: dict[str, datetime] = {}

    async def __aenter__(self) -> Self:
        self._tasks.start(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.cancel()

    def read(self) -> ProcessHealth:
        """Return the health as it was measured last."""
        lags = list(self._lags)
        lag = median(lags[-LAG_TICKS:]) if len(lags) >= LAG_TICKS else 0.0
        jump = None
        if self._jump is not None and self._time.monotonic() - self._jump[0] < CLOCK_JUMP_MEMORY_SECONDS:
            jump = self._jump[1]
        disk = self._disk
        free, size = (disk.free_bytes, disk.disk_bytes) if disk is not None else (None, 0)
        return ProcessHealth(lag, jump, free, size, dict(self.ends), max(lags, default=0.0))

    async def _run(self) -> None:
        for tick in count():
            if tick % DISK_TICKS == 1:
                self._disk = await asyncio.to_thread(self._read_disk, self._folder)
            wall, monotonic = self._time.now(), self._time.monotonic()
            await self._time.sleep(TICK_SECONDS)
            elapsed = self._time.monotonic() - monotonic
            self._lags.append(max(0.0, elapsed - TICK_SECONDS))
            jump = (self._time.now() - wall) - timedelta(seconds=elapsed)
            if abs(jump.total_seconds()) >= CLOCK_JUMP_SECONDS:
                self._jump = self._time.monotonic(), jump
