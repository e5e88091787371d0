"""Scheduled copies of the database: when they are made, which are kept, and what a failure leaves."""

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from bot.background.maintenance import BackupFolder, ScheduledBackups, find_backup_problem
from bot.concurrency.clock import TimeSource
from bot.domain.ids import derived_id
from bot.settings import Layer, Settings
from bot.store.sql.storage import SqlStorage

AGENT: UUID = derived_id("agent", "Ada")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class FastTime:
    """A clock that sleeping moves, until `until`; then the sleeper is stopped."""

    def __init__(self, until: timedelta, start: datetime = NOW) -> None:
        self.now, self._end = start, start + until

    async def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        if self.now > self._end:
            raise TimeoutError

    @property
    def source(self) -> TimeSource:
        return TimeSource(now=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    values = {"BOT_DATA_DIR": str(tmp_path / "data"), "BACKUP_EVERY": "6", "BACKUP_KEEP": "2"}
    return Settings([Layer("environment", values)])


@pytest.fixture
async def storage(settings: Settings) -> SqlStorage:
    storage = SqlStorage()
    await storage.upgrade(settings)
    return storage


def folder_of(storage: SqlStorage, settings: Settings) -> BackupFolder:
    folder = BackupFolder.of(storage, settings)
    assert folder is not None
    return folder


async def run_until(
    storage: SqlStorage, settings: Settings, until: timedelta, start: datetime = NOW
) -> ScheduledBackups:
    clock = FastTime(until, start)
    backups = ScheduledBackups(storage, settings, folder_of(storage, settings), clock.source)
    with pytest.raises(TimeoutError):
        await backups._run()
    return backups


async def test_copies_are_made_at_their_interval_and_only_the_latest_are_kept(
    storage: SqlStorage, settings: Settings, tmp_path: Path
) -> None:
    await run_until(storage, settings, timedelta(hours=20))
    copies = folder_of(storage, settings).copies()
    assert [copy.name for copy in copies] == ["greenroom-20260302-060100.db", "greenroom-20260302-000100.db"]
    assert copies[0].parent == tmp_path / "data" / "backups"
    assert copies[0].stat().st_mode & 0o777 == 0o600
    connection = sqlite3.connect(copies[0])
    assert connection.execute("SELECT count(*) FROM agents").fetchone() == (0,)
    connection.close()


async def test_only_the_process_with_the_duty_makes_copies(storage: SqlStorage, settings: Settings) -> None:
    clock, answers = FastTime(timedelta(hours=8)), iter([False, False, False])

    async def has_duty() -> bool:
        return next(answers, True)

    folder = folder_of(storage, settings)
    with pytest.raises(TimeoutError):
        await ScheduledBackups(storage, settings, folder, clock.source, has_duty)._run()
    names = [copy.name for copy in folder.copies()]  # asked at the start, then again after ten minutes, twice
    assert names == ["greenroom-20260301-182100.db", "greenroom-20260301-122100.db"]


async def test_a_restart_waits_for_the_rest_of_the_interval(storage: SqlStorage, settings: Settings) -> None:
    await run_until(storage, settings, timedelta(minutes=5))
    await run_until(storage, settings, timedelta(hours=5, minutes=50))
    assert len(folder_of(storage, settings).copies()) == 1


async def test_a_failed_copy_is_reported_until_a_copy_succeeds_also_after_a_restart(
    storage: SqlStorage, settings: Settings, tmp_path: Path
) -> None:
    database = tmp_path / "data" / "greenroom.db"
    hidden = database.rename(tmp_path / "hidden.db")
    backups = await run_until(storage, settings, timedelta(minutes=5))
    assert "there is no database" in backups.failure
    problem = find_backup_problem(storage, settings, lambda: NOW)
    assert problem.startswith("the last scheduled backup failed: there is no database")
    assert "there is no database" in ScheduledBackups(storage, settings, folder_of(storage, settings)).failure
    hidden.rename(database)
    assert (await run_until(storage, settings, timedelta(minutes=65))).failure == ""
    assert find_backup_problem(storage, settings, lambda: NOW) == ""


async def test_copies_go_on_after_the_clock_was_a_year_ahead(storage: SqlStorage, settings: Settings) -> None:
    folder = folder_of(storage, settings)
    await run_until(storage, settings, timedelta(hours=7), NOW + timedelta(days=365))
    ahead = [copy.name for copy in folder.copies()]
    await run_until(storage, settings, timedelta(minutes=5))
    assert [copy.name for copy in folder.copies()] == [ahead[0], "greenroom-20260301-120100.db"]
    await run_until(storage, settings, timedelta(hours=7))
    names = ["greenroom-20260301-180100.db", "greenroom-20260301-120100.db"]
    assert [copy.name for copy in folder.copies()] == names


async def test_a_folder_that_cannot_be_read_is_a_failure_and_does_not_end_the_copies(
    storage: SqlStorage, settings: Settings, tmp_path: Path
) -> None:
    values = {"BOT_DATA_DIR": str(tmp_path / "data"), "BACKUP_EVERY": "6", "BACKUP_DIR": str(tmp_path / ("x" * 300))}
    unreadable = Settings([Layer("environment", values)])
    assert "File name too long" in (await run_until(storage, unreadable, timedelta(minutes=65))).failure


async def test_a_missing_copy_is_reported_after_twice_the_interval(storage: SqlStorage, settings: Settings) -> None:
    await run_until(storage, settings, timedelta(minutes=5))
    assert find_backup_problem(storage, settings, lambda: NOW + timedelta(hours=12)) == ""
    assert "is of 2026-03-01 12:01 UTC" in find_backup_problem(storage, settings, lambda: NOW + timedelta(hours=13))


async def test_what_a_killed_process_left_is_deleted_and_never_counts_as_a_copy(
    storage: SqlStorage, settings: Settings, tmp_path: Path
) -> None:
    leftover = tmp_path / "data" / "backups" / "greenroom-20260301-110000.db.part"
    leftover.parent.mkdir()
    leftover.write_bytes(b"half")
    assert folder_of(storage, settings).copies() == []
    await run_until(storage, settings, timedelta(seconds=1))  # long before the first copy
    assert not leftover.exists()
    assert folder_of(storage, settings).copies() == []


async def test_a_process_that_stops_gives_a_copy_up(storage: SqlStorage, settings: Settings) -> None:
    backups = ScheduledBackups(storage, settings, folder_of(storage, settings))
    async with backups:
        pass
    connection = sqlite3.connect(Path(settings.get("BOT_DATA_DIR") or "") / "greenroom.db")
    with connection:
        connection.execute("CREATE TABLE filler (content TEXT)")
        connection.executemany("INSERT INTO filler VALUES (?)", [("x" * 500,)] * 20_000)
    connection.close()
    assert await backups.back_up() is None
    assert not list(folder_of(storage, settings).path.iterdir())
    assert backups.failure == ""


async def test_a_character_file_schedules_nothing(storage: SqlStorage, tmp_path: Path) -> None:
    layers = [Layer("the character", {"BACKUP_EVERY": "1"}, is_operator=False)]
    assert BackupFolder.of(storage, Settings(layers)) is None
