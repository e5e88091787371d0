"""Database connections whose n-th call fails."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

HARMLESS = "BEGIN"  # it touches no file


@dataclass(slots=True)
class Fault:
    """Fails the `at`-th call after `is_armed`; with `is_late` a commit fails after it was carried out."""

    at: int
    is_late: bool = False
    is_armed: bool = False
    calls: int = 0

    @property
    def has_come(self) -> bool:
        """Whether it has happened."""
        return self.calls >= self.at

    def passes(self) -> None:
        """Count one call; the one that is to fail raises what a bad disk does."""
        if self.is_armed:
            self.calls += 1
            if self.calls == self.at:
                raise _error()


def failing(fault: Fault) -> type[sqlite3.Connection]:
    """Make a class of connections that share a fault."""

    class FailingCursor(sqlite3.Cursor):
        def execute(self, sql: str, *values: Any) -> Self:
            fault.passes()
            return super().execute(sql, *values)

        def executemany(self, sql: str, rows: Iterable[Any], /) -> Self:
            fault.passes()
            return super().executemany(sql, rows)

    class FailingConnection(sqlite3.Connection):
        def cursor(self, factory: Any = FailingCursor) -> Any:
            return super().cursor(factory)

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql != HARMLESS:
                fault.passes()
            return super().execute(sql, *values)

        def commit(self) -> None:
            if not fault.is_late:
                fault.passes()
            super().commit()
            if fault.is_late:
                fault.passes()

    return FailingConnection


def _error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR_WRITE, "SQLITE_IOERR_WRITE"
    return error
