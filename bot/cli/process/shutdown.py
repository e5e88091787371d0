"""Signal handling, and tasks and threads that are left at exit."""

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
from bot.concurrency.isolation import force_stop
from bot.text import shorten

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
SignalHandler = Callable[[int, FrameType | None], None]
CANCEL_GRACE_SECONDS = 0.2
MAX_LIST_LENGTH = 400


@dataclass(slots=True)
class StopRequest:
    """A requested stop: the signal (None before it) and its time by the monotonic clock."""

    received_signal: signal.Signals | None = None
    received_at: float = 0.0

    @property
    def exit_code(self) -> int:
        """The exit code: 130 after SIGINT, else 0."""
        return Exit.INTERRUPTED if self.received_signal is signal.SIGINT else Exit.OK


@contextmanager
def handle_stop_signals(
    on_stop: Callable[[], None], *, interrupt: Callable[[], bool] = lambda: False
) -> Iterator[StopRequest]:
    """Cancel the block at the first signal, after calling `on_stop`; exit the process at the second.

    SIGINT is no such signal where `interrupt`, called in the signal's handler, returns that it stopped something
    smaller. The block's clean-up runs before this returns; the cancellation is not propagated.
    """
    loop, task, stop_request = asyncio.get_running_loop(), asyncio.current_task(), StopRequest()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop_request.received_signal is not None:
            os._exit(Exit.INTERRUPTED)
        if number == signal.SIGINT and interrupt():
            return
        stop_request.received_signal, stop_request.received_at = signal.Signals(number), time.monotonic()
        loop.call_soon_threadsafe(cancel_task)

    def cancel_task() -> None:
        on_stop()
        if task is not None:
            task.cancel()

    # Not loop.add_signal_handler: signals must be handled while the loop is blocked, too.
    with _signal_handlers(on_signal):
        try:
            yield stop_request
        except asyncio.CancelledError:
            if stop_request.received_signal is None:
                raise
            if task is not None:
                task.uncancel()


@contextmanager
def exit_on_signal() -> Iterator[None]:
    """Exit the process at any signal; for the time before and after the event loop runs."""

    def exit_process(number: int, frame: FrameType | None) -> None:
        os._exit(StopRequest(signal.Signals(number)).exit_code)

    with _signal_handlers(exit_process):
        yield


@contextmanager
def _signal_handlers(on_signal: SignalHandler) -> Iterator[None]:
    previous_handlers = {}
    for number in set(SIGNALS):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup and background jobs
            with suppress(ValueError):  # only the main thread may set handlers
                previous_handlers[number] = signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, previous_handler in previous_handlers.items():
            signal.signal(number, previous_handler or signal.SIG_DFL)


def print_notice(text: str) -> None:
    """Print a line to stderr for the operator."""
    with suppress(OSError):  # stderr may be closed
        print(text, file=sys.stderr, flush=True)


@asynccontextmanager
async def stop_remaining_tasks() -> AsyncIterator[None]:
    """At the end of the block cancel all other tasks, and log the threads that delay the exit."""
    try:
        yield
    finally:
        await _stop_tasks(asyncio.all_tasks() - {asyncio.current_task()})
        if threads := [thread.name for thread in threading.enumerate() if _blocks_exit(thread)]:
            logger.warning("%d threads still run and delay the exit: %s", len(threads), _join_names(threads))


async def _stop_tasks(tasks: Collection[asyncio.Task[Any] | None]) -> None:
    tasks_by_name = {_describe_task(task): task for task in tasks if task is not None}
    if tasks_by_name:
        logger.warning("%d tasks still ran and are cancelled: %s", len(tasks_by_name), _join_names(tasks_by_name))
    for task in tasks_by_name.values():
        task.cancel()
    await asyncio.gather(
        *(force_stop(task, label=name, grace=CANCEL_GRACE_SECONDS) for name, task in tasks_by_name.items())
    )


def _describe_task(task: asyncio.Task[Any]) -> str:
    coroutine = task.get_coro()
    code = getattr(coroutine, "cr_code", None)
    location = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{getattr(coroutine, '__qualname__', 'something')}{location} in {task.get_name()}"


def _blocks_exit(thread: threading.Thread) -> bool:
    """Return whether the process waits for a thread at exit; asyncio and AnyIO stop their own threads."""
    is_worker = thread.name.startswith(("asyncio_", "AnyIO worker"))
    return not (thread.daemon or is_worker or thread is threading.main_thread())


def _join_names(names: Iterable[str]) -> str:
    return shorten(", ".join(sorted(names)), MAX_LIST_LENGTH)
