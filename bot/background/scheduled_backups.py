"""Scheduled copies of a database: `ScheduledBackups` makes them, `BackupFolder` holds them."""

import asyncio
import logging
import re
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from bot.concurrency.clock import TimeSource
from bot.concurrency.isolation import Failure, run_isolated
from bot.concurrency.tasks import TaskSet
from bot.errors import BotError, StoreUnavailable
from bot.settings import CoreSettings, Settings
from bot.store.storage import Storage, listen_to_progress

logger = logging.getLogger(__name__)

TIME_FORMAT, TIME_PATTERN = "%Y%m%d-%H%M%S", r"\d{8}-\d{6}"
FIRST_DELAY_SECONDS = 60.0  # a start has other things to do
RECHECK_SECONDS = 600.0
MAX_RETRY_DELAY = timedelta(hours=1)
OVERDUE_FACTOR = 2  # a copy is missing after twice the time between two


@dataclass(frozen=True, slots=True)
class BackupFolder:
    """The copies of one database in a folder, and why the last attempt to make one failed.

    `name` is that of the copies without their time. Several processes may read it while one writes.
    """

    path: Path
    name: str

    @classmethod
    def of(cls, storage: Storage, settings: Settings) -> Self | None:
        """Return the folder of scheduled copies; None where they are off or not supported."""
        core = settings.operator_only().load(CoreSettings)
        if not core.backup_every or not (name := storage.backup_name(settings)):
            return None
        return cls(core.backup_dir or core.bot_data_dir / "backups", name)

    def copies(self) -> list[Path]:
        """Return the copies, the latest first."""
        stem, suffix = Path(self.name).stem, Path(self.name).suffix
        pattern = re.compile(f"{re.escape(stem)}-{TIME_PATTERN}{re.escape(suffix)}")
        files = self.path.iterdir() if self.path.is_dir() else ()
        return sorted((file for file in files if pattern.fullmatch(file.name)), reverse=True)

    def last_time(self, now: datetime) -> datetime | None:
        """Return when the latest copy was made; one of the future was made while the clock was wrong."""
        for copy in self.copies():
            with suppress(ValueError):
                made_at = datetime.strptime(copy.stem[-len("20260101-000000") :], TIME_FORMAT).replace(tzinfo=UTC)
                if made_at <= now:
                    return made_at
        return None

    def new_copy(self, now: datetime) -> Path:
        """Create the folder if there is none, and return the path of a new copy."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.path / f"{Path(self.name).stem}-{now:{TIME_FORMAT}}{Path(self.name).suffix}"

    def delete_surplus(self, keep: int, latest: Path) -> list[Path]:
        """Delete all copies but `latest` and those before it; return the deleted ones.

        Copies of the future, made while the clock was wrong, count as the oldest.
        """
        surplus = sorted(self.copies(), key=lambda copy: copy.name > latest.name)[keep:]
        for file in surplus:
            file.unlink(missing_ok=True)
        return surplus

    def delete_unfinished(self) -> None:
        """Delete what killed processes left; to be called by the process that makes the copies, while it makes none."""
        with suppress(OSError):  # a folder that cannot be read is found by the next copy
            for file in self.path.glob(f"{Path(self.name).stem}-*.part"):
                file.unlink(missing_ok=True)

    @property
    def failure(self) -> str:
        """Why the last attempt failed; empty where it did not."""
        with suppress(OSError):
            return self._failure_file.read_text(encoding="utf-8").strip()
        return ""

    def record_result(self, failure: str) -> None:
        """Store why an attempt failed, or with an empty text that it succeeded."""
        with suppress(OSError):  # a folder that cannot be written is the failure
            if failure:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._failure_file.write_text(f"{failure}\n", encoding="utf-8")
            else:
                self._failure_file.unlink(missing_ok=True)

    @property
    def _failure_file(self) -> Path:
        return self.path / f"{self.name}.failed"


class StoppedError(BotError):
    """A copy was given up because the process stops."""


class ScheduledBackups:
    """Copies one database every so often while it is entered, and deletes surplus copies.

    A failed attempt is repeated within an hour; until then `failure` says why. A restart does not begin anew: the
    time of the latest copy counts. Where processes share the database, the one whose `hold_duty` returns True copies.
    """

    def __init__(
        self,
        storage: Storage,
        settings: Settings,
        folder: BackupFolder,
        time_source: TimeSource | None = None,
        hold_duty: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._storage, self._settings, self._folder = storage, settings, folder
        core = settings.operator_only().load(CoreSettings)
        self._interval, self._keep = timedelta(hours=core.backup_every), core.backup_keep
        self._time, self._hold_duty = time_source or TimeSource(), hold_duty
        self._tasks = TaskSet("scheduled backups")
        self._is_stopping = threading.Event()
        self._retry_at: datetime | None = None
        self.failure = folder.failure

    async def __aenter__(self) -> Self:
        self._tasks.start(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_stopping.set()
        await self._tasks.cancel()

    async def back_up(self) -> Path | None:
        """Make a copy and delete surplus ones; return the copy, None if that failed."""
        result = await run_isolated(self._copy(), label="the scheduled backup", timeout=None)
        if self._is_stopping.is_set() and isinstance(result, Failure):
            return None
        if isinstance(result, Failure):
            self._note_failure(result.cause)
            return None
        self.failure, self._retry_at = "", None
        self._folder.record_result("")
        logger.info("the database was backed up to %s", result)
        return result

    def _note_failure(self, cause: str) -> None:
        self.failure = cause
        self._retry_at = self._time.now() + min(self._interval, MAX_RETRY_DELAY)
        self._folder.record_result(cause)
        logger.error("the scheduled backup failed: %s; it is tried again within the hour", cause)

    async def _copy(self) -> Path | Failure:
        try:
            with listen_to_progress(self._check_stopping):
                copy = await self._storage.backup(self._settings, self._folder.new_copy(self._time.now()))
            for deleted in self._folder.delete_surplus(self._keep, copy):
                logger.debug("deleted the old backup %s", deleted)
        except (BotError, OSError) as error:
            return Failure(str(error), error)
        return copy

    def _check_stopping(self, step: str, done: int, total: int) -> None:
        """Raise StoppedError if the process stops: a thread that copies cannot be cancelled otherwise."""
        if self._is_stopping.is_set():
            raise StoppedError(f"{step}: the process stops")

    async def _run(self) -> None:
        if await self._has_duty():
            await asyncio.to_thread(self._folder.delete_unfinished)
        await self._time.sleep(FIRST_DELAY_SECONDS)
        while True:
            try:
                wait = (self._due_at() - self._time.now()).total_seconds()
            except OSError as error:  # the folder cannot be read
                self._note_failure(str(error))
                continue
            if wait <= 0 and await self._has_duty():
                await self.back_up()
            else:
                await self._time.sleep(min(wait, RECHECK_SECONDS) if wait > 0 else RECHECK_SECONDS)

    async def _has_duty(self) -> bool:
        try:
            return self._hold_duty is None or await self._hold_duty()
        except StoreUnavailable:
            return False

    def _due_at(self) -> datetime:
        now = self._time.now()
        if self._retry_at is not None and self._retry_at - now <= MAX_RETRY_DELAY:
            return self._retry_at
        last = self._folder.last_time(now)
        return now if last is None else last + self._interval


def find_backup_problem(storage: Storage, settings: Settings, now: Callable[[], datetime]) -> str:
    """Return what is wrong with the scheduled copies of a database: the last attempt failed, or none was made for long.

    Return an empty text where nothing is wrong or none are scheduled.
    """
    folder = BackupFolder.of(storage, settings)
    if folder is None:
        return ""
    if folder.failure:
        return f"the last scheduled backup failed: {folder.failure}"
    last = folder.last_time(now())
    interval = timedelta(hours=settings.operator_only().load(CoreSettings).backup_every)
    if last is not None and now() - last > OVERDUE_FACTOR * interval:
        cause = "does another process make them now?" if storage.is_shared(settings) else "is the bot running?"
        return f"the last scheduled backup is of {last:%Y-%m-%d %H:%M} UTC: {cause}"
    return ""
