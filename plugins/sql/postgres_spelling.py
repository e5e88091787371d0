"""Statements that are spelled out in PostgreSQL's own words: several steps of the road in one round trip."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql

from plugins.sql.drivers import DRIVERS, Row

DIALECT: Any = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it so


class Spelled:
    """A statement as a text; every `?` in it stands for a value, in the order in which `rows` takes them."""

    def __init__(self, text: str) -> None:
        number = count(1)
        self.text = "".join(f"${next(number)}" if one == "?" else one for one in text)

    def rows(self, connection: Connection, *values: Any) -> Sequence[Row]:
        """Execute it and give all rows."""
        return DRIVERS["postgresql"].rows(connection, self.text, values)


def given(table: Table, names: Sequence[str]) -> str:
    """Spell a query that gives one row, of values for these columns."""
    return "SELECT " + ", ".join(f"CAST(? AS {_type(table, name)}) AS {name}" for name in names)


def listed(table: Table, names: Sequence[str]) -> str:
    """Spell a source of rows for these columns, and their numbers from 1 on: a list of values a column."""
    lists = ", ".join(f"CAST(? AS {_type(table, name)}[])" for name in names)
    return f"unnest({lists}) WITH ORDINALITY AS new ({', '.join(names)}, number)"


def columns(names: Sequence[str], source: str = "") -> str:
    """Spell a list of columns."""
    return ", ".join(f"{source}.{name}" if source else name for name in names)


def changes(names: Sequence[str], source: str) -> str:
    """Spell what gives columns the values they have in a source."""
    return ", ".join(f"{name} = {source}.{name}" for name in names)


def turned(rows: Sequence[Row], width: int) -> list[list[Any]]:
    """Turn rows into a list a column."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def _type(table: Table, name: str) -> str:
    return str(table.c[name].type.compile(dialect=DIALECT))
