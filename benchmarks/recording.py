"""What a store says to SQLite, written down so that it can be said again without the store."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

SqlCall = tuple[str, Sequence[Any]]
COMMIT: SqlCall = ("COMMIT", ())
CONTROL = ("BEGIN IMMEDIATE", "COMMIT", "PRAGMA")


def recording_connection(script: list[SqlCall]) -> type[sqlite3.Connection]:
    """Make connections that write down, in this list, what they are told.

    What a plain program would not say is left out: it begins no transaction to read, and leaves it to
    SQLite when the log is written back.
    """

    def record(sql: str, values: Sequence[Any]) -> None:
        if sql != "BEGIN" and not sql.startswith("PRAGMA wal_"):
            script.append((sql, values))

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, parameters: Any = (), /) -> Self:
            record(sql, parameters)
            return super().execute(sql, parameters)

        def executemany(self, sql: str, parameters: Iterable[Any], /) -> Self:
            rows = list(parameters)
            script.extend((sql, row) for row in rows)
            return super().executemany(sql, rows)

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            record(sql, parameters)
            return super().execute(sql, parameters)

        def commit(self) -> None:
            script.append(COMMIT)
            super().commit()

    return Connection


def count_statements(script: Iterable[SqlCall]) -> int:
    """Count what reads or writes rows; transactions and settings are not among it."""
    return sum(not sql.startswith(CONTROL) for sql, _ in script)


def count_transactions(script: Iterable[SqlCall]) -> int:
    """Count what was committed."""
    return sum(call is COMMIT for call in script)


def open_plain_connection(path: Path, synchronous: str) -> sqlite3.Connection:
    """Open a file as a program would that has nothing but the standard library."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = WAL", f"synchronous = {synchronous}", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def replay(connection: sqlite3.Connection, script: Iterable[SqlCall]) -> None:
    """Do what was written down, and take all rows."""
    cursor = connection.cursor()
    for sql, values in script:
        cursor.execute(sql, values)
        if cursor.description is not None:
            cursor.fetchall()
