"""Worker threads."""

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

from plugins.sql.sqlite.connection import begin, roll_back

logger = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[Connection], T]


@dataclass(slots=True, eq=False)
class Job:
    """Something to do with the connection, and who waits for it."""

    work: Work[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    is_durable: bool = True
    result: Any = None
    error: BaseException | None = None


class Worker(ABC):
    """A thread with a connection of its own, which it opens, uses and closes.

    Started once; `run` is for any event loop.
    """

    def __init__(self, name: str, *, max_batch: int) -> None:
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._ready: Future[None] = Future()
        self._stopped: Future[None] = Future()
        self._is_closed = False
        self._is_stopping = False
        self._max_batch = max_batch
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    async def start(self) -> None:
        """Start the thread, once, and wait for its connection; raises what kept it from opening."""
        if self._thread.ident is None:
            self._thread.start()
        await asyncio.shield(asyncio.wrap_future(self._ready))

    async def stop(self) -> None:
        """Do what is queued, close the connection and end the thread; nothing more is taken."""
        self._is_closed = True
        if self._thread.ident is None:
            return
        self._queue.put(None)
        await asyncio.shield(asyncio.wrap_future(self._stopped))
        self._thread.join()  # it has said its last word: there is nothing to wait for

    async def run(self, work: Work[T], *, durable: bool = True) -> T:
        """Have something done, and wait for its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._is_closed:
            raise RuntimeError("the database is closed")
        self._queue.put(Job(work, loop, future, durable))
        return await future

    @abstractmethod
    def _open(self) -> Connection:
        """Open the connection, in the thread."""

    @abstractmethod
    def _serve(self, connection: Connection, batch: list[Job]) -> None:
        """Do these jobs, and note each one's result or error."""

    def _close(self, connection: Connection) -> None:
        """Close the connection, in the thread."""
        connection.close()

    def _on_idle(self, connection: Connection, *, is_quiet: bool) -> float | None:
        """Do what can wait until nobody waits; tells after how many quiet seconds to be called again."""
        return None

    def _main(self) -> None:
        try:
            connection = self._open()
        except BaseException as error:  # whoever starts the thread is told
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
            self._close(connection)
        except Exception as error:  # a full disk, say: what is committed is kept all the same
            logger.warning("the database was not closed properly: %s", error)
        finally:
            self._stopped.set_result(None)

    def _run_batch(self, connection: Connection, batch: list[Job]) -> None:
        try:
            self._serve(connection, batch)
        except BaseException as error:  # those who wait must hear of it, and the thread must live
            logger.exception("a batch of %d database jobs failed", len(batch))
            for job in batch:
                job.error = job.error or error
        _deliver_results(batch)

    def _next_batch(self, connection: Connection) -> list[Job]:
        """Take all that waits, at most so many; nothing more comes once the thread is to stop."""
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
    """Wake those who wait: one call a loop, however many jobs there are."""
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
            continue  # whoever waited has been cancelled
        if isinstance(job.error, StopIteration):  # no future takes that one
            job.future.set_exception(RuntimeError(f"a database job raised {job.error!r}"))
        elif job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


MAX_BATCH = 64


class Reader(Worker):
    """Runs jobs that change nothing; each sees what was committed before it was asked for."""

    def __init__(
        self,
        name: str,
        open_connection: Callable[[], Connection],
        explain: Callable[[BaseException], BaseException],
    ) -> None:
        super().__init__(name, max_batch=MAX_BATCH)
        self._open_connection = open_connection
        self._explain = explain

    def _open(self) -> Connection:
        return self._open_connection()

    def _serve(self, connection: Connection, batch: list[Job]) -> None:
        begin(connection)  # takes no lock yet: the first question does
        try:
            for job in batch:
                self._serve_job(connection, job)
        finally:
            roll_back(connection)

    def _serve_job(self, connection: Connection, job: Job) -> None:
        try:
            job.result = job.work(connection)
        except BaseException as error:  # noted for whoever waits; the others have their own answers
            job.error = self._explain(error)
