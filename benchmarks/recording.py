"""Record the SQL calls of a store, so that they can be replayed without the store."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

SqlCall = tuple[str, Sequence[Any]]
COMMIT: SqlCall = ("COMMIT", ())
CONTROL = ("BEGIN IMMEDIATE", "COMMIT", "PRAGMA")


def recording_connection(script: list[SqlCall]) -> type[sqlite3.Connection]:
    """Return a connection class that records its calls in `script`.

    Calls that a plain program would not make are omitted: beginning a transaction to read, and
    checkpoints.
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


def is_statement(sql: str) -> bool:
    """Return whether a call reads or writes rows."""
    return not sql.startswith(CONTROL)


def count_statements(script: Iterable[SqlCall]) -> int:
    """Return the number of statements that read or write rows."""
    return sum(is_statement(sql) for sql, _ in script)


def count_transactions(script: Iterable[SqlCall]) -> int:
    """Return the number of commits."""
    return sum(call is COMMIT for call in script)


def open_plain_connection(path: Path, synchronous: str) -> sqlite3.Connection:
    """Open a file as a program with only the standard library would."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = WAL", f"synchronous = {synchronous}", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def replay(connection: sqlite3.Connection, script: Iterable[SqlCall]) -> None:
    """Execute the recorded calls, and fetch all rows."""
    cursor = connection.cursor()
    for sql, values in script:
        cursor.execute(sql, values)
        if cursor.description is not None:
            cursor.fetchall()
