"""Lines from a pipe or a file."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from adapters.console.terminal_io import MAX_LINE_BYTES, PipedInput

Feed = Callable[[bytes], PipedInput]


@pytest.fixture
def feed() -> Iterator[Feed]:
    """Return a function that creates an input with these bytes."""
    opened: list[int] = []
    threads: list[threading.Thread] = []

    def make(data: bytes) -> PipedInput:
        reading, writing = os.pipe()
        opened.append(reading)

        def write() -> None:
            with suppress(BrokenPipeError), open(writing, "wb") as file:
                file.write(data)

        threads.append(threading.Thread(target=write))
        threads[-1].start()
        return PipedInput(reading)

    yield make
    for fd in opened:
        os.close(fd)
    for thread in threads:
        thread.join()


def read_all(lines: PipedInput) -> list[str]:
    return [line for line in iter(lines, None) if line is not None]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\ntwo", ["one", "two"]),
        (b"\n\nx\n", ["", "", "x"]),
        (b"\xef\xbb\xbfbom\n", ["bom"]),
        (b"caf\xc3\xa9 \xff\xfe\n", ["café ��"]),
        (b"nul\x00byte\n", ["nul\x00byte"]),
    ],
)
def test_bytes_become_lines(feed: Feed, data: bytes, expected: list[str]) -> None:
    assert read_all(feed(data)) == expected


def test_a_long_line_is_truncated(feed: Feed) -> None:
    first, second = read_all(feed(b"x" * (3 * MAX_LINE_BYTES) + b"\nnext\n"))
    assert (len(first), second) == (MAX_LINE_BYTES, "next")


def test_a_regular_file_is_read_like_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\nb\n")
    with path.open("rb") as file:
        assert read_all(PipedInput(file.fileno())) == ["a", "b"]


def test_without_stdin_the_input_is_empty() -> None:
    assert PipedInput(None)() is None
