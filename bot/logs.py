"""Logging for a process: off the loop's back, one line a record, no secret and no terminal code in it."""

import copy
import json
import logging
import os
import queue
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener

REDACTED = "[redacted]"
MOST_WAITING = 10_000
LONGEST_MESSAGE = 8_000
LAST_WORDS = 1.0
MOST_ALIKE, WINDOW = 100, 10.0
MOST_PLACES = 1_000
NOISY = ("aiohttp.access", "asyncio", "httpcore", "httpcore2", "httpx", "httpx2", "openai")
TALKATIVE = ("discord", "oauthlib", "tweepy")  # they log tokens, keys and signatures: not even at DEBUG
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_TOKEN = re.compile(r"(?<=[?&]token=)[^&\s\"']+")  # the page's own, made after logging has begun
_CONTROL = re.compile(  # what nobody sees is among it, but for what emoji and some scripts need
    r"[\x00-\x1f\x7f-\x9f\xad\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    r"\U000e0000-\U000e0fff]"
)


def harmless(text: str, *, keep: str = "") -> str:
    """Give a text as a terminal may show it: no terminal code, nothing unseen, no control but `keep`."""

    def escaped(found: re.Match[str]) -> str:
        sign = found[0]
        return sign if sign in keep else repr(sign)[1:-1]

    return _CONTROL.sub(escaped, _ANSI.sub("", text))


@contextmanager
def logging_to_stderr(
    *, level: str = "INFO", format: str = "text", secrets: Collection[str] = (), fd: int | None = None
) -> Iterator[None]:
    """Log to stderr (or `fd`) as long as the block lasts; at its end what was logged is written.

    `format` is `text` or `json`. Writing happens in a thread of its own: a slow reader costs lines,
    never the loop's time, and how many is told. So is how many warnings from one place in the code are left
    out where there are more than a hundred in ten seconds: nobody fills the disk with them.
    """
    root, chosen = logging.getLogger(), getattr(logging, level.upper())
    waiting: queue.Queue[logging.LogRecord] = queue.Queue(MOST_WAITING)
    sink = _Sink(_stderr() if fd is None else fd)
    sink.setFormatter(_Json() if format == "json" else _Text())
    handler = _Handler(waiting, secrets, has_traces=chosen <= logging.DEBUG)
    listener = _Listener(waiting, sink)
    before = root.level, [(name, logging.getLogger(name).level) for name in (*NOISY, *TALKATIVE)]
    root.setLevel(chosen)
    for name in NOISY:
        logging.getLogger(name).setLevel(max(chosen, logging.WARNING) if chosen > logging.DEBUG else chosen)
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(max(chosen, logging.WARNING))
    root.addHandler(handler)
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        for name, old in before[1]:
            logging.getLogger(name).setLevel(old)
        handler.report_left_out()
        handler.report_dropped()
        listener.stop()


def _stderr() -> int:
    try:
        return sys.__stderr__.fileno() if sys.__stderr__ is not None else -1
    except (OSError, ValueError):
        return -1


class _Handler(QueueHandler):
    """Writes a record's text down at once, cleaned, and queues it; where the queue is full it counts."""

    def __init__(
        self, waiting: "queue.Queue[logging.LogRecord]", secrets: Collection[str], *, has_traces: bool
    ) -> None:
        super().__init__(waiting)
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._has_traces = has_traces
        self._dropped = 0
        self._pace = _Pace()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record, unless there are too many like it: those cost no more than being counted."""
        if self._pace.is_over(record.created):
            self.report_left_out()
        if self._pace.allows(record):
            super().emit(record)

    def report_left_out(self) -> None:
        """Tell how many lines there were too many of, and begin to count anew."""
        for name, count in self._pace.left_out().items():
            self.enqueue(_own_record(f"{count} more lines like the last ones of {name} were left out"))

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Give a copy that holds nothing but cleaned text.

        Below ERROR a traceback is for DEBUG alone: a plugin's failure is one line to an operator.
        """
        record = copy.copy(record)
        record.msg, record.args = harmless(self._redacted(record.getMessage())[:LONGEST_MESSAGE]), None
        trace = ""
        if record.exc_info and (self._has_traces or record.levelno >= logging.ERROR):
            trace = logging.Formatter().formatException(record.exc_info)
        record.exc_text = harmless(self._redacted(trace), keep="\n")
        record.exc_info = record.stack_info = None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a record, or drop it: whoever logs never waits."""
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self._dropped += 1
        else:
            self.report_dropped()

    def report_dropped(self) -> None:
        """Tell how many lines were dropped, as soon as there is room for saying so."""
        if not self._dropped:
            return
        told = _own_record(f"{self._dropped} log lines were dropped: nobody read them fast enough")
        with suppress(queue.Full):
            self.queue.put_nowait(told)
            self._dropped = 0

    def _redacted(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return _TOKEN.sub(REDACTED, text)


class _Pace:
    """Counts warnings by the place in the code that they come from, in windows of ten seconds."""

    def __init__(self) -> None:
        self._since = 0.0
        self._counts: Counter[tuple[str, str, int]] = Counter()

    def is_over(self, now: float) -> bool:
        """Tell whether a window has ended, and begin the next."""
        if 0 <= now - self._since < WINDOW and len(self._counts) < MOST_PLACES:  # clocks may be set back
            return False
        self._since = now
        return True

    def allows(self, record: logging.LogRecord) -> bool:
        """Count a record; tell whether it is to be logged."""
        if record.levelno < logging.WARNING:
            return True
        place = record.name, record.pathname, record.lineno
        self._counts[place] += 1
        return self._counts[place] <= MOST_ALIKE

    def left_out(self) -> dict[str, int]:
        """Give how many of each logger's were left out, and count anew."""
        found: Counter[str] = Counter()
        counts, self._counts = self._counts, Counter()
        for (name, _, _), count in list(counts.items()):  # other threads may be counting just now
            found[name] += max(0, count - MOST_ALIKE)
        return {name: count for name, count in found.items() if count}


def _own_record(text: str) -> logging.LogRecord:
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)


class _Listener(QueueListener):
    """Writes what is queued; does not wait for ever on a reader that has stopped reading."""

    def __init__(self, waiting: "queue.Queue[logging.LogRecord]", sink: "_Sink") -> None:
        super().__init__(waiting, sink)
        self._sink = sink

    def stop(self) -> None:
        """Write what is left, for at most a moment."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with suppress(queue.Full):
            self.queue.put(self._sentinel, timeout=LAST_WORDS)  # type: ignore[attr-defined]  # its own way to end
            thread.join(LAST_WORDS)
        self._sink.give_up()


class _Sink(logging.Handler):
    """Writes to a file descriptor, past Python's own buffers: a reader that blocks cannot block the exit."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def createLock(self) -> None:
        """Do without a lock: one thread writes, and at the exit nobody must wait for it."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Write one record; the library's own way takes the lock, from Python 3.13 on without asking."""
        self.emit(record)
        return True

    def give_up(self) -> None:
        """Write nothing more, whatever still waits."""
        self._fd = -1

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a full disk or a closed reader costs the line, nothing else."""
        data = (self.format(record) + "\n").encode("utf-8", "replace")
        with suppress(OSError):
            while data:
                data = data[os.write(self._fd, data) :]


class _Text(logging.Formatter):
    """For people: moment, level, who, what; a traceback is indented, so that no text can fake a line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).strftime("%Y-%m-%d %H:%M:%S")
        trace = "".join(f"\n    {line}" for line in (record.exc_text or "").splitlines())
        return f"{moment} {record.levelname:<7} {record.name}: {record.getMessage()}{trace}"


class _Json(logging.Formatter):
    """For machines: one object a line."""

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
