"""Reading of rows by the names of their columns, and the order of a statement's values."""

from sqlalchemy import Column, Integer, MetaData, Table, Text, create_engine, select, update

from plugins.sql.core.inserts import insert_into
from plugins.sql.core.statements import Columns, ListStatement, Row, Statement, column_names, matches, typed_parameter

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


INSERT = Statement(lambda insert: insert_into(TABLE, ("agent_id", "body"))(insert))
RENAME = Statement(
    lambda _: (
        update(TABLE)
        .where(matches(TABLE, "agent_id"), TABLE.c.body != typed_parameter(TABLE.c.body, "new"))
        .values(body=typed_parameter(TABLE.c.body, "new"))
    )
)
BODIES = ListStatement(
    lambda ids: select(TABLE.c.body).where(TABLE.c.agent_id.in_(ids), matches(TABLE, "body"), TABLE.c.body != "other")
)


def test_values_are_given_in_the_order_of_the_text_and_the_items_of_a_list_last() -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        TABLE.metadata.create_all(connection)
        INSERT.run_many(connection, [(1, "old"), (2, "old"), (3, "kept")])
        assert RENAME.run(connection, "new", 2) == 1  # the text names `new` twice, its value is given once
        assert BODIES.rows(connection, "new", ids=[1, 2, 3]) == [("new",)]
        assert BODIES.rows(connection, "old", ids=[1, 2, 3]) == [("old",)]
    engine.dispose()
