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

LONGEST_LINE = 1024 * 1024


class PipedLines:
    """Reads lines from a file descriptor; of a longer one the first mebibyte is kept.

    What is not UTF-8 is replaced, never refused. Without a descriptor there is nothing to read.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._rest = b""

    def __call__(self) -> str | None:
        """Wait for the next line; None at the end."""
        line = bytearray()
        has_ended = False
        while not has_ended:
            if not self._rest and not self._fill():
                return _text(line) if line else None
            piece, newline, self._rest = self._rest.partition(b"\n")
            line += piece[: LONGEST_LINE - len(line)]
            has_ended = bool(newline)
        return _text(line)

    def _fill(self) -> bool:
        if self._fd is not None:
            self._rest = read_chunk(self._fd)
        return bool(self._rest)


class TypedLines:
    """Asks a person at a terminal, with a prompt and, where there is readline, a history of this talk."""

    def __init__(self, prompt: str) -> None:
        self.prompt = prompt
        self.is_waiting = False
        self._typed: Callable[[], str] = lambda: ""
        self._terminal = _terminal_state()
        with suppress(ImportError):  # it steers the terminal as soon as it is imported: only here
            self._typed = importlib.import_module("readline").get_line_buffer
        with suppress(AttributeError, ValueError):
            sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]  # a real stdin has it

    def __call__(self) -> str | None:
        """Wait for the next line; None where the person ends the talk (Ctrl-D)."""
        self.is_waiting = True
        try:
            return input(self.prompt)
        except EOFError:
            return None
        finally:
            self.is_waiting = False

    def again(self) -> str:
        """Give what stood in the line that something else has just overwritten."""
        return f"{self.prompt}{self._typed()}"

    def restore(self) -> None:
        """Give the terminal back as it was: a prompt may have been interrupted."""
        self._terminal()


def _text(line: bytearray) -> str:
    return line.decode("utf-8", "replace").strip("\r\n\ufeff")


def _terminal_state() -> Callable[[], None]:
    """Remember how the terminal is set, for setting it so again."""
    try:
        termios = importlib.import_module("termios")
    except ImportError:  # Windows
        return lambda: None
    try:
        fd = sys.stdin.fileno()
        state = termios.tcgetattr(fd)
    except (termios.error, OSError, ValueError):
        return lambda: None

    def restore() -> None:
        with suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSANOW, state)

    return restore


T = TypeVar("T")
CHUNK = 65536


async def apart(call: Callable[[], T]) -> T:
    """Await a blocking call in a daemon thread.

    Unlike `asyncio.to_thread`, nobody waits for that thread at the exit: a read from a terminal
    ends when somebody types, which may be never.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # without an error it is the call's own

    def work() -> None:
        result: T | None = None
        fault: BaseException | None = None
        try:
            result = call()
        except (Exception, SystemExit) as error:  # whatever it is belongs to whoever awaits the call
            fault = error
        with suppress(RuntimeError):  # the loop has ended meanwhile: nobody waits any more
            loop.call_soon_threadsafe(settle, result, fault)

    threading.Thread(target=work, name="console", daemon=True).start()
    return await future


def read_chunk(fd: int) -> bytes:
    """Read what there is, waiting for something; empty at the end. Past Python's buffers and their locks."""
    while True:
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:  # whoever started us left it non-blocking
            select.select([fd], [], [])


def write_all(fd: int, data: bytes) -> None:
    """Write everything, waiting where a reader is slow; raises OSError where there is no reader."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            select.select([], [fd], [])
