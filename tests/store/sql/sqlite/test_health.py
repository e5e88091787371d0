"""Group I, the file itself: problems are reported once, jobs are atomic, and recovery is automatic."""

import asyncio
import logging
import os
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from bot import ConfigError
from bot.store import StoreInaccessible, StoreUnavailable
from bot.store.sql.core.base import Synchronous
from bot.store.sql.sqlite import connection as sqlite
from bot.store.sql.sqlite import health
from bot.store.sql.sqlite.check import find_location_problems
from bot.store.sql.sqlite.storage import OpenFiles, SqliteDatabase

SET = "INSERT INTO cache (agent_id, key, value) VALUES (1, ?, '1')"
LARGE = "x" * 4000


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "RECHECK_SECONDS", 0.01)


@pytest.fixture
async def database(path: Path) -> AsyncIterator[SqliteDatabase]:
    async with OpenFiles().use(path, Synchronous.NORMAL) as opened:
        await opened.write(lambda db: db.exec_driver_sql("INSERT INTO agents VALUES (1, x'00')"))
        yield opened


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of three megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], check=False).returncode:
        pytest.skip("this user may not mount a disk")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def write(key: str) -> Callable[[Connection], str]:
    def work(connection: Connection) -> str:
        connection.exec_driver_sql(SET, (key,))
        return key

    return work


def pragma(text: str) -> Callable[[Connection], Any]:
    return lambda db: db.exec_driver_sql(f"PRAGMA {text}").scalar()


async def keys(database: SqliteDatabase) -> list[str]:
    rows = await database.read(lambda db: db.exec_driver_sql("SELECT key FROM cache ORDER BY key").fetchall())
    return [row[0] for row in rows]


async def recovered(database: SqliteDatabase) -> None:
    async with asyncio.timeout(30):
        while database.health.problem is not None:
            await database.read(pragma("schema_version"))


async def fill(database: SqliteDatabase, *, first: int = 0) -> list[str]:
    """Write until it fails; return what was stored."""
    kept: list[str] = []
    for number in range(first, 5000):
        try:
            kept.append(await database.write(write(f"{number:05}{LARGE}")))
        except StoreUnavailable:
            return kept
    raise AssertionError("the disk never became full")


def logged_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "bot.store.ledger"]


@pytest.mark.failure("I-01")
async def test_a_locked_file_is_waited_for_once_then_writes_are_refused_at_once(
    database: SqliteDatabase, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await database.write(pragma("busy_timeout = 200"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    clock = asyncio.get_running_loop().time
    started = clock()
    with caplog.at_level(logging.WARNING, "bot.store.ledger"):
        first = asyncio.gather(*(database.write(write(f"{n}")) for n in range(9)), return_exceptions=True)
        assert await keys(database) == []  # who reads is not held up
        assert all(isinstance(error, StoreUnavailable) for error in await first)
        waited = clock() - started
        for _ in range(20):
            with pytest.raises(StoreUnavailable, match=f"{path} is locked by another program: close it"):
                await database.write(write("again"))
        assert clock() - started < 2 * waited
        trouble = database.health.problem
        assert trouble is not None
        assert trouble.cause == "db_locked"
        other.close()
        await recovered(database)

    assert await database.write(write("b")) == "b"
    assert await keys(database) == ["b"]
    assert [line.split(":")[0].split(" after ")[0] for line in logged_warnings(caplog)] == [
        "messages are not accepted, because the store is unavailable (db_locked)",
        "messages are accepted again",
    ]
    assert await database.write(pragma("busy_timeout")) == sqlite.BUSY_TIMEOUT_SECONDS * 1000


@pytest.mark.failure("I-01")
async def test_a_file_locked_at_the_start_raises_store_unavailable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with OpenFiles().use(path):
        pass
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_SECONDS", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="is locked by another program"):  # exit code 75
        async with OpenFiles().use(path):
            pass
    other.close()
    async with OpenFiles().use(path):
        pass


@pytest.mark.failure("I-02")
async def test_a_full_database_loses_nothing_and_continues_when_there_is_space(
    database: SqliteDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    used = await database.write(pragma("page_count"))
    most = await database.write(pragma("max_page_count"))
    await database.write(pragma(f"max_page_count = {used + 20}"))
    kept = await fill(database)
    trouble = database.health.problem
    assert trouble is not None
    assert trouble.cause == "db_full"
    assert "free some space" in trouble.message

    change = "UPDATE cache SET value = '2' WHERE key = ?"
    await database.write(lambda db: db.exec_driver_sql(change, (kept[0],)))  # what needs no room goes on
    assert database.health.problem == trouble
    assert await keys(database) == kept

    await database.write(pragma(f"max_page_count = {most}"))
    await recovered(database)
    await database.write(write("more"))
    assert await keys(database) == [*kept, "more"]
    assert len(logged_warnings(caplog)) == 2


@pytest.mark.matrix(3)
@pytest.mark.failure("I-02")
@pytest.mark.parametrize("room", range(1, 24))
async def test_on_a_full_disk_each_job_is_stored_or_refused_as_a_whole(database: SqliteDatabase, room: int) -> None:
    used = await database.write(pragma("page_count"))
    await database.write(pragma(f"max_page_count = {used + room}"))

    def two(name: str) -> Callable[[Connection], str]:
        def work(connection: Connection) -> str:
            write(f"{name}-1{LARGE}")(connection)
            write(f"{name}-2{LARGE}")(connection)
            return name

        return work

    names = [f"{number:02}" for number in range(12)]
    results = await asyncio.gather(*(database.write(two(name)) for name in names), return_exceptions=True)
    kept = [name for name, result in zip(names, results, strict=True) if result == name]

    assert all(isinstance(error, StoreUnavailable) for error in results if not isinstance(error, str))
    assert [key[:4] for key in await keys(database)] == [f"{name}-{n}" for name in kept for n in (1, 2)]
    assert await database.read(pragma("integrity_check")) == "ok"


@pytest.mark.failure("I-02")
async def test_a_really_full_disk_loses_nothing_and_can_be_reopened(disk: Path) -> None:
    path = disk / "greenroom.db"
    ballast = disk / "ballast"
    ballast.write_bytes(b"0" * 1_000_000)
    async with OpenFiles().use(path) as database:
        await database.write(lambda db: db.exec_driver_sql("INSERT INTO agents VALUES (1, x'00')"))
        kept = await fill(database)
        assert database.health.problem is not None
        assert database.health.problem.cause == "db_full"
        assert await keys(database) == kept
        ballast.unlink()
        await recovered(database)
        kept += await fill(database, first=len(kept))
    async with OpenFiles().use(path) as database:
        assert await keys(database) == kept
        assert await database.read(pragma("integrity_check")) == "ok"


@pytest.mark.failure("I-03")
async def test_a_file_on_a_read_only_disk_is_refused_and_named(disk: Path) -> None:
    path = disk / "greenroom.db"
    async with OpenFiles().use(path):
        pass
    remount(disk, "ro")
    with pytest.raises(StoreInaccessible, match=str(path)):
        async with OpenFiles().use(path):
            pass
    remount(disk, "rw")
    async with OpenFiles().use(path):
        pass


def remount(disk: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", disk], check=True)


@pytest.mark.failure("I-03")
async def test_a_moved_file_refuses_writes_until_it_is_back(database: SqliteDatabase, path: Path) -> None:
    await database.write(write("before"))
    away = path.parent.with_name("away")
    path.parent.rename(away)
    with pytest.raises(StoreUnavailable, match=f"{path} was moved or removed"):
        await database.write(write("meanwhile"))
    trouble = database.health.problem
    assert trouble is not None
    assert trouble.cause == "db_unreachable"

    away.rename(path.parent)
    await recovered(database)
    await database.write(write("after"))
    assert await keys(database) == ["after", "before"]


async def make_whole(path: Path) -> None:
    async with OpenFiles().use(path, Synchronous.NORMAL) as database:
        await database.write(lambda db: db.exec_driver_sql("INSERT INTO agents VALUES (1, x'00')"))
        for number in range(60):
            await database.write(write(f"{number:05}{LARGE}"))


def damage(path: Path, content: bytes, pages: Iterable[int]) -> bytes:
    """Overwrite some pages of a database."""
    broken = bytearray(content)
    for page in pages:
        broken[page * 4096 : page * 4096 + 512] = b"\xa5" * 512
    path.write_bytes(broken)
    return bytes(broken)


def content_of(path: Path) -> bytes:
    return path.read_bytes()


@pytest.mark.long
@pytest.mark.failure("I-04")
async def test_a_damaged_page_is_refused_and_the_file_not_changed(path: Path) -> None:
    await make_whole(path)
    content = content_of(path)
    refused, pages = 0, len(content) // 4096
    for page in range(pages):
        broken = damage(path, content, [page])
        try:
            async with OpenFiles().use(path) as database:
                assert await database.read(pragma("integrity_check(1)")) == "ok"  # it was an empty one
        except ConfigError as error:
            refused += str(path) in str(error) and "put a backup in its place" in str(error)
            assert content_of(path) == broken
    assert refused > pages / 2


@pytest.mark.failure("I-04")
async def test_a_database_that_is_not_looked_through_in_time_is_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_whole(path)
    monkeypatch.setattr(sqlite, "CHECK_SECONDS", 0.0)
    async with OpenFiles().use(path) as database:
        assert len(await keys(database)) == 60


@pytest.mark.long
@pytest.mark.failure("I-04")
async def test_damage_in_a_large_database_is_found_at_the_start(path: Path) -> None:
    await make_whole(path)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE filler (content BLOB)")
        connection.executemany("INSERT INTO filler VALUES (zeroblob(?))", [(1 << 20,)] * 80)
        [(page,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'memories'").fetchall()
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xa5" * 512)
    with pytest.raises(ConfigError, match="is damaged"):
        async with OpenFiles().use(path):
            pass


@pytest.mark.failure("I-04")
async def test_damage_found_while_running_stops_all_writing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await make_whole(path)
    content = content_of(path)
    pages = len(content) // 4096
    async with OpenFiles().use(path) as database:
        damage(path, content, range(pages - 40, pages))
        with pytest.raises(StoreUnavailable, match="is damaged: stop the bot, keep the file"):
            await keys(database)
        trouble = database.health.problem
        assert trouble is not None
        assert trouble.cause == "db_damaged"
        before = database.commit_count
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="put a backup in its place"):
                await database.write(write("new"))
        assert database.commit_count == before
        assert database.health.problem == trouble
    assert len(logged_warnings(caplog)) == 1


@pytest.mark.failure("I-05")
async def test_a_stale_index_of_the_log_is_rebuilt(path: Path, tmp_path: Path) -> None:
    live = await left_by_a_killed_process(path, tmp_path)
    (live.with_name("greenroom.db-shm")).write_bytes(b"\xa5" * 32768)
    async with OpenFiles().use(live) as database:
        assert await keys(database) == ["acknowledged"]


@pytest.mark.failure("I-05")
async def test_a_missing_log_is_reported(path: Path, tmp_path: Path) -> None:
    live = await left_by_a_killed_process(path, tmp_path)
    log = live.with_name("greenroom.db-wal")
    kept = log.read_bytes()
    log.unlink()
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"{log} is missing.*put it back.*remove greenroom.db.lock"):
            async with OpenFiles().use(live):
                pass
    log.write_bytes(kept)
    async with OpenFiles().use(live) as database:
        assert await keys(database) == ["acknowledged"]


@pytest.mark.failure("I-05")
async def test_the_bot_can_continue_without_a_lost_log(path: Path, tmp_path: Path) -> None:
    live = await left_by_a_killed_process(path, tmp_path)
    live.with_name("greenroom.db-wal").unlink()
    live.with_name("greenroom.db.lock").unlink()
    async with OpenFiles().use(live) as database:
        assert await database.read(pragma("integrity_check")) == "ok"


@pytest.mark.failure("I-05")
async def test_a_log_written_back_by_another_program_is_not_reported(path: Path, tmp_path: Path) -> None:
    live = await left_by_a_killed_process(path, tmp_path)
    with sqlite3.connect(live) as browser:
        assert browser.execute("SELECT count(*) FROM cache").fetchone() == (1,)
    browser.close()
    assert not live.with_name("greenroom.db-wal").exists()
    async with OpenFiles().use(live) as database:
        assert await keys(database) == ["acknowledged"]


@pytest.mark.failure("I-05")
async def test_after_a_normal_stop_no_log_is_expected(database: SqliteDatabase, path: Path) -> None:
    await database.write(write("a"))
    await database.close()
    async with OpenFiles().use(path) as again:
        assert await keys(again) == ["a"]


async def left_by_a_killed_process(path: Path, tmp_path: Path) -> Path:
    """Create the files of a process that was killed with all writes in the log."""
    left = tmp_path / "left"
    left.mkdir()
    async with OpenFiles().use(path) as database:
        await database.write(lambda db: db.exec_driver_sql("INSERT INTO agents VALUES (1, x'00')"))
        await database.write(write("acknowledged"))
        for file in path.parent.iterdir():
            (left / file.name).write_bytes(file.read_bytes())
    return left / path.name


@pytest.mark.failure("I-13")
@pytest.mark.parametrize(
    ("kind", "folder", "expected"),
    [
        ("nfs4", "home", "network disk (nfs4)"),
        ("fuse.sshfs", "home", "network disk (fuse.sshfs)"),
        ("ext4", "Dropbox", "synchronised folder ('Dropbox')"),
        ("ext4", "OneDrive - Work", "synchronised folder ('OneDrive - Work')"),
    ],
)
def test_an_unreliable_location_is_reported(tmp_path: Path, kind: str, folder: str, expected: str) -> None:
    (tmp_path / folder).mkdir()
    mounts = tmp_path / "mounts"
    mounts.write_text(f"22 1 8:1 / / rw - ext4 /dev/sda rw\n30 22 0:5 / {tmp_path}/home rw - {kind} server:/x rw\n")
    [doubt] = find_location_problems(tmp_path / folder / "greenroom.db", mounts)

    assert expected in doubt
    assert "BOT_DATA_DIR" in doubt


@pytest.mark.failure("I-13")
def test_an_ordinary_location_is_not_reported(path: Path, tmp_path: Path) -> None:
    assert list(find_location_problems(path)) == []
    assert list(find_location_problems(path, tmp_path / "no such file")) == []


@pytest.mark.failure("I-13")
async def test_opening_at_an_unreliable_location_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with OpenFiles().use(tmp_path / "Nextcloud" / "greenroom.db") as database:
        await database.write(pragma("schema_version"))

    assert ["synchronised" in record.getMessage() for record in caplog.records].count(True) == 1


@pytest.mark.parametrize("fault", [MemoryError(), KeyboardInterrupt(), SystemExit(3), StopIteration()])
async def test_any_exception_of_a_job_leaves_other_jobs_and_the_thread_alive(
    database: SqliteDatabase, fault: BaseException
) -> None:
    def faulty(connection: Connection) -> None:
        write("half")(connection)
        raise fault

    caught: list[type[BaseException]] = []

    async def guarded() -> None:
        try:
            await database.write(faulty)
        except BaseException as error:
            caught.append(type(error))

    others = [database.write(write("a")), guarded(), database.write(write("b"))]
    await asyncio.gather(*others)

    assert caught == [RuntimeError if isinstance(fault, StopIteration) else type(fault)]
    assert await keys(database) == ["a", "b"]
    assert await database.write(write("c")) == "c"


@pytest.mark.long
async def test_the_log_stays_bounded_under_constant_load(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.store.sql.sqlite.threads.MAX_CHANGES", 200)
    log = path.with_name("greenroom.db-wal")
    async with OpenFiles().use(path, Synchronous.NORMAL) as database:
        await database.write(lambda db: db.exec_driver_sql("INSERT INTO agents VALUES (1, x'00')"))
        sizes = []

        async def load(name: str) -> None:
            for number in range(400):
                await database.write(write(f"{name}{number:05}{'x' * 500}"))
                await database.read(pragma("schema_version"))
                sizes.append(os.stat(log).st_size)

        await asyncio.gather(*(load(name) for name in "abcdefgh"))
        assert max(sizes[len(sizes) // 2 :]) <= 2 * max(sizes[: len(sizes) // 2])


async def test_a_blocked_reader_does_not_delay_others(database: SqliteDatabase, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM cache").fetchone()
    for number in range(50):
        await database.write(write(f"{number:03}"))

    assert len(await keys(database)) == 50
    assert database.health.problem is None
    other.close()
