"""Database connections whose n-th call fails."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

UNCOUNTED = "BEGIN"  # it touches no file


@dataclass(slots=True)
class Fault:
    """Fails the `at`-th call after `is_armed`; with `is_late` a commit fails after it was carried out."""

    at: int
    is_late: bool = False
    is_armed: bool = False
    calls: int = 0

    @property
    def is_reached(self) -> bool:
        """Whether the failing call was made."""
        return self.calls >= self.at

    def count_call(self) -> None:
        """Count one call; raise the error of a bad disk if it is the failing one."""
        if self.is_armed:
            self.calls += 1
            if self.calls == self.at:
                raise _error()


def failing(fault: Fault) -> type[sqlite3.Connection]:
    """Return a connection class with this fault."""

    class FailingCursor(sqlite3.Cursor):
        def execute(self, sql: str, *values: Any) -> Self:
            fault.count_call()
            return super().execute(sql, *values)

        def executemany(self, sql: str, rows: Iterable[Any], /) -> Self:
            fault.count_call()
            return super().executemany(sql, rows)

    class FailingConnection(sqlite3.Connection):
        def cursor(self, factory: Any = FailingCursor) -> Any:
            return super().cursor(factory)

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql != UNCOUNTED:
                fault.count_call()
            return super().execute(sql, *values)

        def commit(self) -> None:
            if not fault.is_late:
                fault.count_call()
            super().commit()
            if fault.is_late:
                fault.count_call()

    return FailingConnection


def _error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR_WRITE, "SQLITE_IOERR_WRITE"
    return error
