"""Output of programs that run for long."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from bot.cli.process.shutdown import MAX_QUEUED_BYTES, never_wait_for_readers


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
