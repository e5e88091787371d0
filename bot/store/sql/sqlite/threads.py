"""Threads that run database jobs for the event loop.

The writing thread: jobs that wait during a commit share the next one.
"""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import Connection

from bot.errors import BotError, StoreUnavailable
from bot.store.sql.core.base import SharedWork, Synchronous, Work
from bot.store.sql.sqlite.connection import (
    begin,
    checkpoint,
    commit,
    driver_of,
    invalidate_caches,
    roll_back,
    set_synchronous,
)
from bot.store.sql.sqlite.health import DATABASE_ERRORS, FileMonitor, is_full

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_BATCH = 64


@dataclass(slots=True, eq=False)
class Job:
    """Work for the connection, and the future of its caller."""

    work: Work[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    is_durable: bool = True
    result: Any = None
    error: BaseException | None = None


class Worker(ABC):
    """A thread that opens, uses and closes its own connection.

    It is started once; `run` may be called from any event loop.
    """

    def __init__(
        self,
        name: str,
        open_connection: Callable[[], Connection],
        close_connection: Callable[[Connection], None] = Connection.close,
        *,
        max_batch: int,
    ) -> None:
        self._open_connection = open_connection
        self._context = copy_context()  # whose listener hears of the progress of opening
        self._close_connection = close_connection
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._ready: Future[None] = Future()
        self._stopped: Future[None] = Future()
        self._is_closed = False
        self._is_stopping = False
        self._max_batch = max_batch
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    async def start(self) -> None:
        """Start the thread, once, and wait for its connection; raise the error of opening it."""
        if self._thread.ident is None:
            self._thread.start()
        await asyncio.shield(asyncio.wrap_future(self._ready))

    async def stop(self) -> None:
        """Finish queued jobs, close the connection and end the thread; refuse new jobs."""
        self._is_closed = True
        if self._thread.ident is None:
            return
        self._queue.put(None)
        await asyncio.shield(asyncio.wrap_future(self._stopped))
        self._thread.join()  # it has finished: this does not block

    def run(self, work: Work[T], *, durable: bool = True) -> asyncio.Future[T]:
        """Run work in the thread; return the future of its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._is_closed:
            raise RuntimeError("the database is closed")
        self._queue.put(Job(work, loop, future, durable))
        return future

    @abstractmethod
    def _serve(self, connection: Connection, batch: list[Job]) -> None:
        """Run these jobs, and store each job's result or error."""

    def _on_idle(self, connection: Connection, *, is_quiet: bool) -> float | None:
        """Do background work; return the idle seconds until the next call, None for never."""
        return None

    def _main(self) -> None:
        try:
            connection = self._context.run(self._open_connection)
        except BaseException as error:  # passed to the caller of `start`
            self._is_closed = True
            self._ready.set_exception(error)
            self._stopped.set_result(None)
            return
        self._ready.set_result(None)
        try:
            while batch := self._next_batch(connection):
                self._run_batch(connection, batch)
        finally:
            self._is_closed = True
            self._end(connection)

    def _end(self, connection: Connection) -> None:
        try:
            self._close_connection(connection)
        except (BotError, OSError, *DATABASE_ERRORS) as error:  # commits are not affected
            logger.warning("the database was not closed properly: %s", error)
        finally:
            self._stopped.set_result(None)

    def _run_batch(self, connection: Connection, batch: list[Job]) -> None:
        try:
            self._serve(connection, batch)
        except BaseException as error:  # the callers get the error, and the thread continues
            logger.exception("a batch of %d database jobs failed", len(batch))
            for job in batch:
                job.error = job.error or error
        _deliver_results(batch)

    def _next_batch(self, connection: Connection) -> list[Job]:
        """Return the queued jobs, at most `_max_batch`; an empty list once the thread is to stop."""
        if self._is_stopping:
            return []
        job = self._wait_for_job(connection)
        batch: list[Job] = []
        while job is not None:
            batch.append(job)
            if len(batch) == self._max_batch:
                return batch
            try:
                job = self._queue.get_nowait()
            except Empty:
                return batch
        self._is_stopping = True
        return batch

    def _wait_for_job(self, connection: Connection) -> Job | None:
        is_quiet = False
        while True:
            try:
                return self._queue.get_nowait()
            except Empty:
                timeout = self._on_idle(connection, is_quiet=is_quiet)
            try:
                return self._queue.get(timeout=timeout)
            except Empty:
                is_quiet = True


def _deliver_results(batch: Sequence[Job]) -> None:
    """Resolve the futures of jobs with one call per event loop."""
    loops: defaultdict[asyncio.AbstractEventLoop, list[Job]] = defaultdict(list)
    for job in batch:
        loops[job.loop].append(job)
    for loop, jobs in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, jobs)
        except RuntimeError:
            logger.debug("%d database jobs ended after their event loop", len(jobs))


def _resolve(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue  # the caller was cancelled
        if isinstance(job.error, StopIteration):  # futures do not accept it
            job.future.set_exception(RuntimeError(f"a database job raised {job.error!r}"))
        elif job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


class Reader(Worker):
    """Runs read-only jobs; each sees what was committed before it was queued."""

    def __init__(
        self, name: str, open_connection: Callable[[], Connection], explain: Callable[[BaseException], BaseException]
    ) -> None:
        super().__init__(name, open_connection, max_batch=MAX_BATCH)
        self._explain = explain

    def _serve(self, connection: Connection, batch: list[Job]) -> None:
        begin(connection)  # takes no lock yet: the first query does
        try:
            for job in batch:
                self._serve_job(connection, job)
        finally:
            roll_back(connection)

    def _serve_job(self, connection: Connection, job: Job) -> None:
        try:
            job.result = job.work(connection)
        except BaseException as error:  # passed to the caller; other jobs are not affected
            job.error = self._explain(error)


def _run_jobs(connection: Connection, batch: Sequence[Job]) -> None:
    """Run jobs in their order, but each shared work once, for all its items, where its first one comes."""
    shared: defaultdict[object, list[tuple[Job, Any]]] = defaultdict(list)
    for job in batch:
        if isinstance(job.work, SharedWork):
            shared[job.work.run].append((job, job.work.item))
    for job in batch:
        if not isinstance(job.work, SharedWork):
            job.result = job.work(connection)
        elif submitted := shared.pop(job.work.run, None):
            results = job.work.run(connection, [item for _, item in submitted])
            for (sharing, _), result in zip(submitted, results, strict=True):
                sharing.result = result


MAX_WRITES = 512
QUIET_SECONDS = 0.5
MIN_CHECKPOINT_CHANGES = 2_000
MAX_CHANGES = 50_000


class Writer(Worker):
    """Runs jobs in shared transactions, where a failure undoes only its own job, and checkpoints when it is idle.

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
        super().__init__("greenroom-sql-writer", open_connection, close_connection, max_batch=MAX_WRITES)
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
            _run_jobs(connection, batch)
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
