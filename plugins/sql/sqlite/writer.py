"""The writing thread: jobs that wait during a commit share the next one."""

import logging
from collections.abc import Callable

from sqlalchemy import Connection

from bot.store import StoreUnavailable
from plugins.sql.core.settings import Synchronous
from plugins.sql.sqlite.connection import (
    begin,
    checkpoint,
    commit,
    driver_of,
    invalidate_caches,
    roll_back,
    set_synchronous,
)
from plugins.sql.sqlite.health import DATABASE_ERRORS, FileMonitor, is_full
from plugins.sql.sqlite.threads import Job, Worker

logger = logging.getLogger(__name__)

MAX_BATCH = 512
QUIET_SECONDS = 0.5
MIN_CHECKPOINT_CHANGES = 2_000
MAX_CHANGES = 50_000


class Writer(Worker):
    """Runs jobs in shared transactions, and checkpoints when it is idle.

    `monitor` explains the driver's errors and knows whether writing is possible. `record_log` is called
    when the log begins to have writes that the file does not, and when that ends.
    """

    def __init__(
        self,
        open_connection: Callable[[], Connection],
        close_connection: Callable[[Connection], None],
        monitor: FileMonitor,
        record_log: Callable[..., None],
        synchronous: Synchronous,
    ) -> None:
        super().__init__("greenroom-sql-writer", open_connection, close_connection, max_batch=MAX_BATCH)
        self._monitor = monitor
        self._record_log = record_log
        self._current_level = self._synchronous = synchronous
        self._checkpointed_changes = 0
        self._is_log_needed = False
        self._is_log_stuck = False
        self._must_truncate = False
        self.commit_count = 0

    def request_truncation(self, connection: Connection) -> None:
        """Empty the log after the transaction of this job, or as soon as no other program reads it."""
        self._must_truncate = True

    def _serve(self, connection: Connection, batch: list[Job]) -> None:
        try:
            self._monitor.check()
            self._set_synchronous(connection, batch)
            begin(connection, to_write=True)
        except (StoreUnavailable, *DATABASE_ERRORS) as error:  # locked or missing: retrying now is useless
            self._fail(batch, error)
            return
        was_waiting = self._must_truncate
        try:
            for job in batch:
                job.result = job.work(connection)
            self._commit(connection)
        except BaseException as error:  # one job's failure must not fail the others
            roll_back(connection)
            if len(batch) == 1:
                self._fail(batch, error)
            else:
                self._replay(connection, batch)
        is_requested = self._must_truncate and not was_waiting
        if is_requested or driver_of(connection).total_changes - self._checkpointed_changes > MAX_CHANGES:
            self._checkpoint(connection)

    def _set_synchronous(self, connection: Connection, batch: list[Job]) -> None:
        """Do not wait for the disk if no job of the batch must be durable."""
        level = self._synchronous if any(job.is_durable for job in batch) else Synchronous.NORMAL
        if level is not self._current_level:
            set_synchronous(connection, level)
            self._current_level = level

    def _commit(self, connection: Connection) -> None:
        if not self._is_log_needed and driver_of(connection).total_changes > self._checkpointed_changes:
            self._is_log_needed = True
            self._record_log(is_needed=True)
        commit(connection)
        self.commit_count += 1

    def _fail(self, batch: list[Job], error: BaseException) -> None:
        explained = self._monitor.explain(error)
        for job in batch:
            job.error = job.error or explained

    def _replay(self, connection: Connection, batch: list[Job]) -> None:
        """Repeat a batch with a savepoint for each job, so that only failing jobs fail."""
        try:
            begin(connection, to_write=True)
            for job in batch:
                self._replay_job(connection, job)
            self._commit(connection)
        except BaseException as error:  # the transaction failed: no job is stored
            roll_back(connection)
            self._fail(batch, error)

    def _replay_job(self, connection: Connection, job: Job) -> None:
        driver_of(connection).execute("SAVEPOINT job")
        try:
            job.result = job.work(connection)
        except BaseException as error:  # passed to the caller; the savepoint protects other jobs
            if not driver_of(connection).in_transaction:
                raise  # an error such as a full disk ends the whole transaction
            job.error = self._monitor.explain(error)
            driver_of(connection).execute("ROLLBACK TO job")
            invalidate_caches(connection)
        driver_of(connection).execute("RELEASE job")

    def _on_idle(self, connection: Connection, *, is_quiet: bool) -> float | None:
        if self._monitor.has_problem:
            return self._monitor.recheck(connection)
        changes = driver_of(connection).total_changes - self._checkpointed_changes
        if self._must_truncate and is_quiet:
            self._checkpoint(connection)
        if self._must_truncate:
            return QUIET_SECONDS
        if not changes:
            return None
        if changes < MIN_CHECKPOINT_CHANGES and not is_quiet:
            return QUIET_SECONDS
        self._checkpoint(connection)
        return None

    def _checkpoint(self, connection: Connection) -> None:
        """Write the log back; on a full disk commits stay in the log."""
        self._checkpointed_changes = driver_of(connection).total_changes
        try:
            if checkpoint(connection, truncates=self._must_truncate):
                self._is_log_needed = self._must_truncate = False
                self._record_log(is_needed=False)
        except DATABASE_ERRORS as error:
            if not is_full(error):
                self._monitor.explain(error)
            elif not self._is_log_stuck:
                logger.warning("the database's log cannot be written back: free space on its disk")
            self._is_log_stuck = True
        else:
            self._is_log_stuck = False
