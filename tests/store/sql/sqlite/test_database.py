"""The SQLite database: shared commits, one process per file, and clean closing."""

import asyncio
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from bot import ConfigError
from bot.errors import TemporaryError
from bot.store.sql.core.base import SharedWork, Synchronous
from bot.store.sql.sqlite import connection as sqlite
from bot.store.sql.sqlite.storage import OpenFiles, SqliteDatabase
from bot.testing import make_message

SET = "INSERT INTO cache (agent_id, key, value) VALUES (1, ?, '1')"
HOLD = "import sys; from pathlib import Path; from bot.store.sql.sqlite.file_lock import FileLock\n" + (
    "FileLock(Path(sys.argv[1])).acquire(); print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
async def database(path: Path) -> AsyncIterator[SqliteDatabase]:
    async with OpenFiles().use(path, Synchronous.NORMAL) as opened:
        await opened.write(lambda db: db.exec_driver_sql("INSERT INTO agents VALUES (1, x'00')"))
        yield opened


def write(key: str) -> sqlite.Any:
    def work(connection: Connection) -> str:
        connection.exec_driver_sql(SET, (key,))
        return key

    return work


def damage(path: Path) -> bytes:
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 8] = b"\xa5" * 4096 * 5
    path.write_bytes(content)
    return bytes(content)


def scribble(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("My shopping list. " * 500)


def content_of(path: Path) -> bytes:
    return path.read_bytes()


async def keys(database: SqliteDatabase) -> list[str]:
    rows = await database.read(lambda db: db.exec_driver_sql("SELECT key FROM cache ORDER BY key").fetchall())
    return [row[0] for row in rows]


async def test_jobs_that_wait_together_share_commits(database: SqliteDatabase) -> None:
    before = database.commit_count
    written = await asyncio.gather(*(database.write(write(f"{number:03}")) for number in range(200)))

    assert written == await keys(database)
    assert database.commit_count - before < 20


async def test_a_job_that_fails_does_not_fail_the_others(database: SqliteDatabase) -> None:
    jobs = [write("a"), write("b"), write("a"), write("c")]
    results = await asyncio.gather(*map(database.write, jobs), return_exceptions=True)

    assert [results[0], results[1], results[3]] == ["a", "b", "c"]
    assert isinstance(results[2], Exception)
    assert await keys(database) == ["a", "b", "c"]


async def test_shared_work_is_done_once_for_all_items_of_a_commit(database: SqliteDatabase) -> None:
    batches: list[list[str]] = []

    def write_all(connection: Connection, items: Sequence[str]) -> list[str]:
        batches.append(list(items))
        return [write(item)(connection) for item in items]

    numbers = [f"{number:03}" for number in range(100)]
    written = await asyncio.gather(*(database.write(SharedWork(write_all, number)) for number in numbers))

    assert written == await keys(database) == [item for batch in batches for item in batch] == numbers
    assert len(batches) < 20


async def test_an_item_of_shared_work_that_fails_does_not_fail_the_others(database: SqliteDatabase) -> None:
    def write_all(connection: Connection, items: Sequence[str]) -> list[str]:
        return [write(item)(connection) for item in items]

    jobs = [SharedWork(write_all, item) for item in ("a", "b", "a", "c")]
    results = await asyncio.gather(*map(database.write, jobs), return_exceptions=True)

    assert [results[0], results[1], results[3]] == ["a", "b", "c"]
    assert isinstance(results[2], Exception)
    assert await keys(database) == ["a", "b", "c"]


async def test_a_failing_job_is_rolled_back(database: SqliteDatabase) -> None:
    def half(connection: Connection) -> None:
        write("half")(connection)
        raise ValueError("halfway")

    results = await asyncio.gather(database.write(half), database.write(write("whole")), return_exceptions=True)

    assert isinstance(results[0], ValueError)
    assert await keys(database) == ["whole"]


async def test_a_full_disk_fails_uncommitted_jobs_and_says_what_to_do(database: SqliteDatabase, path: Path) -> None:
    def limit(pages: int) -> sqlite.Any:
        return lambda db: db.exec_driver_sql(f"PRAGMA max_page_count = {pages}").scalar()

    most = await database.write(lambda db: db.exec_driver_sql("PRAGMA max_page_count").scalar())
    used = await database.write(lambda db: db.exec_driver_sql("PRAGMA page_count").scalar())
    await database.write(limit(used + 2))
    large = "x" * 4000
    results = await asyncio.gather(
        *(database.write(write(f"{number}{large}")) for number in range(20)), return_exceptions=True
    )
    failed = [result for result in results if isinstance(result, BaseException)]

    assert failed
    assert all(isinstance(error, TemporaryError) for error in failed)
    assert str(path) in str(failed[0])
    assert "free some space" in str(failed[0])
    assert len(await keys(database)) == len(results) - len(failed)

    await database.write(limit(most))
    await database.write(write("again"))
    assert "again" in await keys(database)


async def test_a_read_sees_every_write_that_has_returned(database: SqliteDatabase) -> None:
    for number in range(50):
        await database.write(write(f"{number:03}"))
        assert len(await keys(database)) == number + 1


async def test_a_reader_cannot_write(database: SqliteDatabase) -> None:
    with pytest.raises(TemporaryError, match="cannot be written"):
        await database.read(write("a"))

    assert await keys(database) == []


async def test_a_cancelled_caller_does_not_affect_others(database: SqliteDatabase) -> None:
    waiting = [asyncio.ensure_future(database.write(write(str(number)))) for number in range(5)]
    await asyncio.sleep(0)
    waiting[2].cancel()
    results = await asyncio.gather(*waiting, return_exceptions=True)

    assert [result for result in results if isinstance(result, str)] == ["0", "1", "3", "4"]


async def test_foreign_keys_hold(database: SqliteDatabase) -> None:
    with pytest.raises(Exception, match="FOREIGN KEY"):
        await database.write(
            lambda db: db.exec_driver_sql("INSERT INTO cache (agent_id, key, value) VALUES (9, 'a', '1')")
        )


async def test_a_commit_has_the_configured_durability(path: Path) -> None:
    for wanted, number in ((Synchronous.FULL, 2), (Synchronous.NORMAL, 1)):
        async with OpenFiles().use(path, wanted) as database:
            found = await database.write(lambda db: db.exec_driver_sql("PRAGMA synchronous").scalar())
            assert found == number


async def test_the_log_is_written_back_when_it_is_closed(database: SqliteDatabase, path: Path) -> None:
    await database.write(write("a"))
    await database.close()

    assert not path.with_name("greenroom.db-wal").exists()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT key FROM cache").fetchall() == [("a",)]
    connection.close()


async def test_rows_changed_by_another_program_are_not_served_from_the_cache(store: Any, path: Path) -> None:
    now = datetime.now(UTC)
    first, second = (make_message(text, sent_at=now) for text in ("one", "two"))
    await store.ledger.receive([first], now)
    with closing(sqlite3.connect(path)) as browser, browser:
        browser.execute("DELETE FROM rooms")
    [received] = await store.ledger.receive([second], now)
    assert await store.worlds.room(received.receipt.room_id) == second.room


@pytest.mark.long
async def test_files_are_accessible_only_to_their_owner(database: SqliteDatabase, path: Path) -> None:
    await database.write(write("a"))

    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


async def test_no_thread_is_left_after_closing(path: Path) -> None:
    before = set(threading.enumerate())
    async with OpenFiles().use(path) as database:
        await database.read(lambda db: None)
        assert len(set(threading.enumerate()) - before) == 3

    assert set(threading.enumerate()) == before


async def test_jobs_queued_before_closing_are_done(path: Path) -> None:
    files = OpenFiles()
    async with files.use(path) as database:
        await database.write(lambda db: db.exec_driver_sql("INSERT INTO agents VALUES (1, x'00')"))
        waiting = [asyncio.ensure_future(database.write(write(f"{number}"))) for number in range(9)]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)

    async with files.use(path) as database:
        assert len(await keys(database)) == 9


async def test_agents_of_the_same_process_share_a_file(path: Path) -> None:
    files = OpenFiles()
    async with files.use(path) as first:
        async with files.use(path.parent / "." / path.name) as second:
            assert first is second
        await first.read(lambda db: None)


@pytest.mark.long
async def test_a_second_process_is_refused_with_instructions(path: Path) -> None:
    sqlite.create_file(path)
    holder = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match=f"{path}.*process {holder.pid}.*BOT_DATA_DIR"):
            async with OpenFiles().use(path):
                pass
    finally:
        holder.kill()
        holder.communicate()

    async with OpenFiles().use(path):  # the system took the lock back
        pass


async def test_a_damaged_file_is_refused_before_anything_is_written(path: Path) -> None:
    async with OpenFiles().use(path):
        pass
    content = damage(path)

    with pytest.raises(ConfigError, match="damaged"):
        async with OpenFiles().use(path):
            pass
    assert content_of(path) == content


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    scribble(path)

    with pytest.raises(ConfigError, match="no SQLite database"):
        async with OpenFiles().use(path):
            pass


async def test_a_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")

    with pytest.raises(ConfigError, match="taken"):
        async with OpenFiles().use(tmp_path / "taken" / "greenroom.db"):
            pass


async def test_a_locked_file_is_waited_for_then_explained(database: SqliteDatabase, path: Path) -> None:
    await database.write(lambda db: db.exec_driver_sql("PRAGMA busy_timeout = 20").scalar())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(TemporaryError, match="locked by another program"):
            await database.write(write("a"))
    finally:
        other.close()

    await database.write(write("b"))
    assert await keys(database) == ["b"]
