"""Compiled statements and driver calls; hand-written PostgreSQL text.

What Core does around an execution costs several times what SQLite does inside one: 12 µs for an insert
and 14 for a row read, against 2 of the cursor. The values that are bound are those of `values.py`, in the
order in which a statement names them. Errors are the driver's own; the threads explain them.

Beneath SQLAlchemy's own cursors, which cost several times what the database does.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, Protocol

from sqlalchemy import (
    BindParameter,
    Connection,
    Dialect,
    Integer,
    Table,
    bindparam,
    literal_column,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import Executable
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


class SqliteDriver:
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


class PostgresDriver:
    """asyncpg, waited for inside the function that `run_sync` runs; it keeps what it has prepared."""

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


INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

Insert = Callable[[Table], Any]


class Statement:
    """One statement; `names` are its parameters, in the order in which `run` takes their values.

    `build` is given the dialect's own `insert`, the one that knows ON CONFLICT.
    """

    def __init__(self, build: Callable[[Insert], Executable], *names: str) -> None:
        self._build = build
        self._names = names
        self._compiled: dict[str, _Compiled] = {}

    def run(self, connection: Connection, *values: Any) -> int:
        """Execute it and count the rows it changed."""
        compiled = self._compiled_on(connection)
        return compiled.driver.run(connection, compiled.sql, compiled.arrange(values))

    def rows(self, connection: Connection, *values: Any) -> Sequence[Row]:
        """Execute it and give all rows."""
        compiled = self._compiled_on(connection)
        return compiled.driver.rows(connection, compiled.sql, compiled.arrange(values))

    def first(self, connection: Connection, *values: Any) -> Row | None:
        """Execute it and give the first row."""
        rows = self.rows(connection, *values)
        return rows[0] if rows else None

    def run_many(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Execute it once for every row of values; nothing is done where there is none."""
        if len(rows) == 1:
            self.run(connection, *rows[0])
        elif rows:
            compiled = self._compiled_on(connection)
            compiled.driver.run_many(connection, compiled.sql, [compiled.arrange(row) for row in rows])

    def text(self, dialect: Dialect) -> tuple[str, int]:
        """Give the text that the driver is handed, and how many values go with it."""
        compiled = self._compiled_for(dialect)
        return compiled.sql, compiled.count

    def _compiled_on(self, connection: Connection) -> "_Compiled":
        return self._compiled_for(connection.dialect)

    def _compiled_for(self, dialect: Dialect) -> "_Compiled":
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            compiled = _Compiled(self._build(INSERTS[dialect.name]), self._names, dialect)
            self._compiled[dialect.name] = compiled
        return compiled


class ListStatement:
    """A statement about a list, compiled for 1, 2, 4 … items; a list in between is filled up with its last.

    `build` is given the parameters of each item, `width` of them in a row.
    """

    def __init__(
        self,
        build: Callable[[list[BindParameter[Any]]], Executable],
        *names: str,
        width: int = 1,
        max_items: int = 256,
    ) -> None:
        self._build = build
        self._names = names
        self._width = width
        self._max_items = max_items
        self._sizes: dict[int, Statement] = {}

    def rows(self, connection: Connection, *values: Any, ids: Sequence[Any]) -> list[Row]:
        """Execute it for the whole list, and give all rows."""
        rows: list[Row] = []
        for batch, statement in self._batches(ids):
            rows += statement.rows(connection, *values, *batch)
        return rows

    def count(self, connection: Connection, *values: Any, ids: Sequence[Any]) -> int:
        """Execute it for the whole list, and count the rows it changed."""
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
        """Give the statement for lists of so many items."""
        statement = self._sizes.get(size)
        if statement is None:
            names = [f"item_{number}" for number in range(size * self._width)]
            statement = Statement(lambda _: self._build(list(map(bindparam, names))), *self._names, *names)
            self._sizes[size] = statement
        return statement


class _Compiled:
    """What a driver is handed: the text, and how to arrange the values."""

    def __init__(self, statement: Executable, names: Sequence[str], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)  # type: ignore[attr-defined]  # every Executable has it
        self.sql = str(compiled)
        self.driver = DRIVERS[dialect.name]
        order: list[str] = compiled.positiontup or []
        constants = [name for name in order if name not in names]
        self._constants = tuple(compiled.params[name] for name in constants)
        indices = {name: index for index, name in enumerate((*names, *constants))}
        self._order = tuple(indices[name] for name in order)
        self.count = len(order)
        self._is_in_order = self._order == tuple(range(len(names)))

    def arrange(self, values: Row) -> tuple[Any, ...]:
        """Put the values in the order in which the text names them."""
        if self._is_in_order:
            return tuple(values)
        all_values = (*values, *self._constants)
        return tuple([all_values[index] for index in self._order])


def insert_into(
    table: Table, columns: Sequence[str], **expressions: ColumnElement[Any]
) -> Callable[[Insert], Any]:
    """Begin an insert of these columns, some of them computed by the database."""
    values = {name: bindparam(name, type_=table.c[name].type) for name in columns} | expressions
    return lambda insert: insert(table).values(values)


def upsert(table: Table, keys: Sequence[str], columns: Sequence[str]) -> Statement:
    """Insert a row, or give the one of that key these values."""
    begin = insert_into(table, columns)

    def build(insert: Insert) -> Executable:
        statement = begin(insert)
        updates = {name: statement.excluded[name] for name in columns if name not in keys}
        return statement.on_conflict_do_update(index_elements=list(keys), set_=updates)  # type: ignore[no-any-return]

    return Statement(build, *columns)


def typed_parameter(column: ColumnElement[Any], name: str) -> BindParameter[Any]:
    """Name a value that is of a column's type."""
    return bindparam(name, type_=column.type)


def equals(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Compare a column with a value."""
    return column == typed_parameter(column, name)


def limit_parameter() -> BindParameter[Any]:
    """Name the value that bounds how many rows come back."""
    return bindparam("limit", type_=Integer())


def flag_equals(column: ColumnElement[Any], *, is_set: bool = True) -> ColumnElement[bool]:
    """Tell whether a flag is set, spelled out: with a parameter in it a partial index would not be used."""
    return column == literal_column("1" if is_set else "0")


POSTGRES_DIALECT: Any = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it so


class RawStatement:
    """A statement as a text; every `?` in it stands for a value, in the order in which `rows` takes them."""

    def __init__(self, text: str) -> None:
        number = count(1)
        self.text = "".join(f"${next(number)}" if character == "?" else character for character in text)

    def rows(self, connection: Connection, *values: Any) -> Sequence[Row]:
        """Execute it and give all rows."""
        return DRIVERS["postgresql"].rows(connection, self.text, values)


def values_row(table: Table, names: Sequence[str]) -> str:
    """Spell a query that gives one row, of values for these columns."""
    return "SELECT " + ", ".join(f"CAST(? AS {_type(table, name)}) AS {name}" for name in names)


def values_table(table: Table, names: Sequence[str]) -> str:
    """Spell a source of rows for these columns, and their numbers from 1 on: a list of values a column."""
    lists = ", ".join(f"CAST(? AS {_type(table, name)}[])" for name in names)
    return f"unnest({lists}) WITH ORDINALITY AS new ({', '.join(names)}, number)"


def column_list(names: Sequence[str], source: str = "") -> str:
    """Spell a list of columns."""
    return ", ".join(f"{source}.{name}" if source else name for name in names)


def assignments(names: Sequence[str], source: str) -> str:
    """Spell what gives columns the values they have in a source."""
    return ", ".join(f"{name} = {source}.{name}" for name in names)


def transpose(rows: Sequence[Row], width: int) -> list[list[Any]]:
    """Turn rows into a list a column."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def _type(table: Table, name: str) -> str:
    return str(table.c[name].type.compile(dialect=POSTGRES_DIALECT))
