"""Blocking reads and writes, kept off the loop without ever holding up the end of the process."""

import asyncio
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

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
