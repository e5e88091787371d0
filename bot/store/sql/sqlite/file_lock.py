"""A lock that allows one process per file; the operating system releases it when the process dies."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from bot.errors import StoreInaccessible

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


HOLDER_BYTES = 32
LOG_NEEDED_TEXT = b"the log holds what the file does not\n"


class FileLock:
    """The lock `<file>.lock`; its content names the process that holds it.

    `log_needed_since` is when the previous process began a log that it did not write back, in nanoseconds
    of the file's time; None if there is no such log.

    The database file itself is not opened for this: closing any handle of it would drop the locks that
    SQLite holds there (POSIX locks belong to the process, not to the handle).
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(f"{database.name}.lock")
        self._handle: int | None = None
        self.log_needed_since: int | None = None

    def acquire(self) -> None:
        """Take the lock; raise StoreInaccessible if another process has it."""
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreInaccessible(f"{self._path} cannot be created: {error.strerror}; check its directory") from None
        try:
            _lock_handle(handle)
        except (BlockingIOError, PermissionError):  # Windows raises the second
            holder = os.read(handle, HOLDER_BYTES).decode("ascii", "replace").strip()
            os.close(handle)
            raise StoreInaccessible(
                f"{self._database} is in use by another Greenroom process"
                f"{f' ({holder})' if holder else ''}: stop that one, or give this one its own BOT_DATA_DIR "
                "or DATABASE_URL"
            ) from None
        except OSError as error:
            os.close(handle)
            raise StoreInaccessible(
                f"{self._path} cannot be locked at this location ({error.strerror}): set BOT_DATA_DIR or "
                "DATABASE_URL to a folder on a local disk"
            ) from None
        self._handle = handle
        if os.fstat(handle).st_size > HOLDER_BYTES:
            self.log_needed_since = os.fstat(handle).st_mtime_ns
        self._write(0, f"process {os.getpid()}\n".ljust(HOLDER_BYTES).encode("ascii"))

    def record_log(self, *, is_needed: bool) -> None:
        """Record whether the log has writes that the file does not; the next process needs it then."""
        if self._handle is not None:
            self._write(HOLDER_BYTES, LOG_NEEDED_TEXT if is_needed else b"")

    def _write(self, offset: int, data: bytes) -> None:
        """Write information for the next process; failing to do so does not affect the lock."""
        assert self._handle is not None
        with suppress(OSError):
            if offset:
                os.truncate(self._handle, offset)
            os.lseek(self._handle, offset, os.SEEK_SET)
            os.write(self._handle, data)

    def release(self) -> None:
        """Release the lock; the file stays, because removing it would race with the next holder."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _lock_handle(handle: int) -> None:
    if sys.platform == "win32":
        os.lseek(handle, 1024, os.SEEK_SET)  # a byte that is never read: Windows blocks reads of locked bytes
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
