"""One process a file: a lock that the operating system takes back when its holder dies."""

import os
import sys
from pathlib import Path

from bot import ConfigError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


class FileLock:
    """Holds `<file>.lock`; whoever else wants it is told who has it.

    The database's own file is not opened for this: closing any handle of it would drop the locks that
    SQLite holds there (POSIX locks belong to the process, not to the handle).
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(f"{database.name}.lock")
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock; raises ConfigError where another process has it."""
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(
                f"{self._path} cannot be made: {error.strerror}; see to its directory"
            ) from None
        try:
            _lock(handle)
        except OSError:
            holder = os.read(handle, 32).decode("ascii", "replace").strip()
            os.close(handle)
            raise ConfigError(
                f"{self._database} is in use by another Greenroom process"
                f"{f' ({holder})' if holder else ''}: stop that one, or give this one its own BOT_DATA_DIR "
                "or DATABASE_URL"
            ) from None
        os.truncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, f"process {os.getpid()}\n".encode("ascii"))
        self._handle = handle

    def release(self) -> None:
        """Give the lock back; the file stays, because removing it would race with the next holder."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        os.lseek(handle, 1024, os.SEEK_SET)  # a byte that nobody reads: Windows keeps readers off locked ones
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
