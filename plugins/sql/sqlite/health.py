"""Driver errors → causes and remedies."""

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from bot import BotError, ConfigError
from bot.store import Health, StoreRefused, StoreUnavailable
from plugins.sql.sqlite import connection as sqlite

logger = logging.getLogger(__name__)

LOOK_EVERY = 1.0


class Watch:
    """Tells the health of one file; what a damaged one holds is read on, but nothing is written any more.

    All but `of_reader` is for the thread that writes.
    """

    def __init__(self, path: Path, health: Health) -> None:
        self._path = path
        self._health = health
        self._connection: Connection | None = None
        self._place: tuple[int, int] | None = None
        self._next_look = 0.0

    @property
    def is_in_trouble(self) -> bool:
        """Whether nothing can be kept just now."""
        return self._health.trouble is not None

    def begin(self, connection: Connection) -> None:
        """Watch over the connection that writes from now on."""
        self._connection = connection
        self._place = self._found()

    def check(self) -> None:
        """Raise StoreUnavailable where nothing may be written: the file is damaged, or not where it was."""
        trouble = self._health.trouble
        if trouble is not None and trouble.cause == DAMAGED:
            self._health.check()
        if self._found() != self._place:
            raise gone(self._path)

    def explain(self, error: BaseException) -> BaseException:
        """Put a writer's error into words, and note it where it is the file's fault."""
        found = explained(error, self._path)
        if isinstance(found, StoreUnavailable):
            if not self.is_in_trouble and self._connection is not None:
                sqlite.wait_for_locks(self._connection, 0.0)  # nobody waits for long twice
            self._note(found)
            self._next_look = time.monotonic() + LOOK_EVERY
        return found

    def of_reader(self, error: BaseException) -> BaseException:
        """Put a reader's error into words; a damaged file is one for the writer too."""
        found = explained(error, self._path)
        if isinstance(found, StoreUnavailable) and found.cause == DAMAGED:
            self._note(found)
        return found

    def look(self, connection: Connection) -> float | None:
        """See whether it is over, once a second; tells after how many seconds to look again."""
        if not self.is_in_trouble:
            return None
        if time.monotonic() >= self._next_look:
            try:
                self.check()
                sqlite.try_out(connection)
            except Exception as error:  # it is not over: the next look may find it so
                self.explain(error)
            else:
                sqlite.wait_for_locks(connection, sqlite.PATIENCE)
                self._health.recovers()
        return LOOK_EVERY

    def _note(self, error: StoreUnavailable) -> None:
        trouble = self._health.trouble
        if trouble is None or trouble.cause != DAMAGED:  # from that there is no way back
            self._health.fails(error)

    def _found(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return (found.st_dev, found.st_ino)


LOCKED, FULL, READ_ONLY, DAMAGED, UNREACHABLE = (
    "db_locked",
    "db_full",
    "db_read_only",
    "db_damaged",
    "db_unreachable",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a file, in a word and in a sentence that says what to do."""

    cause: str
    remedy: str


BUSY = Fault(LOCKED, "is locked by another program: close it (a backup, a database browser)")
READONLY = Fault(
    READ_ONLY, "cannot be written: see to its permissions, to those of its directory, and to its disk"
)
BROKEN = Fault(DAMAGED, "is damaged: stop the bot, keep the file, and put a backup in its place")
FAULTS = {
    "SQLITE_BUSY": BUSY,
    "SQLITE_LOCKED": BUSY,
    "SQLITE_FULL": Fault(FULL, "cannot grow: free some space on its disk"),
    "SQLITE_READONLY": READONLY,
    "SQLITE_IOERR": Fault(UNREACHABLE, "cannot be read or written: look at the disk and at the system's log"),
    "SQLITE_CANTOPEN": Fault(
        UNREACHABLE, "cannot be opened: see to its permissions, and to those of its directory"
    ),
    "SQLITE_CORRUPT": BROKEN,
    "SQLITE_NOTADB": Fault(
        DAMAGED, "is no SQLite database: stop the bot, keep the file, and put a backup in its place"
    ),
}
GONE = "is not where it was: put it back, or restart the bot if another one is meant to take its place"


def explained(error: BaseException, path: Path) -> BaseException:
    """Turn a fault of the file into one that says what to do; other errors stay what they are."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    fault = _fault_of(origin)
    if fault is None:
        return error
    if fault.cause == UNREACHABLE and _is_on_read_only_disk(path):
        fault = READONLY
    return StoreUnavailable(f"the database {path} {fault.remedy} ({origin})", cause=fault.cause)


def gone(path: Path) -> StoreUnavailable:
    """Say that a file which is open is not to be found any more."""
    return StoreUnavailable(f"the database {path} {GONE}", cause=UNREACHABLE)


def at_opening(error: Exception, path: Path) -> BotError:
    """Say why a file cannot be opened or closed: ConfigError where waiting alone does not mend it."""
    found = explained(error, path)
    if not isinstance(found, StoreUnavailable):
        return ConfigError(f"the database {path} cannot be used ({error})")
    if found.cause in (LOCKED, FULL):
        return found
    return StoreRefused(str(found)) if found.cause == READ_ONLY else ConfigError(str(found))


def is_full(error: Exception) -> bool:
    """Tell whether it is only room that is wanting."""
    fault = _fault_of(error.orig if isinstance(error, DBAPIError) else error)
    return fault is not None and fault.cause == FULL


def _fault_of(origin: BaseException | None) -> Fault | None:
    name = str(getattr(origin, "sqlite_errorname", ""))
    return next((fault for prefix, fault in FAULTS.items() if name.startswith(prefix)), None)


def _is_on_read_only_disk(path: Path) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except (OSError, AttributeError):  # it is out of reach, or Windows does not know
        return False
