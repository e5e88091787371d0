"""Threads that run database jobs for the event loop."""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import Connection

from bot import BotError
from plugins.sql.core.base import Work
from plugins.sql.sqlite.connection import begin, roll_back
from plugins.sql.sqlite.health import DATABASE_ERRORS

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

    async def run(self, work: Work[T], *, durable: bool = True) -> T:
        """Run work in the thread; return its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._is_closed:
            raise RuntimeError("the database is closed")
        self._queue.put(Job(work, loop, future, durable))
        return await future

    @abstractmethod
    def _serve(self, connection: Connection, batch: list[Job]) -> None:
        """Run these jobs, and store each job's result or error."""

    def _on_idle(self, connection: Connection, *, is_quiet: bool) -> float | None:
        """Do background work; return the idle seconds until the next call, None for never."""
        return None

    def _main(self) -> None:
        try:
            connection = self._open_connection()
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
