"""Standard output and error of a program that runs for long: a reader that has stopped reading costs only lines."""

import io
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO

logger = logging.getLogger(__name__)

MAX_QUEUED_BYTES = 256 * 1024
DRAIN_SECONDS = 0.5


@contextmanager
def never_wait_for_readers(*names: str) -> Iterator[None]:
    """Write `sys.stdout` and `sys.stderr`, or those named, from threads of their own while the block runs.

    What a full pipe, a halted terminal or a closed reader does not take is dropped, counted and logged. At the end
    what is queued is written, for at most half a second; a stream that is still stuck stays replaced, because the
    interpreter flushes it at exit.
    """
    with ExitStack() as stack:
        for name in names or ("stdout", "stderr"):
            stack.enter_context(_replace_stream(name))
        yield


@contextmanager
def _replace_stream(name: str) -> Iterator[None]:
    stream: TextIO | None = getattr(sys, name)
    try:
        descriptor = stream.fileno() if stream is not None else -1
    except (OSError, ValueError):  # replaced by something without a file
        descriptor = -1
    if stream is None or descriptor < 0:
        yield
        return
    stream.flush()
    output = _QueuedOutput(descriptor, name)
    buffer = io.BufferedWriter(output)
    replacement = io.TextIOWrapper(buffer, encoding=stream.encoding, errors=stream.errors, line_buffering=True)
    setattr(sys, name, replacement)
    try:
        yield
    finally:
        replacement.flush()
        if output.drain(DRAIN_SECONDS) and getattr(sys, name) is replacement:
            setattr(sys, name, stream)
        if output.dropped_lines:
            logger.warning("%d lines for %s were dropped: nobody has read them", output.dropped_lines, name)


class _QueuedOutput(io.RawIOBase):
    """A file descriptor that a daemon thread writes; bytes beyond the limit of the queue are dropped."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__()
        self._descriptor, self._name = descriptor, name
        self._pieces: deque[bytes] = deque()
        self._queued_bytes = 0
        self._changed = threading.Condition()
        self.dropped_lines = 0
        threading.Thread(target=self._write_pieces, name=f"greenroom-{name}", daemon=True).start()

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether the file descriptor is a terminal."""
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        """Queue bytes, or drop them where the queue is full; return their number."""
        piece = bytes(data)
        with self._changed:
            if self._queued_bytes + len(piece) > MAX_QUEUED_BYTES:
                is_first = not self.dropped_lines
                self.dropped_lines += piece.count(b"\n")
                if is_first and self.dropped_lines:
                    logger.warning("nobody reads %s: lines for it are dropped", self._name)
            else:
                self._pieces.append(piece)
                self._queued_bytes += len(piece)
                self._changed.notify_all()
        return len(piece)

    def drain(self, timeout: float) -> bool:
        """Wait until everything is written, for at most `timeout` seconds; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queued_bytes, timeout)

    def _write_pieces(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pieces)
                piece = self._pieces.popleft()
            rest = piece
            try:
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError:  # a full disk or a closed reader costs only the line
                pass
            with self._changed:
                self._queued_bytes -= len(piece)
                self.dropped_lines += rest.count(b"\n")
                self._changed.notify_all()


def write_within(descriptor: int, data: bytes, seconds: float) -> None:
    """Write bytes to a file descriptor, from a thread of its own for at most some seconds."""
    output = _QueuedOutput(descriptor, "last words")
    for start in range(0, len(data), MAX_QUEUED_BYTES // 2):
        output.write(data[start : start + MAX_QUEUED_BYTES // 2])
        output.drain(seconds)
