"""Inserts, which SQLite executes for several rows at once."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Table, bindparam
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import Executable

from plugins.sql.core.statements import Insert, Row, Statement

MAX_INSERTED_ROWS = 8  # by one statement


class RowsStatement(Statement):
    """An insert of rows, which SQLite executes for up to eight of them at once.

    `build` gets a suffix for the parameters of each row, which take its values in the order of the text.
    """

    def __init__(self, build: Callable[[Insert, Sequence[str]], Executable]) -> None:
        super().__init__(lambda insert: build(insert, [""]))
        self._build_rows = build
        self._sizes: dict[int, Statement] = {1: self}

    def run_many(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Execute it for all rows."""
        if connection.dialect.name != "sqlite":
            super().run_many(connection, rows)
            return
        for start in range(0, len(rows), MAX_INSERTED_ROWS):
            batch = rows[start : start + MAX_INSERTED_ROWS]
            self._for_size(len(batch)).run(connection, *chain.from_iterable(batch))

    def _for_size(self, size: int) -> Statement:
        statement = self._sizes.get(size)
        if statement is None:
            suffixes = [f"_{number}" for number in range(size)]
            statement = self._sizes[size] = Statement(lambda insert: self._build_rows(insert, suffixes))
        return statement


def insert_into(table: Table, columns: Sequence[str], **expressions: ColumnElement[Any]) -> Callable[[Insert], Any]:
    """Return a builder of an insert of these columns; `expressions` are computed by the database."""
    values = {name: bindparam(name, type_=table.c[name].type) for name in columns} | expressions
    return lambda insert: insert(table).values(values)


def insert_rows(table: Table, columns: Sequence[str]) -> RowsStatement:
    """Return a statement that inserts rows of these columns."""
    return RowsStatement(lambda insert, suffixes: _insert_values(table, columns, suffixes)(insert))


def _insert_values(table: Table, columns: Sequence[str], suffixes: Sequence[str]) -> Callable[[Insert], Any]:
    types = {name: table.c[name].type for name in columns}
    rows = [{name: bindparam(f"{name}{suffix}", type_=types[name]) for name in columns} for suffix in suffixes]
    return lambda insert: insert(table).values(rows if len(rows) > 1 else rows[0])


def upsert(
    table: Table, keys: Sequence[str], columns: Sequence[str], *, unchanged: Sequence[str] = ()
) -> RowsStatement:
    """Return a statement that inserts a row or updates the row of that key, except its `unchanged` columns."""

    def build(insert: Insert, suffixes: Sequence[str]) -> Executable:
        statement = _insert_values(table, columns, suffixes)(insert)
        updates = {name: statement.excluded[name] for name in columns if name not in (*keys, *unchanged)}
        return statement.on_conflict_do_update(index_elements=list(keys), set_=updates)  # type: ignore[no-any-return]

    return RowsStatement(build)
