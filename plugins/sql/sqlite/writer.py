"""The one thread that writes: whoever waits while a commit runs shares the next one."""

import logging
from collections.abc import Callable

from sqlalchemy import Connection

from plugins.sql.core.recent_cache import told_by
from plugins.sql.core.row_cache import forget
from plugins.sql.sqlite.connection import (
    Synchronous,
    begin,
    checkpoint,
    commit,
    driver,
    roll_back,
    set_synchronous,
)
from plugins.sql.sqlite.health import Watch, is_full
from plugins.sql.sqlite.threads import Job, Worker

logger = logging.getLogger(__name__)

MOST_JOBS = 512
QUIET = 0.5
CHANGES_A_CHECKPOINT = 2_000
MOST_CHANGES = 50_000


class Writer(Worker):
    """Runs jobs inside shared transactions, and checkpoints when nobody waits.

    `watch` turns a driver's error into one for people, and tells when writing is of no use. `note_log` is
    told when the log begins to hold what the file does not, and when no more.
    """

    def __init__(
        self,
        open_connection: Callable[[], Connection],
        close_connection: Callable[[Connection], None],
        watch: Watch,
        note_log: Callable[..., None],
        synchronous: Synchronous,
    ) -> None:
        super().__init__("greenroom-sql-writer", most=MOST_JOBS)
        self._open_connection = open_connection
        self._close_connection = close_connection
        self._watch = watch
        self._note_log = note_log
        self._level = self._synchronous = synchronous
        self._checkpointed = 0
        self._is_log_needed = False
        self._is_log_stuck = False
        self.commits = 0

    def _open(self) -> Connection:
        return self._open_connection()

    def _close(self, connection: Connection) -> None:
        self._close_connection(connection)

    def _serve(self, connection: Connection, batch: list[Job]) -> None:
        try:
            self._watch.check()
            self._set_level(connection, batch)
            begin(connection, to_write=True)
        except Exception as error:  # the file is locked or gone: nobody need try again just now
            self._fail(batch, error)
            return
        try:
            for job in batch:
                job.result = job.work(connection)
            self._commit(connection)
        except BaseException as error:  # one job's fault is not the others': see whose it is
            roll_back(connection)
            if len(batch) == 1:
                self._fail(batch, error)
            else:
                self._replay(connection, batch)
        if driver(connection).total_changes - self._checkpointed > MOST_CHANGES:
            self._checkpoint(connection)

    def _set_level(self, connection: Connection, batch: list[Job]) -> None:
        """Spare the disk where nothing of a batch has to outlive a power cut by itself."""
        level = self._synchronous if any(job.is_lasting for job in batch) else Synchronous.NORMAL
        if level is not self._level:
            set_synchronous(connection, level)
            self._level = level

    def _commit(self, connection: Connection) -> None:
        if not self._is_log_needed and driver(connection).total_changes > self._checkpointed:
            self._is_log_needed = True
            self._note_log(is_needed=True)
        commit(connection)
        self.commits += 1

    def _fail(self, batch: list[Job], error: BaseException) -> None:
        explained = self._watch.explain(error)
        for job in batch:
            job.error = job.error or explained

    def _replay(self, connection: Connection, batch: list[Job]) -> None:
        """Do a batch again with a savepoint a job, so that only those fail that cannot be done."""
        try:
            begin(connection, to_write=True)
            for job in batch:
                self._replay_one(connection, job)
            self._commit(connection)
        except BaseException as error:  # the transaction itself: none of them is kept
            roll_back(connection)
            self._fail(batch, error)

    def _replay_one(self, connection: Connection, job: Job) -> None:
        driver(connection).execute("SAVEPOINT job")
        try:
            job.result = job.work(connection)
        except BaseException as error:  # noted for whoever waits; the savepoint protects the others
            if not driver(connection).in_transaction:
                raise  # a full disk and the like end the whole transaction
            job.error = self._watch.explain(error)
            driver(connection).execute("ROLLBACK TO job")
            forget(connection)
            if recents := told_by(connection):
                recents.doubt()
        driver(connection).execute("RELEASE job")

    def _idle(self, connection: Connection, *, is_quiet: bool) -> float | None:
        if self._watch.is_in_trouble:
            return self._watch.look(connection)
        changes = driver(connection).total_changes - self._checkpointed
        if not changes:
            return None
        if changes < CHANGES_A_CHECKPOINT and not is_quiet:
            return QUIET
        self._checkpoint(connection)
        return None

    def _checkpoint(self, connection: Connection) -> None:
        """Write the log back; where the disk has no room for it, what is committed stays in the log."""
        self._checkpointed = driver(connection).total_changes
        try:
            if checkpoint(connection):
                self._is_log_needed = False
                self._note_log(is_needed=False)
        except Exception as error:
            if not is_full(error):
                self._watch.explain(error)
            elif not self._is_log_stuck:
                logger.warning("the database's log cannot be written back: free some space on its disk")
            self._is_log_stuck = True
        else:
            self._is_log_stuck = False
