"""What the driver reports, in words for people: which file, and what to do."""

from pathlib import Path

from sqlalchemy.exc import DBAPIError

from bot import TryAgain

REMEDIES = {
    "SQLITE_BUSY": "is locked by another program: close it (a backup, a database browser)",
    "SQLITE_LOCKED": "is locked by another program: close it (a backup, a database browser)",
    "SQLITE_FULL": "cannot grow: free some space on its disk",
    "SQLITE_READONLY": "cannot be written: see to its permissions, and to those of its directory",
    "SQLITE_IOERR": "cannot be read or written: look at the disk and at the system's log",
    "SQLITE_CANTOPEN": "cannot be opened: see to its permissions, and to those of its directory",
    "SQLITE_CORRUPT": "is damaged: stop the bot, keep the file, and put a backup in its place",
    "SQLITE_NOTADB": "is no SQLite database: stop the bot, keep the file, and put a backup in its place",
}


def explained(error: Exception, path: Path) -> Exception:
    """Turn a fault of the file into one that says what to do; other errors stay what they are."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    name = str(getattr(origin, "sqlite_errorname", ""))
    remedy = next((text for prefix, text in REMEDIES.items() if name.startswith(prefix)), None)
    if remedy is None:
        return error
    return TryAgain(f"the database {path} {remedy} ({origin})")
