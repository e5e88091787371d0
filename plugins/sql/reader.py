"""Threads that only read, beside the writer: all who wait share one look at the database."""

from collections.abc import Callable

from sqlalchemy import Connection

from plugins.sql.sqlite import begin, roll_back
from plugins.sql.threads import Job, Worker

MOST_JOBS = 64


class Reader(Worker):
    """Runs jobs that change nothing; each sees what was committed before it was asked for."""

    def __init__(
        self,
        name: str,
        open_connection: Callable[[], Connection],
        explain: Callable[[BaseException], BaseException],
    ) -> None:
        super().__init__(name, most=MOST_JOBS)
        self._open_connection = open_connection
        self._explain = explain

    def _open(self) -> Connection:
        return self._open_connection()

    def _serve(self, connection: Connection, batch: list[Job]) -> None:
        begin(connection)  # takes no lock yet: the first question does
        try:
            for job in batch:
                self._serve_one(connection, job)
        finally:
            roll_back(connection)

    def _serve_one(self, connection: Connection, job: Job) -> None:
        try:
            job.result = job.work(connection)
        except BaseException as error:  # noted for whoever waits; the others have their own answers
            job.error = self._explain(error)
