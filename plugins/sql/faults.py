"""What the driver reports, in words for people: which file, and what to do."""

import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from bot import BotError, ConfigError, StoreRefused, StoreUnavailable

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
