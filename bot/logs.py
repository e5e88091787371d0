"""Logging set-up: a queue and a writer thread, redaction, text or JSON lines, and warnings that are reported once."""

import copy
import errno
import itertools
import json
import logging
import os
import queue
import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path

from bot.concurrency.clock import system_clock
from bot.errors import causes_of
from bot.text import REDACTED, SECRET_PATTERN, redact, strip_terminal_codes

MAX_QUEUED_RECORDS = 10_000
MAX_MESSAGE_LENGTH = 8_000
MAX_BUFFERED_LINES = 2_000
FLUSH_TIMEOUT = 1.0
TEMPLATE = "template"  # the attribute of a queued record that holds the text without its values
ONCE = "once"  # the attribute of a record that is reported once: `extra={"once": True}`
REPORTED_FILE, REPORTED_DAYS = "reported.json", 30
MAX_PER_LOCATION, WINDOW_SECONDS = 100, 10.0
MAX_LOCATIONS = 1_000
SHORTAGE_SECONDS = 60.0  # without a free file descriptor missing, after which the next shortage is logged
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
NOISY_LOGGERS = ("aiohttp.access", "asyncio", "google_genai", "httpcore", "httpcore2", "httpx", "httpx2", "openai")
LEAKY_LOGGERS = ("discord", "oauthlib", "tweepy")  # they log tokens, keys and signatures: not even at DEBUG
_TOKEN = re.compile(r"(?<=[?&]token=)[^&\s\"']+")  # the page's own, made after logging has begun


class LogLine:
    """A line of the log without secrets; `number` counts up from 1. What is not read is not built."""

    __slots__ = ("_record", "number")

    def __init__(self, number: int, record: logging.LogRecord) -> None:
        self.number = number
        self._record = record

    @property
    def at(self) -> datetime:
        """When it was written."""
        return datetime.fromtimestamp(self._record.created, UTC)

    @property
    def level(self) -> str:
        """The name of its level, such as INFO."""
        return self._record.levelname

    @property
    def logger(self) -> str:
        """The name of its logger."""
        return self._record.name

    @property
    def text(self) -> str:
        """What it says."""
        return self._record.getMessage()

    @property
    def error(self) -> str:
        """A traceback, if there is one."""
        return self._record.exc_text or ""

    @property
    def template(self) -> str:
        """The text before the values were filled in, as the code has it."""
        return str(getattr(self._record, TEMPLATE, ""))


class LogBuffer:
    """The last lines of the log, in memory; a subscriber receives each new one, in the thread that logs."""

    def __init__(self, max_lines: int = MAX_BUFFERED_LINES) -> None:
        self._records: deque[tuple[int, logging.LogRecord]] = deque(maxlen=max_lines)
        self._numbers = itertools.count(1)
        self._listeners: tuple[Callable[[LogLine], None], ...] = ()
        self._subscribers: tuple[tuple[str, Callable[[LogLine], None]], ...] = ()

    def add(self, record: logging.LogRecord) -> None:
        """Add a record that holds only redacted text."""
        number = next(self._numbers)
        self._records.append((number, record))
        if self._listeners:
            line = LogLine(number, record)
            for listener in self._listeners:
                listener(line)

    def subscribe(self, listener: Callable[[LogLine], None], *, name: str = "") -> Callable[[], None]:
        """Call a function with each new line; it must return quickly, and log nothing. Return what ends this.

        Of several with one `name` only the first is called, such as one for each agent that exports the log.
        """
        self._set_subscribers((*self._subscribers, (name, listener)))

        def unsubscribe() -> None:
            self._set_subscribers(tuple(item for item in self._subscribers if item[1] is not listener))

        return unsubscribe

    def _set_subscribers(self, subscribers: tuple[tuple[str, Callable[[LogLine], None]], ...]) -> None:
        first = {name: listener for name, listener in reversed(subscribers) if name}
        self._subscribers = subscribers
        self._listeners = tuple(item for name, item in subscribers if not name or first[name] is item)

    def lines(
        self, *, level: str = "DEBUG", text: str = "", before: int | None = None, limit: int = 100
    ) -> list[LogLine]:
        """Return the newest lines of this level and above that contain a text, the newest first."""
        threshold, words = logging.getLevelNamesMapping()[level], text.casefold()
        records = (item for item in reversed(tuple(self._records)) if before is None or item[0] < before)
        chosen = (
            (number, record)
            for number, record in records
            if record.levelno >= threshold
            and (words in record.getMessage().casefold() or words in record.name.casefold())
        )
        return [LogLine(number, record) for number, record in itertools.islice(chosen, limit)]


def find_log_buffer() -> LogBuffer | None:
    """Return the lines that the process has logged lately; None where `configure_logging` is not in effect."""
    handlers = (handler for handler in logging.getLogger().handlers if isinstance(handler, _QueueHandler))
    return next((handler.buffer for handler in handlers), None)


class ReportedWarnings:
    """The warnings that were reported, in a small file in the data folder, so that what stays wrong is reported once.

    One that is not met for 30 days is forgotten: it is reported again. Without a folder they are known until the
    process ends. A file that cannot be read or written costs only that.
    """

    def __init__(self, folder: Path | None = None, clock: Callable[[], datetime] = system_clock) -> None:
        self._path = folder / REPORTED_FILE if folder is not None else None
        self._clock = clock
        self._days = self._read()
        self._changes: dict[str, str] = {}  # since the file was written; the day of one that is forgotten is empty

    def admit(self, text: str, subject: str) -> bool:
        """Return whether a warning about a subject is to be reported: it is not known yet. `save` stores it."""
        key, day = _reported_key(text, subject), self._today()
        known_day = self._days.get(key)
        if known_day != day:
            self._days[key] = self._changes[key] = day
        return known_day is None

    def admit_all(self, texts: Sequence[str], subject: str) -> list[str]:
        """Return which of all warnings about a subject are to be reported; forget those that are over, and save."""
        keys, start = {_reported_key(text, subject) for text in texts}, _reported_key("", subject).partition("-")[0]
        for key in [key for key in self._days if key.startswith(start) and key not in keys]:
            del self._days[key]
            self._changes[key] = ""
        admitted = [text for text in texts if self.admit(text, subject)]
        self.save()
        return admitted

    def save(self) -> None:
        """Write what has changed into the file, which other processes write too."""
        if self._path is None or not self._changes:
            return
        days = {key: day for key, day in (self._read() | self._changes).items() if day}
        self._changes = {}
        temporary_path = self._path.with_name(f"{REPORTED_FILE}.{os.getpid()}")
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(days, file)
            temporary_path.replace(self._path)

    def _read(self) -> dict[str, str]:
        oldest = self._today(REPORTED_DAYS)
        with suppress(OSError, ValueError, AttributeError):
            days = json.loads(self._path.read_bytes()) if self._path is not None else {}
            return {key: str(day) for key, day in days.items() if str(day) >= oldest}
        return {}

    def _today(self, days_ago: int = 0) -> str:
        return (self._clock() - timedelta(days=days_ago)).date().isoformat()


def _reported_key(text: str, subject: str) -> str:
    return "-".join(sha256(part.encode("utf-8", "replace")).hexdigest()[:16] for part in (subject, text))


@contextmanager
def configure_logging(
    *,
    level: str = "INFO",
    format: str = "text",
    secrets: Collection[str] = (),
    fd: int | None = None,
    reported: ReportedWarnings | None = None,
) -> Iterator[None]:
    """Log to stderr (or `fd`) while the block runs; at its end the queued records are written.

    `format` is `text` or `json`. A thread writes: a slow reader costs lines, which are counted, and never
    time of the event loop. Of warnings from one place in the code at most a hundred are written in ten
    seconds; the rest are counted. While no file descriptor is free, one line says so. A warning with
    `extra={"once": True}`, about something that stays as it is until the operator changes it, is written only if it
    is not among those that were `reported`.
    """
    reported = reported or ReportedWarnings()
    root, threshold = logging.getLogger(), getattr(logging, level.upper())
    records: queue.Queue[logging.LogRecord] = queue.Queue(MAX_QUEUED_RECORDS)
    sink = _Sink(_stderr() if fd is None else fd)
    sink.setFormatter(_JsonFormatter() if format == "json" else _TextFormatter())
    handler = _QueueHandler(records, secrets, reported, has_traces=threshold <= logging.DEBUG)
    listener = _QueueListener(records, sink, reported)
    previous = (root.level, [(name, logging.getLogger(name).level) for name in (*NOISY_LOGGERS, *LEAKY_LOGGERS)])
    root.setLevel(threshold)
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING) if threshold > logging.DEBUG else threshold)
    for name in LEAKY_LOGGERS:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))
    root.addHandler(handler)
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(previous[0])
        for name, previous_level in previous[1]:
            logging.getLogger(name).setLevel(previous_level)
        handler.report_skipped()
        handler.report_dropped()
        listener.stop()


def _stderr() -> int:
    try:
        return sys.__stderr__.fileno() if sys.__stderr__ is not None else -1
    except (OSError, ValueError):
        return -1


class _QueueHandler(QueueHandler):
    """Formats and redacts a record at once and queues it; counts it where the queue is full."""

    def __init__(
        self,
        records: "queue.Queue[logging.LogRecord]",
        secrets: Collection[str],
        reported: ReportedWarnings,
        *,
        has_traces: bool,
    ) -> None:
        super().__init__(records)
        self._reported = reported
        self._secrets = frozenset(secrets)
        self._has_traces = has_traces
        self._dropped = 0
        self._limit = _WarningLimit()
        self._last_shortage = -SHORTAGE_SECONDS
        self.buffer = LogBuffer()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record, unless there are too many like it, or it is reported once and was."""
        if getattr(record, ONCE, False) and not self._reported.admit(record.getMessage(), record.name):
            return
        if self._limit.start_new_window(record.created):
            self.report_skipped()
        if record.levelno >= logging.WARNING and not self._has_traces and _lacks_descriptor(record):
            shortage_record = self._build_shortage_record(record.created)
            if shortage_record is None:
                return
            record = shortage_record
        if self._limit.admit(record):
            super().emit(record)

    def _build_shortage_record(self, now: float) -> logging.LogRecord | None:
        """Return one line for all that fails while no file descriptor is free; None after it."""
        is_known = 0 <= now - self._last_shortage < SHORTAGE_SECONDS
        self._last_shortage = now
        text = "no file descriptor is free: connections and files wait until some are closed; allow more (ulimit -n)"
        return None if is_known else _build_record(text, logging.ERROR)

    def report_skipped(self) -> None:
        """Log how many records were skipped, and count from zero again."""
        for name, count in self._limit.take_skipped().items():
            self.enqueue(_build_record(f"{count} more lines like the last ones of {name} were left out"))

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return a copy that holds only redacted text; from WARNING on, without what has the form of a secret either.

        Below ERROR a traceback is written at level DEBUG only: a plugin's failure is one line for an
        operator.
        """
        record = copy.copy(record)
        setattr(record, TEMPLATE, record.msg if isinstance(record.msg, str) else "")
        text = self._redact(record.getMessage(), record.levelno)[:MAX_MESSAGE_LENGTH]
        record.msg, record.args = strip_terminal_codes(text), None
        trace = ""
        if record.exc_info and (self._has_traces or record.levelno >= logging.ERROR):
            trace = logging.Formatter().formatException(record.exc_info)
        record.exc_text = strip_terminal_codes(self._redact(trace, record.levelno), allowed="\n")
        record.exc_info = record.stack_info = None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a record, or drop it: logging never waits."""
        self.buffer.add(record)
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self._dropped += 1
        else:
            self.report_dropped()

    def report_dropped(self) -> None:
        """Log how many lines were dropped, as soon as the queue has room."""
        if not self._dropped:
            return
        notice = _build_record(f"{self._dropped} log lines were dropped: standard error was read too slowly")
        with suppress(queue.Full):
            self.queue.put_nowait(notice)
            self._dropped = 0

    def _redact(self, text: str, level: int) -> str:
        text = _TOKEN.sub(REDACTED, redact(text, self._secrets))
        return SECRET_PATTERN.sub(REDACTED, text) if level >= logging.WARNING else text


class _WarningLimit:
    """Counts warnings by the place in the code that they come from, in windows of ten seconds."""

    def __init__(self) -> None:
        self._since = 0.0
        self._counts: Counter[tuple[str, str, int]] = Counter()

    def start_new_window(self, now: float) -> bool:
        """Return whether a window has ended, and start the next one."""
        if 0 <= now - self._since < WINDOW_SECONDS and len(self._counts) < MAX_LOCATIONS:  # clocks may be set back
            return False
        self._since = now
        return True

    def admit(self, record: logging.LogRecord) -> bool:
        """Count a record; return whether it is to be logged."""
        if record.levelno < logging.WARNING:
            return True
        location = record.name, record.pathname, record.lineno
        self._counts[location] += 1
        return self._counts[location] <= MAX_PER_LOCATION

    def take_skipped(self) -> dict[str, int]:
        """Return how many records of each logger were skipped, and count from zero again."""
        skipped: Counter[str] = Counter()
        counts, self._counts = self._counts, Counter()
        for (name, _, _), count in list(counts.items()):  # other threads may be counting just now
            skipped[name] += max(0, count - MAX_PER_LOCATION)
        return {name: count for name, count in skipped.items() if count}


def _build_record(text: str, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord(__name__, level, __file__, 0, text, None, None)


def _lacks_descriptor(record: logging.LogRecord) -> bool:
    """Return whether a record is about a failure for lack of a file descriptor."""
    causes = causes_of(record.exc_info[1] if record.exc_info else None)
    if any(isinstance(error, OSError) and error.errno in NO_DESCRIPTOR for error in causes):
        return True
    text = record.getMessage()
    # What asyncio logs where a socket that could not accept a connection is closed before it tries again.
    is_retry = record.name == "asyncio" and "_start_serving(" in text
    return is_retry or any(os.strerror(number) in text for number in NO_DESCRIPTOR)


class _QueueListener(QueueListener):
    """Writes queued records; does not wait without limit for a reader that has stopped reading."""

    def __init__(self, records: "queue.Queue[logging.LogRecord]", sink: "_Sink", reported: ReportedWarnings) -> None:
        super().__init__(records, sink)
        self._sink = sink
        self._reported = reported

    def handle(self, record: logging.LogRecord) -> None:
        """Write a record, and that it was reported."""
        super().handle(record)
        if getattr(record, ONCE, False):
            self._reported.save()

    def stop(self) -> None:
        """Write what is queued, for at most a second."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with suppress(queue.Full):
            self.queue.put(self._sentinel, timeout=FLUSH_TIMEOUT)  # type: ignore[attr-defined]  # its own way to end
            thread.join(FLUSH_TIMEOUT)
        self._sink.discard()


class _Sink(logging.Handler):
    """Writes to a file descriptor without Python's buffers: a reader that blocks cannot block the exit."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def createLock(self) -> None:
        """Use no lock: one thread writes, and the exit must not wait for it."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Write one record; the base class takes the lock, from Python 3.13 on without checking it."""
        self.emit(record)
        return True

    def discard(self) -> None:
        """Write nothing more."""
        self._fd = -1

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a full disk or a closed reader costs only the line."""
        data = (self.format(record) + "\n").encode("utf-8", "replace")
        with suppress(OSError):
            while data:
                data = data[os.write(self._fd, data) :]


class _TextFormatter(logging.Formatter):
    """For people: time, level, logger, message; a traceback is indented, so that no text can fake a line."""

    def format(self, record: logging.LogRecord) -> str:
        timestamp = datetime.fromtimestamp(record.created).strftime("%Y-%m-%d %H:%M:%S")
        trace = "".join(f"\n    {line}" for line in (record.exc_text or "").splitlines())
        return f"{timestamp} {record.levelname:<7} {record.name}: {record.getMessage()}{trace}"


class _JsonFormatter(logging.Formatter):
    """For machines: one object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_text:
            line["error"] = record.exc_text
        return json.dumps(line, ensure_ascii=False)
