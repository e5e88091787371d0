"""Crash-loop detection: crashed starts are counted, regular ends are not."""

import json
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bot.cli.process.watchdog import FILE_NAME, WINDOW_SECONDS, StartHistory
from bot.errors import ConfigError, TemporaryError
from bot.testing import ManualClock

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
