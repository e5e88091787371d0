"""Reading of rows by the names of their columns."""

from sqlalchemy import Column, Integer, MetaData, Table, Text

from plugins.sql.core.statements import Columns, Row, column_names

TABLE = Table("notes", MetaData(), Column("position", Integer), Column("agent_id", Integer), Column("body", Text))


def read(row: Row) -> str:
    agent, body = row
    return f"{agent}: {body}"


def test_column_names_omit_the_position() -> None:
    assert column_names(TABLE) == ("agent_id", "body")


def test_columns_read_their_part_of_a_joined_row() -> None:
    notes = Columns(TABLE, column_names(TABLE), read)
    values = iter((1, "one", 2, "two", "rest"))
    assert [column.name for column in notes] == ["agent_id", "body"]
    assert (notes.take(values), notes.take(values)) == ("1: one", "2: two")
    assert list(values) == ["rest"]
