"""What keeps the writer from writing: noticed by its errors, and looked at again until it is over."""

import logging
import time
from pathlib import Path

from sqlalchemy import Connection

from bot import Health, StoreUnavailable
from plugins.sql import sqlite
from plugins.sql.faults import DAMAGED, explained, gone

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
