"""The one thread that writes: whoever waits while a commit runs shares the next one."""

import logging
from collections.abc import Callable

from sqlalchemy import Connection

from plugins.sql.sqlite import begin, checkpoint, commit, driver, roll_back
from plugins.sql.threads import Job, Worker

logger = logging.getLogger(__name__)

MOST_JOBS = 512
QUIET = 0.5
CHANGES_A_CHECKPOINT = 2_000
MOST_CHANGES = 50_000


class Writer(Worker):
    """Runs jobs inside shared transactions, and checkpoints when nobody waits.

    `explain` turns a driver's error into one for people.
    """

    def __init__(
        self,
        open_connection: Callable[[], Connection],
        close_connection: Callable[[Connection], None],
        explain: Callable[[Exception], Exception],
    ) -> None:
        super().__init__("greenroom-sql-writer", most=MOST_JOBS)
        self._open_connection = open_connection
        self._close_connection = close_connection
        self._explain = explain
        self._checkpointed = 0
        self.commits = 0

    def _open(self) -> Connection:
        return self._open_connection()

    def _close(self, connection: Connection) -> None:
        self._close_connection(connection)

    def _serve(self, connection: Connection, batch: list[Job]) -> None:
        try:
            begin(connection, to_write=True)
        except Exception as error:  # the file is locked or gone: nobody need try again just now
            self._fail(batch, error)
            return
        try:
            for job in batch:
                job.result = job.work(connection)
            commit(connection)
            self.commits += 1
        except Exception as error:  # one job's fault is not the others': see whose it is
            roll_back(connection)
            if len(batch) == 1:
                self._fail(batch, error)
            else:
                self._replay(connection, batch)
        if driver(connection).total_changes - self._checkpointed > MOST_CHANGES:
            self._checkpoint(connection)

    def _fail(self, batch: list[Job], error: Exception) -> None:
        explained = self._explain(error)
        for job in batch:
            job.error = job.error or explained

    def _replay(self, connection: Connection, batch: list[Job]) -> None:
        """Do a batch again with a savepoint a job, so that only those fail that cannot be done."""
        try:
            begin(connection, to_write=True)
            for job in batch:
                self._replay_one(connection, job)
            commit(connection)
            self.commits += 1
        except Exception as error:  # the transaction itself: none of them is kept
            roll_back(connection)
            self._fail(batch, error)

    def _replay_one(self, connection: Connection, job: Job) -> None:
        driver(connection).execute("SAVEPOINT job")
        try:
            job.result = job.work(connection)
        except Exception as error:  # noted for whoever waits; the savepoint protects the others
            if not driver(connection).in_transaction:
                raise  # a full disk and the like end the whole transaction
            job.error = self._explain(error)
            driver(connection).execute("ROLLBACK TO job")
        driver(connection).execute("RELEASE job")

    def _idle(self, connection: Connection, *, is_quiet: bool) -> float | None:
        changes = driver(connection).total_changes - self._checkpointed
        if not changes:
            return None
        if changes < CHANGES_A_CHECKPOINT and not is_quiet:
            return QUIET
        self._checkpoint(connection)
        return None

    def _checkpoint(self, connection: Connection) -> None:
        self._checkpointed = driver(connection).total_changes
        try:
            checkpoint(connection)
        except Exception as error:  # what is committed stays in the log, and the next one tries again
            logger.warning("the database's log could not be written back: %s", self._explain(error))
