"""The process of a command: watched files, output, tasks at exit, the blocked event loop, crashed starts."""

import asyncio
import json
import logging
import os
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path

import anyio.to_thread
import pytest

from bot.cli.process import shutdown, watchdog
from bot.cli.process.shutdown import (
    MAX_QUEUED_BYTES,
    StopRequest,
    never_wait_for_readers,
    stop_remaining_tasks,
    wake_on_changes,
    watch_files,
)
from bot.cli.process.watchdog import FILE_NAME, WINDOW_SECONDS, StartHistory, run_watchdog
from bot.errors import ConfigError, TemporaryError
from bot.testing import ManualClock


async def test_a_folder_that_cannot_be_watched_is_looked_at_every_few_seconds(tmp_path: Path) -> None:
    async with asyncio.timeout(20), aclosing(wake_on_changes([tmp_path / "missing"], 0.01)) as wakes:
        assert not await anext(wakes)
        assert not await anext(wakes)


@pytest.mark.parametrize("folder", ["", "missing"], ids=["watched", "looked at"])
async def test_the_file_that_has_changed_is_yielded(tmp_path: Path, folder: str) -> None:
    files = [tmp_path / "ada.json", tmp_path / "bea.json"]
    for file in files:
        file.write_text("{}", encoding="utf-8")
    started = asyncio.Event()

    async def wake(folders: Collection[Path]) -> AsyncGenerator[Collection[Path], None]:
        started.set()
        async with aclosing(wake_on_changes([tmp_path / folder], 0.05)) as wakes:
            async for paths in wakes:
                yield paths

    async with asyncio.timeout(20), aclosing(watch_files(files, wake)) as changed:
        waiting = asyncio.create_task(anext(changed))
        await started.wait()
        number = 0
        while not waiting.done():  # until the watcher has started
            number += 1
            files[1].write_text(f'{{"name": "Bea {number}"}}' + " " * number, encoding="utf-8")
            await asyncio.wait([waiting], timeout=0.2)
        assert waiting.result() == files[1]


@contextmanager
def piped_stdout(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """Make stdout a pipe, and yield its ends; only during the test itself, because pytest replaces stdout too."""
    reading, writing = os.pipe()
    with monkeypatch.context() as patch, os.fdopen(writing, "w") as file:
        patch.setattr(sys, "stdout", file)
        yield reading, writing


@pytest.mark.failure("K-15")
def test_what_is_read_arrives_in_order_and_stdout_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    with piped_stdout(monkeypatch) as (reading, _):
        before = sys.stdout
        with never_wait_for_readers("stdout"):
            sys.stdout.write("first\n")
            sys.stdout.write("sécond")
        assert os.read(reading, 100).decode() == "first\nsécond"
        assert sys.stdout is before
    os.close(reading)


@pytest.mark.failure("K-15")
def test_lines_that_no_client_reads_are_dropped_counted_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with piped_stdout(monkeypatch) as (reading, writing), caplog.at_level(logging.WARNING):
        os.set_blocking(writing, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writing, bytes(4096))
        os.set_blocking(writing, True)
        with never_wait_for_readers("stdout"):
            for _ in range(MAX_QUEUED_BYTES // 1024 + 7):
                sys.stdout.write(f"{'x' * 1023}\n")
        sys.stdout.flush()  # as the interpreter does at exit
        os.close(reading)
    assert [record.getMessage() for record in caplog.records] == [
        "nobody reads stdout: lines for it are dropped",
        "7 lines for stdout were dropped: nobody has read them",
    ]


@pytest.mark.failure("K-15")
def test_lines_for_a_reader_that_has_gone_are_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with piped_stdout(monkeypatch) as (reading, _), caplog.at_level(logging.WARNING):
        os.close(reading)
        with never_wait_for_readers("stdout"):
            sys.stdout.write("one\ntwo\n")
    assert [record.getMessage() for record in caplog.records] == [
        "2 lines for stdout were dropped: nobody has read them"
    ]


@pytest.mark.failure("H-09")
async def test_tasks_left_by_a_plugin_are_logged_and_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    async def ticking() -> None:
        await asyncio.Event().wait()

    async def clinging() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    over = threading.Event()
    held = []

    async def main() -> None:
        async with stop_remaining_tasks():
            held.extend([asyncio.create_task(ticking()), asyncio.create_task(clinging())])
            threading.Thread(target=over.wait, name="watering").start()
            await asyncio.sleep(0)

    try:
        await asyncio.to_thread(asyncio.run, main())
    finally:
        over.set()

    assert all(task.done() for task in held)
    tasks, clung, threads = caplog.messages
    assert tasks.startswith("2 tasks still ran and are cancelled: ")
    assert "ticking (" in tasks
    assert "test_process.py:" in tasks
    assert "clinging (" in clung
    assert "still run and delay the exit: " in threads
    assert "watering" in threads


@pytest.mark.failure("H-09")
async def test_an_uncancellable_task_does_not_delay_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clinging(Exception):
        pass

    async def cling() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue
            except GeneratorExit:
                raise Clinging from None

    async def main() -> str:
        async with stop_remaining_tasks():
            held.append(asyncio.create_task(cling()))
            await asyncio.sleep(0)
        return "swept"

    monkeypatch.setattr(shutdown, "CANCEL_GRACE_SECONDS", 0)
    held: list[asyncio.Task[None]] = []
    assert await asyncio.to_thread(asyncio.run, main()) == "swept"
    assert held[0].done()


async def test_idle_threads_of_the_event_loop_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with stop_remaining_tasks():
            await asyncio.to_thread(int)
            await anyio.to_thread.run_sync(int)  # the watcher of changed files works in such a one

    await asyncio.to_thread(asyncio.run, main())
    assert "AnyIO" not in caplog.text  # pytest's own thread may be named
    assert "asyncio_" not in caplog.text


class LogCollector(logging.Handler):
    """Collects log messages and releases its waiters at the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.set()


def blocking_plugin(collector: LogCollector) -> None:
    assert collector.messages.wait(20)


@pytest.mark.failure("H-05")
async def test_a_blocked_loop_is_logged_with_the_blocking_code(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watchdog, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(watchdog, "BLOCKED_WARNING_SECONDS", 0.05)
    collector = LogCollector()
    logging.getLogger(watchdog.__name__).addHandler(collector)
    try:
        with run_watchdog(StopRequest()):
            blocking_plugin(collector)
            collector.messages.clear()
            await asyncio.to_thread(collector.messages.wait, 20)  # until the log says that the loop continues
    finally:
        logging.getLogger(watchdog.__name__).removeHandler(collector)

    blocked, continues = (record.getMessage() for record in caplog.records if record.name == watchdog.__name__)
    assert blocked.startswith("event loop blocked for 0 s at wait (")
    assert "blocking_plugin (" in blocked
    assert "test_process.py:" in blocked
    assert continues.startswith("event loop continues after ")


@pytest.mark.failure("H-06")
async def test_a_loop_that_is_blocked_with_the_lock_of_the_log_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(watchdog, "BLOCKED_WARNING_SECONDS", 0.05)
    monkeypatch.setattr(watchdog, "RESTART_SECONDS", 0.2)
    restarted = threading.Event()
    monkeypatch.setattr(watchdog, "_restart_process", restarted.set)
    collector = LogCollector()
    logging.getLogger(watchdog.__name__).addHandler(collector)
    try:
        with run_watchdog(StopRequest()):
            collector.acquire()
            assert restarted.wait(20)
            collector.release()
            assert await asyncio.to_thread(collector.messages.wait, 20)
    finally:
        logging.getLogger(watchdog.__name__).removeHandler(collector)


Start = Callable[..., StartHistory]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def start(tmp_path: Path, clock: ManualClock) -> Start:
    """Return a function that creates the history of a new process."""

    def made(limit: int = 3) -> StartHistory:
        clock.advance(1)
        return StartHistory(tmp_path / "data", limit=limit, clock=clock.monotonic)

    return made


def crash_start(start: Start, times: int) -> None:
    for _ in range(times):
        start().record_start()  # nothing more: the process was killed


@pytest.mark.failure("K-11")
def test_three_crashed_starts_within_five_minutes_are_a_loop(start: Start, clock: ManualClock) -> None:
    crash_start(start, 2)
    assert start().find_crash_loop() is None
    crash_start(start, 1)
    loop = start().find_crash_loop()
    assert loop is not None
    assert loop.count == 3
    assert str(loop).startswith("3 starts within 5 minutes crashed (killed, out of memory, or the machine")


@pytest.mark.failure("K-11")
def test_a_crash_loop_ends_when_its_first_start_is_five_minutes_old(start: Start, clock: ManualClock) -> None:
    crash_start(start, 3)
    loop = start().find_crash_loop()
    assert loop is not None
    clock.advance(loop.retry_at - 2 - clock.monotonic())
    assert start().find_crash_loop() is not None
    assert start().find_crash_loop() is None


@pytest.mark.failure("K-11")
@pytest.mark.parametrize("error", [ConfigError("no"), TemporaryError("busy"), KeyboardInterrupt(), SystemExit(1), None])
def test_a_regular_end_does_not_count(start: Start, error: BaseException | None) -> None:
    for _ in range(5):
        starts = start()
        with suppress(BaseException), starts.track_outcome():
            starts.record_start()
            if error is not None:
                raise error
    assert start(limit=1).find_crash_loop() is None


@pytest.mark.failure("K-11")
def test_an_internal_error_counts_and_is_named(start: Start) -> None:
    for _ in range(3):
        starts = start()
        with suppress(ZeroDivisionError), starts.track_outcome():
            starts.record_start()
            raise ZeroDivisionError("by nothing")
    loop = start().find_crash_loop()
    assert loop is not None
    assert loop.cause == "ZeroDivisionError: by nothing"


@pytest.mark.failure("K-11")
def test_a_requested_stop_does_not_count(start: Start) -> None:
    for _ in range(5):
        starts = start()
        starts.record_start()
        starts.clear()  # at the first signal; the second one may kill it
    assert start(limit=1).find_crash_loop() is None


@pytest.mark.failure("K-11")
def test_a_limit_of_zero_disables_the_history(start: Start, tmp_path: Path) -> None:
    for _ in range(5):
        starts = start(limit=0)
        starts.record_start()
        assert starts.find_crash_loop() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.failure("K-11")
@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"at": "now"}]', '{"at": 1}', "\xff"])
def test_a_damaged_file_does_not_prevent_a_start(start: Start, tmp_path: Path, text: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / FILE_NAME).write_text(text, encoding="latin-1")
    assert start().find_crash_loop() is None
    crash_start(start, 3)
    assert start().find_crash_loop() is not None


@pytest.mark.failure("K-11")
def test_an_unwritable_folder_does_not_prevent_a_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    crash_start(start, 3)
    assert start().find_crash_loop() is None


@pytest.mark.failure("K-11")
def test_starts_in_the_future_do_not_count(start: Start, tmp_path: Path, clock: ManualClock) -> None:
    crash_start(start, 3)
    clock.advance(-2 * WINDOW_SECONDS)  # the clock was set back
    assert start().find_crash_loop() is None


def test_the_file_is_private(start: Start, tmp_path: Path) -> None:
    crash_start(start, 1)
    book = tmp_path / "data" / FILE_NAME
    assert stat.S_IMODE(book.stat().st_mode) == 0o600
    assert [path.name for path in book.parent.iterdir()] == [FILE_NAME]
    assert len(json.loads(book.read_text())) == 1
