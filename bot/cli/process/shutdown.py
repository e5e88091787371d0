"""Signal handling, and tasks and threads that are left at exit.

Standard output and error of a program that runs for long: a reader that has stopped reading costs only lines.

File-descriptor limit, garbage-collection thresholds.

Exit codes, and the mapping from errors to them.

Watching files: at once by `watchfiles`, or by looking every few seconds.
"""

import asyncio
import gc
import importlib
import io
import logging
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from bot.concurrency.tasks import force_stop
from bot.errors import ConfigError, FetchError, ModelError, ModelRefused, TemporaryError
from bot.text import shorten, strip_terminal_codes, translate_message

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


# New objects before a collection, and collections of one generation before the next older one.
GC_THRESHOLDS = (20_000, 50, 100)


def raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit: each connection needs one, and 1024 are too few."""
    with suppress(ImportError, OSError, ValueError):  # Windows has no such module; some systems refuse
        resource = importlib.import_module("resource")
        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def reduce_gc_frequency() -> None:
    """Freeze existing objects and collect garbage less often.

    Reference counting frees nearly everything that a message allocates; with Python's default thresholds the
    collections take a fifth of the time of answering.
    """
    gc.freeze()  # without a collection before: it takes 70 ms and finds a thousand objects
    gc.set_threshold(*GC_THRESHOLDS)


class Exit(IntEnum):
    """The exit codes; 70, 75 and 78 are those of sysexits.h."""

    OK = 0
    USAGE = 2
    INTERNAL = 70
    TRY_AGAIN = 75
    CONFIG = 78
    INTERRUPTED = 130


class UsageError(Exception):
    """Raised for a wrong command line; the message says how to correct it."""


@contextmanager
def explain_os_error(error_type: type[Exception], what: str) -> Iterator[None]:
    """Raise an error of another type where the system refuses the work of the block: `what` it was, and why."""
    try:
        yield
    except OSError as error:
        raise error_type(f"{what}: {error.strerror or error}") from None


def exit_code(error: Exception) -> Exit:
    """Return the exit code for an error."""
    if isinstance(error, UsageError):
        return Exit.USAGE
    if isinstance(error, ConfigError | ModelRefused):
        return Exit.CONFIG
    if isinstance(error, TemporaryError | ModelError | FetchError):
        return Exit.TRY_AGAIN
    return Exit.INTERNAL


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


def print_line(text: str, *, allowed: str = "") -> None:
    """Print a line to stdout at once, without terminal codes; the control characters in `allowed` stay."""
    with suppress(OSError):  # stdout may be closed
        print(strip_terminal_codes(text, allowed=allowed), flush=True)


def print_notice(text: str, *, allowed: str = "") -> None:
    """Print a line to stderr for the operator, in the language of the terminal, as `print_line` does."""
    with suppress(OSError):
        print(strip_terminal_codes(translate_message(text), allowed=allowed), file=sys.stderr, flush=True)


@asynccontextmanager
async def stop_remaining_tasks() -> AsyncIterator[None]:
    """At the end of the block cancel all other tasks, and log the threads that delay the exit."""
    try:
        yield
    finally:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        tasks = {_describe_task(task): task for task in others if task is not None}
        if tasks:
            logger.warning("%d tasks still ran and are cancelled: %s", len(tasks), _join_names(tasks))
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(
            *(force_stop(task, label=name, grace=CANCEL_GRACE_SECONDS) for name, task in tasks.items())
        )
        # Those that the process waits for at exit; asyncio and AnyIO stop their own.
        threads = [
            thread.name
            for thread in threading.enumerate()
            if not (thread.daemon or thread.name.startswith(("asyncio_", "AnyIO worker")))
            and thread is not threading.main_thread()
        ]
        if threads:
            logger.warning("%d threads still run and delay the exit: %s", len(threads), _join_names(threads))


def _describe_task(task: asyncio.Task[Any]) -> str:
    coroutine = task.get_coro()
    code = getattr(coroutine, "cr_code", None)
    location = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{getattr(coroutine, '__qualname__', 'something')}{location} in {task.get_name()}"


def _join_names(names: Iterable[str]) -> str:
    return shorten(", ".join(sorted(names)), MAX_LIST_LENGTH)


WATCHER = "watchfiles"
POLL_SECONDS = 2.0
Changes = Callable[[Collection[Path]], AsyncGenerator[Collection[Path], None]]
Stamp = tuple[int, ...]


async def wake_on_changes(
    folders: Collection[Path], poll_seconds: float = POLL_SECONDS
) -> AsyncGenerator[Collection[Path], None]:
    """Yield the files that have changed in these folders, those of the same moment together.

    None every `poll_seconds`: of a network drive no change is reported.
    """
    logging.getLogger(WATCHER).setLevel(logging.WARNING)  # it logs each change, also of the log file itself
    watch = partial(
        importlib.import_module(WATCHER).awatch, recursive=False, debounce=300, ignore_permission_denied=True
    )
    try:
        async for changes in watch(*folders, rust_timeout=int(poll_seconds * 1000), yield_on_timeout=True):
            yield {Path(path) for _, path in changes}
    except (OSError, RuntimeError) as error:  # such as too many watches: an operator can do without
        logger.debug("folders are not watched but looked at every %.0f s: %s", poll_seconds, error)
    async with aclosing(wake_regularly(folders, poll_seconds)) as wakes:
        async for paths in wakes:
            yield paths


async def wake_regularly(
    folders: Collection[Path], poll_seconds: float = POLL_SECONDS
) -> AsyncGenerator[Collection[Path], None]:
    """Yield every `poll_seconds`, without `watchfiles`, which costs a program that runs for long 2 MB and a thread."""
    while True:
        await asyncio.sleep(poll_seconds)
        yield ()


async def watch_files(files: Sequence[Path], wake: Changes) -> AsyncGenerator[Path, None]:
    """Yield each of these files when it has changed; a symbolic link also when what it leads to has."""
    stamps = {file: await asyncio.to_thread(read_stamp, file) for file in files}
    folders = {folder for file in files for folder in (file.absolute().parent, file.resolve().parent)}
    async with aclosing(wake(folders)) as wakes:
        async for _ in wakes:
            for file in files:
                stamp = await asyncio.to_thread(read_stamp, file)
                if stamp not in ((), stamps[file]):  # one that is missing is being replaced
                    stamps[file] = stamp
                    yield file


def read_stamp(file: Path) -> Stamp:
    """Return what differs after a change of a file, and follows a symbolic link; empty if there is no such file."""
    with suppress(OSError):
        status = file.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino
    return ()
