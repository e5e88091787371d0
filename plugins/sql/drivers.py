"""How drivers are handed a statement: its text, and the values in the order in which the text names them.

Beneath SQLAlchemy's own cursors, which cost several times what the database does.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy import Connection
from sqlalchemy.util import await_only

Row = Sequence[Any]


class Driver(Protocol):
    """What statements need of a driver; its errors are its own."""

    def run(self, connection: Connection, text: str, values: Row) -> int:
        """Execute a text and count the rows it changed."""

    def run_many(self, connection: Connection, text: str, rows: Sequence[Row]) -> None:
        """Execute a text once for every row of values."""

    def rows(self, connection: Connection, text: str, values: Row) -> Sequence[Row]:
        """Execute a text and give all rows."""


class OfSqlite:
    """SQLite's driver in the standard library."""

    def run(self, connection: Connection, text: str, values: Row) -> int:
        cursor = connection.connection.cursor()
        cursor.execute(text, values)
        return cursor.rowcount

    def run_many(self, connection: Connection, text: str, rows: Sequence[Row]) -> None:
        connection.connection.cursor().executemany(text, rows)

    def rows(self, connection: Connection, text: str, values: Row) -> Sequence[Row]:
        cursor = connection.connection.cursor()
        cursor.execute(text, values)
        return cursor.fetchall()


class OfPostgres:
    """asyncpg, waited for inside the function that `run_sync` runs; it keeps what it has prepared."""

    def run(self, connection: Connection, text: str, values: Row) -> int:
        status = str(await_only(_asyncpg(connection).execute(text, *values)))  # as in `UPDATE 1`
        return int(status.rpartition(" ")[2])

    def run_many(self, connection: Connection, text: str, rows: Sequence[Row]) -> None:
        await_only(_asyncpg(connection).executemany(text, rows))

    def rows(self, connection: Connection, text: str, values: Row) -> Sequence[Row]:
        found: Sequence[Row] = await_only(_asyncpg(connection).fetch(text, *values))
        return found


DRIVERS: dict[str, Driver] = {"sqlite": OfSqlite(), "postgresql": OfPostgres()}


def _asyncpg(connection: Connection) -> Any:
    return connection.connection.driver_connection
