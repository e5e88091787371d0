"""Blocking reads and writes in daemon threads."""

import asyncio
import importlib
import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

MAX_LINE_BYTES = 1024 * 1024
T = TypeVar("T")
CHUNK_BYTES = 65536


class PipedInput:
    """Reads lines from a file descriptor; a line is truncated to one mebibyte.

    Invalid UTF-8 is replaced. Without a descriptor the input is empty.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._rest = b""

    def __call__(self) -> str | None:
        """Wait for the next line; return None at the end."""
        line = bytearray()
        has_ended = False
        while not has_ended:
            if not self._rest and not self._fill():
                return _decode_line(line) if line else None
            piece, newline, self._rest = self._rest.partition(b"\n")
            line += piece[: MAX_LINE_BYTES - len(line)]
            has_ended = bool(newline)
        return _decode_line(line)

    def _fill(self) -> bool:
        if self._descriptor is not None:
            self._rest = read_chunk(self._descriptor)
        return bool(self._rest)


class InteractiveInput:
    """Reads lines from a terminal with a prompt and, if readline is available, a history."""

    def __init__(self, prompt: str) -> None:
        self.prompt = prompt
        self.is_waiting = False
        self._line_buffer: Callable[[], str] = lambda: ""
        self.restore_terminal = _save_terminal_state()  # a prompt may have been interrupted
        with suppress(ImportError):  # the import changes the terminal's state: only here
            self._line_buffer = importlib.import_module("readline").get_line_buffer
        with suppress(AttributeError, ValueError):
            sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]  # a real stdin has it

    def __call__(self) -> str | None:
        """Wait for the next line; return None at the end of the input (Ctrl-D)."""
        self.is_waiting = True
        try:
            return input(self.prompt)
        except EOFError:
            return None
        finally:
            self.is_waiting = False

    def prompt_line(self) -> str:
        """Return the prompt with the text typed so far, to write it again."""
        return f"{self.prompt}{self._line_buffer()}"


def _decode_line(line: bytearray) -> str:
    return line.decode("utf-8", "replace").strip("\r\n\ufeff")


def _save_terminal_state() -> Callable[[], None]:
    """Save the terminal's state; return a function that restores it."""
    try:
        termios = importlib.import_module("termios")
    except ImportError:  # Windows
        return lambda: None
    try:
        descriptor = sys.stdin.fileno()
        state = termios.tcgetattr(descriptor)
    except (termios.error, OSError, ValueError):
        return lambda: None

    def restore() -> None:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, state)

    return restore


async def run_in_daemon_thread(call: Callable[[], T]) -> T:
    """Await a blocking call in a daemon thread.

    Unlike with `asyncio.to_thread`, the exit does not wait for the thread: a read may never end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def set_result(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # without an error it is the call's own

    def run() -> None:
        result: T | None = None
        fault: BaseException | None = None
        try:
            result = call()
        except (Exception, SystemExit) as error:  # any error is raised to the awaiting caller
            fault = error
        with suppress(RuntimeError):  # the loop is closed: the result is not needed
            loop.call_soon_threadsafe(set_result, result, fault)

    threading.Thread(target=run, name="console", daemon=True).start()
    return await future


def read_chunk(descriptor: int) -> bytes:
    """Wait for input and return it; empty at the end. Bypasses Python's buffers and their locks."""
    while True:
        try:
            return os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:  # the parent process made it non-blocking
            select.select([descriptor], [], [])


def write_all(descriptor: int, data: bytes) -> None:
    """Write all data, waiting for a slow reader. Raises OSError if the reader has gone."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
