"""Health of a database file; errors of the driver with their causes and remedies."""

import logging
import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, StatementError

from bot.errors import BotError, ConfigError, StoreInaccessible, StoreUnavailable, UnreadableRow
from bot.store.ledger import StoreHealth
from bot.store.sql.core.mapping import INVALID_JSON
from bot.store.sql.sqlite import connection as sqlite

logger = logging.getLogger(__name__)

DATABASE_ERRORS = (DBAPIError, sqlite3.Error, UnicodeDecodeError)  # of SQLAlchemy, the driver and its texts
MALFORMED_JSON = "malformed JSON"  # what SQLite says of a value that a statement reads
RECHECK_SECONDS = 1.0

LOCKED, FULL, READ_ONLY, DAMAGED, UNREACHABLE = ("db_locked", "db_full", "db_read_only", "db_damaged", "db_unreachable")


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem of a file: its code, and a text that says what to do."""

    cause: str
    remedy: str


BUSY = Fault(LOCKED, "is locked by another program: close it (a backup, a database browser)")
READONLY = Fault(READ_ONLY, "cannot be written: check its permissions, those of its directory, and its disk")
BROKEN = Fault(
    DAMAGED,
    "is damaged: stop the bot, keep the file, and put a backup in its place (`bot db restore FILE`), or copy what can "
    "be read with `bot db check --repair`",
)
FAULTS = {
    "SQLITE_BUSY": BUSY,
    "SQLITE_LOCKED": BUSY,
    "SQLITE_FULL": Fault(FULL, "cannot grow: free some space on its disk"),
    "SQLITE_READONLY": READONLY,
    "SQLITE_IOERR": Fault(UNREACHABLE, "cannot be read or written: check the disk and the system's log"),
    "SQLITE_CANTOPEN": Fault(UNREACHABLE, "cannot be opened: check its permissions and those of its directory"),
    "SQLITE_CORRUPT": BROKEN,
    "SQLITE_NOTADB": Fault(
        DAMAGED, "is no SQLite database: stop the bot, keep the file, and put a backup in its place"
    ),
}
MISSING = "was moved or removed: put it back, or restart the bot if another file is to replace it"


class FileMonitor:
    """Monitors one file. A damaged file can still be read, but nothing more is written.

    All methods but `explain_reader_error` are for the writing thread.
    """

    def __init__(self, path: Path, health: StoreHealth) -> None:
        self._path = path
        self._health = health
        self._connection: Connection | None = None
        self._file_id: tuple[int, int] | None = None
        self._next_recheck_at = 0.0

    @property
    def has_problem(self) -> bool:
        """Whether writes are refused at present."""
        return self._health.problem is not None

    def start(self, connection: Connection) -> None:
        """Start to monitor the file of the writing connection."""
        self._connection = connection
        self._file_id = self._find_file_id()

    def check(self) -> None:
        """Raise StoreUnavailable if nothing may be written: the file is damaged or was moved."""
        problem = self._health.problem
        if problem is not None and problem.cause == DAMAGED:
            self._health.check_available()
        if self._find_file_id() != self._file_id:
            raise missing_file_error(self._path)

    def explain(self, error: BaseException) -> BaseException:
        """Return an explained error of the writer; record it if the file causes it."""
        explained = explain_error(error, self._path)
        if isinstance(explained, StoreUnavailable):
            if not self.has_problem and self._connection is not None:
                sqlite.set_busy_timeout(self._connection, 0.0)  # only the first write waits long
            self._record(explained)
            self._next_recheck_at = time.monotonic() + RECHECK_SECONDS
        return explained

    def explain_reader_error(self, error: BaseException) -> BaseException:
        """Return an explained error of a reader; record it if the file is damaged."""
        explained = explain_error(error, self._path)
        if isinstance(explained, StoreUnavailable) and explained.cause == DAMAGED:
            self._record(explained)
        return explained

    def recheck(self, connection: Connection) -> float | None:
        """Check once a second whether the problem is gone; return the seconds until the next check."""
        if not self.has_problem:
            return None
        if time.monotonic() >= self._next_recheck_at:
            try:
                self.check()
                sqlite.probe_writes(connection)
            except (StoreUnavailable, *DATABASE_ERRORS) as error:  # the next check may succeed
                self.explain(error)
            else:
                sqlite.set_busy_timeout(connection, sqlite.BUSY_TIMEOUT_SECONDS)
                self._health.recover()
        return RECHECK_SECONDS

    def _record(self, error: StoreUnavailable) -> None:
        problem = self._health.problem
        if problem is None or problem.cause != DAMAGED:  # damage is permanent
            self._health.fail(error)

    def _find_file_id(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return (status.st_dev, status.st_ino)


def explain_error(error: BaseException, path: Path) -> BaseException:
    """Return a problem of the file as StoreUnavailable with a remedy; return other errors as the driver raised them."""
    origin = error.orig if isinstance(error, StatementError) and error.orig is not None else error
    if str(origin) == MALFORMED_JSON:
        return UnreadableRow(INVALID_JSON)
    fault = _fault_of(origin)
    if fault is None:
        return origin
    if fault.cause == UNREACHABLE and _is_on_read_only_disk(path):
        fault = READONLY
    return StoreUnavailable(f"the database {path} {fault.remedy} ({origin})", cause=fault.cause)


def missing_file_error(path: Path) -> StoreUnavailable:
    """Return the error for an open file that is missing at its path."""
    return StoreUnavailable(f"the database {path} {MISSING}", cause=UNREACHABLE)


def opening_error(error: Exception, path: Path) -> BotError:
    """Return why a file cannot be opened or closed: ConfigError if waiting does not help."""
    explained = explain_error(error, path)
    if not isinstance(explained, StoreUnavailable):
        return ConfigError(f"the database {path} cannot be used ({error})")
    if explained.cause in (LOCKED, FULL):
        return explained
    return StoreInaccessible(str(explained)) if explained.cause == READ_ONLY else ConfigError(str(explained))


def is_full(error: Exception) -> bool:
    """Return whether the error is a full disk."""
    fault = _fault_of(error.orig if isinstance(error, DBAPIError) else error)
    return fault is not None and fault.cause == FULL


def _fault_of(origin: BaseException | None) -> Fault | None:
    name = str(getattr(origin, "sqlite_errorname", ""))
    return next((fault for prefix, fault in FAULTS.items() if name.startswith(prefix)), None)


def _is_on_read_only_disk(path: Path) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except (OSError, AttributeError):  # it is unreachable, or this is Windows
        return False
