"""Signals; tasks and threads left at exit."""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from bot.cli.process.exit_codes import Exit
from bot.concurrency.isolation import let_go
from bot.text import shorten

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
Receive = Callable[[int, FrameType | None], None]


@dataclass(slots=True)
class Stop:
    """Whether the process was asked to end: by which signal, and when by the monotonic clock."""

    by: signal.Signals | None = None
    at: float = 0.0

    @property
    def code(self) -> int:
        """The exit code that goes with it: 130 for Ctrl-C, 0 for a service that was told to stop."""
        return Exit.INTERRUPTED if self.by is signal.SIGINT else Exit.OK


@contextmanager
def stoppable(notice: Callable[[], None]) -> Iterator[Stop]:
    """Have the first signal cancel the block, after `notice`, and the second end the process.

    The block's clean-up runs before this returns; a cancellation by a signal goes no further.
    """
    loop, task, stop = asyncio.get_running_loop(), asyncio.current_task(), Stop()

    def receive(number: int, frame: FrameType | None) -> None:
        if stop.by is not None:
            os._exit(Exit.INTERRUPTED)
        stop.by, stop.at = signal.Signals(number), time.monotonic()
        loop.call_soon_threadsafe(begin)

    def begin() -> None:
        notice()
        if task is not None:
            task.cancel()

    # Not the loop's own way to hear signals: where something blocks the loop, they must be heard too.
    with _handled(receive):
        try:
            yield stop
        except asyncio.CancelledError:
            if stop.by is None:
                raise
            if task is not None:
                task.uncancel()


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Have any signal end the process: nothing is under way yet, or nothing any more."""

    def leave(number: int, frame: FrameType | None) -> None:
        os._exit(Stop(signal.Signals(number)).code)

    with _handled(leave):
        yield


@contextmanager
def _handled(receive: Receive) -> Iterator[None]:
    before = {}
    for number in set(SIGNALS):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, and a shell's background job, mean it
            with suppress(ValueError):  # not in a side thread
                before[number] = signal.signal(number, receive)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def aside(text: str) -> None:
    """Say something to the operator that is not the command's result."""
    with suppress(OSError):  # nobody reads it
        print(text, file=sys.stderr, flush=True)


GRACE = 0.2
MOST_NAMED = 400


@asynccontextmanager
async def swept() -> AsyncIterator[None]:
    """At the end of the block stop the tasks beside this one, and name what holds up the process's end."""
    try:
        yield
    finally:
        await _stop_tasks(asyncio.all_tasks() - {asyncio.current_task()})
        if threads := [one.name for one in threading.enumerate() if _holds_up(one)]:
            logger.warning("%d threads are left at work, and the end waits: %s", len(threads), _list(threads))


async def _stop_tasks(tasks: Collection[asyncio.Task[Any] | None]) -> None:
    late = {_named(task): task for task in tasks if task is not None}
    if late:
        logger.warning("%d tasks were left at work and are stopped: %s", len(late), _list(late))
    for task in late.values():
        task.cancel()
    await asyncio.gather(*(let_go(task, what=name, grace=GRACE) for name, task in late.items()))


def _named(task: asyncio.Task[Any]) -> str:
    coroutine = task.get_coro()
    code = getattr(coroutine, "cr_code", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{getattr(coroutine, '__qualname__', 'something')}{place} in {task.get_name()}"


def _holds_up(thread: threading.Thread) -> bool:
    """Tell whether the process lives as long as a thread; asyncio sees to those of its own."""
    is_asyncios = thread.name.startswith("asyncio_")
    return not (thread.daemon or is_asyncios or thread is threading.main_thread())


def _list(names: Iterable[str]) -> str:
    return shorten(", ".join(sorted(names)), MOST_NAMED)
