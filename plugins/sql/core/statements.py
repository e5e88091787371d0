"""Compiled statements, calls of the drivers, and hand-written PostgreSQL text.

SQLAlchemy's execution costs several times SQLite's own: 12 µs for an insert and 14 µs for a row read,
against 2 µs of the cursor. Therefore statements are compiled once and handed to the driver's cursor. Bound
values are those of `values.py`, in the order in which a statement's text first names their parameters. Errors
are the driver's own.
"""

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from importlib import import_module
from itertools import count, islice
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from sqlalchemy import BindParameter, Connection, Dialect, Integer, Table, and_, bindparam, literal_column
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import Executable, FromClause
from sqlalchemy.util import await_only

from bot.store import MAX_EXAMINED_ROWS, PageKey, UnreadableRow
from bot.text import shorten
from plugins.sql.core.invalid_texts import read_rows

logger = logging.getLogger(__name__)

T = TypeVar("T")
Row = Sequence[Any]
UUID_BYTES = 16
INVALID_JSON = "a row in the database holds invalid JSON: correct or delete it; `bot db check` names it"
PAGE_WINDOW = 250  # rows that are examined together for a page of a filtered list


class Driver(Protocol):
    """The driver calls that statements need; errors are the driver's own."""

    def run(self, connection: Connection, text: str, values: Row) -> int:
        """Execute a text; return how many rows it changed."""

    def run_many(self, connection: Connection, text: str, rows: Sequence[Row]) -> None:
        """Execute a text once for each row of values."""

    def rows(self, connection: Connection, text: str, values: Row) -> Sequence[Row]:
        """Execute a text; return all rows."""


class SqliteDriver:
    """The `sqlite3` module."""

    def run(self, connection: Connection, text: str, values: Row) -> int:
        cursor = connection.connection.cursor()
        cursor.execute(text, values)
        return cursor.rowcount

    def run_many(self, connection: Connection, text: str, rows: Sequence[Row]) -> None:
        connection.connection.cursor().executemany(text, rows)

    def rows(self, connection: Connection, text: str, values: Row) -> Sequence[Row]:
        cursor = connection.connection.cursor()
        try:
            cursor.execute(text, values)
            return cursor.fetchall()
        except sqlite3.Error as error:
            return read_rows(connection, text, values, error)


class PostgresDriver:
    """asyncpg, awaited inside the function that `run_sync` runs; it caches prepared statements."""

    def run(self, connection: Connection, text: str, values: Row) -> int:
        status = str(await_only(_asyncpg(connection).execute(text, *values)))  # as in `UPDATE 1`
        return int(status.rpartition(" ")[2])

    def run_many(self, connection: Connection, text: str, rows: Sequence[Row]) -> None:
        await_only(_asyncpg(connection).executemany(text, rows))

    def rows(self, connection: Connection, text: str, values: Row) -> Sequence[Row]:
        rows: Sequence[Row] = await_only(_asyncpg(connection).fetch(text, *values))
        return rows


DRIVERS: dict[str, Driver] = {"sqlite": SqliteDriver(), "postgresql": PostgresDriver()}


def _asyncpg(connection: Connection) -> Any:
    return connection.connection.driver_connection


Insert = Callable[[Table], Any]


class Statement:
    """One statement; it takes values in the order in which its text first names their parameters.

    `build` gets the dialect's own `insert`, which knows ON CONFLICT. The values of `items` come last.
    """

    def __init__(self, build: Callable[[Insert], Executable], items: Sequence[str] = ()) -> None:
        self._build = build
        self._items = items
        self._compiled: dict[str, _Compiled] = {}

    def run(self, connection: Connection, *values: Any) -> int:
        """Execute it; return how many rows it changed."""
        compiled = self._compiled_on(connection)
        return compiled.driver.run(connection, compiled.sql, compiled.arrange(values))

    def rows(self, connection: Connection, *values: Any) -> Sequence[Row]:
        """Execute it; return all rows."""
        compiled = self._compiled_on(connection)
        return compiled.driver.rows(connection, compiled.sql, compiled.arrange(values))

    def first(self, connection: Connection, *values: Any) -> Row | None:
        """Execute it; return the first row, or None."""
        rows = self.rows(connection, *values)
        return rows[0] if rows else None

    def run_many(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Execute it once for each row of values."""
        if len(rows) == 1:
            self.run(connection, *rows[0])
        elif rows:
            compiled = self._compiled_on(connection)
            compiled.driver.run_many(connection, compiled.sql, [compiled.arrange(row) for row in rows])

    def text(self, dialect: Dialect) -> tuple[str, int]:
        """Return the text for the driver, and the number of its values."""
        compiled = self._compiled_for(dialect)
        return compiled.sql, compiled.count

    def _compiled_on(self, connection: Connection) -> "_Compiled":
        return self._compiled_for(connection.dialect)

    def _compiled_for(self, dialect: Dialect) -> "_Compiled":
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            compiled = _Compiled(self._build(_import_dialect(dialect.name).insert), self._items, dialect)
            self._compiled[dialect.name] = compiled
        return compiled


class ListStatement:
    """A statement about a list of ids, compiled for 1, 2, 4 … items; other lists repeat their last item.

    `build` gets the parameters of all items, `width` for each item; their values come last.
    """

    def __init__(
        self, build: Callable[[list[BindParameter[Any]]], Executable], *, width: int = 1, max_items: int = 256
    ) -> None:
        self._build = build
        self._width = width
        self._max_items = max_items
        self._sizes: dict[int, Statement] = {}

    def rows(self, connection: Connection, *values: Any, ids: Sequence[Any]) -> list[Row]:
        """Execute it for the whole list; return all rows."""
        rows: list[Row] = []
        for batch, statement in self._batches(ids):
            rows += statement.rows(connection, *values, *batch)
        return rows

    def count(self, connection: Connection, *values: Any, ids: Sequence[Any]) -> int:
        """Execute it for the whole list; return how many rows it changed."""
        batches = self._batches(ids)
        return sum(statement.run(connection, *values, *batch) for batch, statement in batches)

    def _batches(self, ids: Sequence[Any]) -> Iterable[tuple[Sequence[Any], Statement]]:
        step = self._max_items * self._width
        for start in range(0, len(ids), step):
            batch = list(ids[start : start + step])
            count = len(batch) // self._width
            size = 1 << (count - 1).bit_length()
            yield batch + batch[-self._width :] * (size - count), self.for_size(size)

    def for_size(self, size: int) -> Statement:
        """Return the statement for lists of that size."""
        statement = self._sizes.get(size)
        if statement is None:
            names = [f"item_{number}" for number in range(size * self._width)]
            statement = Statement(lambda _: self._build(list(map(bindparam, names))), names)
            self._sizes[size] = statement
        return statement


class _Compiled:
    """A statement's text for one dialect, and the order of its values."""

    def __init__(self, statement: Executable, items: Sequence[str], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)  # type: ignore[attr-defined]  # every Executable has it
        self.sql = str(compiled)
        self.driver = DRIVERS[dialect.name]
        order: list[str] = compiled.positiontup or []
        parameters = [name for name in dict.fromkeys(order) if compiled.binds[name].required and name not in items]
        names = (*parameters, *items)
        constants = [name for name in order if name not in names]
        self._constants = tuple(compiled.params[name] for name in constants)
        indices = {name: index for index, name in enumerate((*names, *constants))}
        self._order = tuple(indices[name] for name in order)
        self.count = len(order)
        self._is_in_order = self._order == tuple(range(len(names)))

    def arrange(self, values: Row) -> tuple[Any, ...]:
        """Return the values in the order in which the text names them."""
        if self._is_in_order:
            return tuple(values)
        all_values = (*values, *self._constants)
        return tuple([all_values[index] for index in self._order])


class Columns(Generic[T]):
    """Columns of a table that are selected together, and the function that reads a value from their row.

    It unpacks into the columns: `select(*RECEIPT)`.
    """

    def __init__(self, table: Table, names: Sequence[str], read: Callable[[Row], T]) -> None:
        self.table_name = table.name
        self.names = tuple(names)
        self.width = len(self.names)
        self._read = read
        self._columns = tuple(table.c[name] for name in names)

    def __iter__(self) -> Iterator[ColumnElement[Any]]:
        return iter(self._columns)

    def read(self, row: Row) -> T:
        """Return the value of a row; raise UnreadableRow if the row holds what this code never wrote."""
        try:
            return self._read(row)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            raise UnreadableRow(
                f"row {self.label_of(row)} of {self.table_name} in the database cannot be read "
                f"({type(error).__name__}): correct or delete it"
            ) from error

    def read_all(self, rows: Iterable[Row]) -> Iterator[T]:
        """Yield the values of rows, without those that cannot be read; see `read_or_report`."""
        for row in rows:
            if (value := self.read_or_report(row)) is not None:
                yield value

    def read_or_report(self, row: Row) -> T | None:
        """Return the value of a row, which may be followed by other columns; None, and log it, if it cannot be read."""
        try:
            return self.read(row[: self.width])
        except UnreadableRow as error:
            _report(str(error))
            return None

    def label_of(self, row: Row) -> str:
        """Return what identifies a row to an operator: its id, else its first columns."""
        values = dict(zip(self.names, row, strict=False))
        keys = [values["id"]] if "id" in values else list(values.values())[:2]
        return " ".join(map(_label_of, keys))

    def take(self, values: Iterator[Any]) -> T:
        """Read a value from the next `width` values of a joined row."""
        return self.read(tuple(islice(values, self.width)))


def _label_of(value: object) -> str:
    return str(UUID(bytes=value)) if isinstance(value, bytes) and len(value) == UUID_BYTES else shorten(str(value), 80)


@lru_cache(maxsize=1024)
def _report(problem: str) -> None:
    """Log a problem once: a row may be read for every message."""
    logger.error("%s; it is left out", problem)


def column_names(table: Table) -> tuple[str, ...]:
    """Return the names of a table's columns but `position`, which the database fills in."""
    return tuple(column.name for column in table.columns if column.name != "position")


def typed_parameter(column: ColumnElement[Any], name: str) -> BindParameter[Any]:
    """Return a parameter of a column's type."""
    return bindparam(name, type_=column.type)


def equals(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Return the condition that a column equals a parameter."""
    return column == typed_parameter(column, name)


def matches(table: FromClause, *columns: str) -> ColumnElement[bool]:
    """Return the condition that these columns equal the parameters of their names."""
    return and_(*(equals(table.c[name], name) for name in columns))


def limit_parameter() -> BindParameter[Any]:
    """Return the parameter for the maximum number of rows."""
    return bindparam("limit", type_=Integer())


def flag_equals(column: ColumnElement[Any], *, is_set: bool = True) -> ColumnElement[bool]:
    """Return the condition on a flag as a literal: with a parameter a partial index would not be used."""
    return column == literal_column("1" if is_set else "0")


class RawStatement:
    """A hand-written PostgreSQL statement; each `?` stands for one of the values of `rows`, in order."""

    def __init__(self, text: str) -> None:
        number = count(1)
        self.text = "".join(f"${next(number)}" if character == "?" else character for character in text)

    def rows(self, connection: Connection, *values: Any) -> Sequence[Row]:
        """Execute it; return all rows."""
        return DRIVERS["postgresql"].rows(connection, self.text, values)


def values_row(table: Table, names: Sequence[str]) -> str:
    """Return the text of a query for one row of values for these columns."""
    return "SELECT " + ", ".join(f"CAST(? AS {_type(table, name)}) AS {name}" for name in names)


def values_table(table: Table, names: Sequence[str]) -> str:
    """Return the text of a table of numbered rows for these columns; its values are a list per column."""
    lists = ", ".join(f"CAST(? AS {_type(table, name)}[])" for name in names)
    return f"unnest({lists}) WITH ORDINALITY AS new ({', '.join(names)}, number)"


def column_list(names: Sequence[str], source: str = "") -> str:
    """Return the text of a list of columns."""
    return ", ".join(f"{source}.{name}" if source else name for name in names)


def assignments(names: Sequence[str], source: str) -> str:
    """Return the text that assigns columns their values in a source."""
    return ", ".join(f"{name} = {source}.{name}" for name in names)


def transpose(rows: Sequence[Row], width: int) -> list[list[Any]]:
    """Return one list per column of the rows."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def _import_dialect(name: str) -> Any:
    """Return SQLAlchemy's module of a dialect, when it is needed: that of PostgreSQL takes 2 MB."""
    return import_module(f"sqlalchemy.dialects.{name}")


@cache
def _postgres_dialect() -> Any:
    return _import_dialect("postgresql").dialect()


def _type(table: Table, name: str) -> str:
    return str(table.c[name].type.compile(dialect=_postgres_dialect()))


def take_page(
    fetch: Callable[[int, int], Sequence[Row]],
    is_wanted: Callable[[Sequence[Row]], list[bool]],
    before: int,
    limit: int,
) -> tuple[list[Row], int | None]:
    """Return up to `limit` wanted rows before a position, and where to go on if there may be more.

    `fetch(before, count)` returns rows that begin with their position, `is_wanted` which of some rows are wanted.
    """
    found: list[Row] = []
    examined = 0
    while examined < MAX_EXAMINED_ROWS:
        rows = fetch(before, PAGE_WINDOW)
        for row, wanted in zip(rows, is_wanted(rows), strict=True):
            if wanted and len(found) == limit:
                return found, before
            if wanted:
                found.append(row)
            before = row[0]
        examined += len(rows)
        if len(rows) < PAGE_WINDOW:
            return found, None
    return found, before


def position_key(position: int | None) -> PageKey | None:
    """Return the key of a row in a list that is ordered by position; None for none."""
    return None if position is None else (int(position),)
